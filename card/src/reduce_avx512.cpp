// Folds, row operations and scans for x86 with AVX-512. Compile with the flags of reduce_avx2.cpp
// and -mavx512f -mavx512bw -mavx512vl -mavx512dq.
#if defined(__x86_64__)
#define SPYRE_SIMD_NAMESPACE avx512
#include "reduce_kernels.inc.h"
// clang-format off: each needs what comes before it
#include "row_kernels.inc.h"
#include "scan_kernels.inc.h"
#include "stick_lanes.inc.h"
#include "stick_kernels.inc.h"
#include "sweep_kernels.inc.h"
#include "line_kernels.inc.h"
// clang-format on
#endif
