// Pinned host memory: page aligned, locked where the system allows it, known by address so that a
// non-blocking transfer can tell that its buffer may be read later.
#pragma once

#include <ATen/core/CachingHostAllocator.h>

namespace spyre {

/// Host bytes, mlocked where the system allows: what `pin_memory()` gives. With a cache and
/// statistics.
at::HostAllocator& host_allocator();
bool is_pinned(const void* pointer);

}  // namespace spyre
