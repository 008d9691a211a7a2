// The list of fast conversions, one for each vector width this build has. Internal to convert.cpp.
#pragma once

#include <stddef.h>

#include "spyre/machine.h"

namespace spyre::card {

/// ConvertRun and ConvertRows of convert.h.
typedef void (*FastRun)(const void* src, void* dst, size_t n);
typedef void (*FastRows)(const void* src, ptrdiff_t src_pitch, void* dst, ptrdiff_t dst_pitch,
                         size_t n, size_t rows);

/// One conversion in either mode of DLFloat16's special values. Null for rows: row after row.
struct FastKernel {
  DataFormat src, dst;
  FastRun ieee, merged;
  FastRows ieee_rows = nullptr, merged_rows = nullptr;
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
