// Folds, row operations and scans with the vector instructions every machine of the architecture
// has.
#define SPYRE_SIMD_NAMESPACE baseline
#include "kernels/reduce_kernels.inc.h"
// clang-format off: each needs what comes before it
#include "kernels/row_kernels.inc.h"
#include "kernels/scan_kernels.inc.h"
#include "kernels/stick_lanes.inc.h"
#include "kernels/stick_kernels.inc.h"
#include "kernels/sweep_kernels.inc.h"
#include "kernels/line_kernels.inc.h"
// clang-format on
