// The list of fast conversions, one for each vector width this build has. Internal to convert.cpp.
#pragma once

#include <stddef.h>

#include "spyre/machine.h"

namespace spyre::card {

/// Converts n packed elements; null where a mode has nothing faster than the generic path.
struct FastKernel {
  DataFormat src, dst;
  void (*ieee)(const void* src, void* dst, size_t n);
  void (*merged)(const void* src, void* dst, size_t n);
};

/// Ends with an entry whose `ieee` is null.
namespace baseline {
const FastKernel* fast_kernels();
}
#if defined(__x86_64__)
namespace avx2 {
const FastKernel* fast_kernels();
}
namespace avx512 {
const FastKernel* fast_kernels();
}
#endif

}  // namespace spyre::card
