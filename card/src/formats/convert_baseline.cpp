// Conversions with the vector instructions every machine of the architecture has.
#define SPYRE_SIMD_NAMESPACE baseline
#include "formats/convert_kernels.inc.h"
