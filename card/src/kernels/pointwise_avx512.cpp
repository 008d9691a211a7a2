// Pointwise ops for x86 with AVX-512. Compile with the flags of convert_avx2.cpp and
// -mavx512f -mavx512bw -mavx512vl -mavx512dq.
#if defined(__x86_64__)
#define SPYRE_SIMD_NAMESPACE avx512
#include "kernels/pointwise_kernels.inc.h"
#endif
