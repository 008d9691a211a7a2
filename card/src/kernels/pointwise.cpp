#include "kernels/pointwise.h"

#include "formats/convert.h"

namespace spyre::card {

int64_t work_of(const OpInfo& op) {
  return op.cost == Cost::transcendental ? 6 : op.cost == Cost::divide ? 2 : 1;
}

const PointwiseKernels& pointwise_kernels_here() {
#if defined(__x86_64__)
  if (simd() == SimdLevel::avx512) return avx512::pointwise_kernels;
  if (simd() == SimdLevel::avx2) return avx2::pointwise_kernels;
#endif
  return baseline::pointwise_kernels;
}

PointwiseRun pointwise_kernel(OpFunc op, bool integer) {
  const PointwiseKernels::Op* entry = pointwise_kernels_here().ops;
  for (; entry->fp32 || entry->int64; ++entry)
    if (entry->op == op) return integer ? entry->int64 : entry->fp32;
  return nullptr;
}

NumberRun number_kernel(OpFunc op, int which) {
  const PointwiseKernels::NumberOp* entry = pointwise_kernels_here().number_ops;
  for (; entry->second; ++entry)
    if (entry->op == op) return which == 1 ? entry->second : entry->first;
  return nullptr;
}

}  // namespace spyre::card
