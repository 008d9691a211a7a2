// Folds, row operations and scans for x86 with AVX-512. Compile with the flags of reduce_avx2.cpp
// and -mavx512f -mavx512bw -mavx512vl -mavx512dq.
#if defined(__x86_64__)
#define SPYRE_SIMD_NAMESPACE avx512
#include "kernels/reduce_kernels.inc.h"
// clang-format off: each needs what comes before it
#include "kernels/row_kernels.inc.h"
#include "kernels/scan_kernels.inc.h"
#include "kernels/stick_lanes.inc.h"
#include "kernels/stick_kernels.inc.h"
#include "kernels/sweep_kernels.inc.h"
#include "kernels/line_kernels.inc.h"
// clang-format on
#endif
