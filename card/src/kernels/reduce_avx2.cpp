// Folds, row operations and scans for x86 with AVX2. Compile with -mavx2 -mfma -mf16c -mbmi2.
#if defined(__x86_64__)
#define SPYRE_SIMD_NAMESPACE avx2
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
