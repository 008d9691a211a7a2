// Folds, row operations and scans with the vector instructions every machine of the architecture
// has.
#define SPYRE_SIMD_NAMESPACE baseline
#include "reduce_kernels.inc.h"
// clang-format off: each needs what comes before it
#include "row_kernels.inc.h"
#include "scan_kernels.inc.h"
#include "stick_lanes.inc.h"
#include "stick_kernels.inc.h"
#include "sweep_kernels.inc.h"
#include "line_kernels.inc.h"
// clang-format on
