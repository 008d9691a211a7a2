// Matrix products for x86 with AVX2 and FMA. Compile with the flags of convert_avx2.cpp.
#if defined(__x86_64__)
#define SPYRE_SIMD_NAMESPACE avx2
#include "kernels/matmul_kernels.inc.h"
#endif
