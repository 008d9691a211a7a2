// Conversions for x86 with AVX2. Compile with -mavx2 -mfma -mf16c -mbmi2.
#if defined(__x86_64__)
#define SPYRE_SIMD_NAMESPACE avx2
#include "formats/convert_kernels.inc.h"
#endif
