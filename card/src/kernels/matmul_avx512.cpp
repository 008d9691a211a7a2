// Matrix products for x86 with AVX-512. Compile with the flags of convert_avx512.cpp.
#if defined(__x86_64__)
#define SPYRE_SIMD_NAMESPACE avx512
#include "kernels/matmul_kernels.inc.h"
#endif
