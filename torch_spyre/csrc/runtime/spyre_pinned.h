// Pinned host memory: page aligned, locked where the system allows it, known by address so that a
// non-blocking transfer can tell that its buffer may be read later.
#pragma once

#include <ATen/core/CachingHostAllocator.h>

namespace spyre {

/// The same as pinned_allocator(), with its cache and statistics.
at::HostAllocator& host_allocator();

}  // namespace spyre
