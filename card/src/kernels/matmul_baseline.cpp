// Matrix products with the vector instructions every machine of the architecture has.
#define SPYRE_SIMD_NAMESPACE baseline
#include "kernels/matmul_kernels.inc.h"
