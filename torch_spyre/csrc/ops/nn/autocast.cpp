// torch.autocast("spyre"): which dtype an op runs in, by PyTorch's own lists. An op that is in none
// of them runs in the dtype it is given.
//
// PyTorch's list of ops whose sums may overflow (softmax, sum, cumsum, ...) is left out: they add
// in fp32 on the card anyway, and a float16 result keeps the rest of the model in float16.
#include <ATen/autocast_mode.h>
#include <torch/library.h>

// The three registrations that ATen's list macros want to be given.
#define SPYRE_LOWER_PRECISION(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, lower_precision_fp)
#define SPYRE_FP32(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32)
#define SPYRE_PROMOTE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, promote)

TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) { m.fallback(torch::CppFunction::makeFallthrough()); }

TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, m) {
  AT_FORALL_LOWER_PRECISION_FP(SPYRE_LOWER_PRECISION)
  AT_FORALL_FP32(SPYRE_FP32)
  AT_FORALL_PROMOTE(SPYRE_PROMOTE)
}
