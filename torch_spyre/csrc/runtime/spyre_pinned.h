// Pinned host memory: page aligned, locked where the system allows it, known by address so that a
// non-blocking transfer can tell that its buffer may be read later.
#pragma once

#include <ATen/core/CachingHostAllocator.h>

namespace spyre {

/// Host bytes, mlocked where the system allows: what `pin_memory()` gives.
c10::Allocator* pinned_allocator();
bool is_pinned(const void* pointer);

/// The same as pinned_allocator(), with its cache and statistics.
at::HostAllocator& host_allocator();

}  // namespace spyre
