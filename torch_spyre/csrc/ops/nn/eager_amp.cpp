// What torch.amp.GradScaler asks of a device: look for gradients that overflowed, undo the scale of
// the others, choose the next scale. All on the card: nothing waits for a result.
#include <ATen/ops/any.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/logical_and.h>
#include <ATen/ops/logical_not.h>
#include <ATen/ops/logical_or.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/where.h>
#include <torch/library.h>

namespace spyre {
namespace {

using at::Tensor;

void check_one(const char* name, const Tensor& tensor, c10::ScalarType dtype) {
  TORCH_CHECK(tensor.numel() == 1 && tensor.scalar_type() == dtype, name,
              " must be a tensor of one ", dtype, ", got ", tensor.numel(), " of ",
              tensor.scalar_type(), ".");
}

void check_and_unscale(at::TensorList gradients, Tensor& found_inf, const Tensor& inv_scale) {
  check_one("found_inf", found_inf, at::kFloat);
  check_one("inv_scale", inv_scale, at::kFloat);
  for (Tensor gradient : gradients) {
    TORCH_CHECK(gradient.layout() == at::kStrided, "gradients to unscale must not be sparse");
    const Tensor overflowed = at::any(at::logical_not(at::isfinite(gradient)));
    at::maximum_out(found_inf, found_inf, overflowed);
    gradient.mul_(inv_scale);
  }
}

Tensor& update_scale(Tensor& scale, Tensor& tracker, const Tensor& found_inf, double growth,
                     double backoff, std::int64_t interval) {
  check_one("growth_tracker", tracker, at::kInt);
  check_one("scale", scale, at::kFloat);
  check_one("found_inf", found_inf, at::kFloat);
  const Tensor overflowed = found_inf.ne(0), successes = tracker.add(1),
               due = successes.eq(interval);
  const Tensor grown = scale.mul(growth);
  // A scale that would overflow itself stays.
  const Tensor kept = at::where(at::logical_and(due, at::isfinite(grown)), grown, scale);
  scale.copy_(at::where(overflowed, scale.mul(backoff), kept));
  tracker.copy_(successes.masked_fill(at::logical_or(overflowed, due), 0));
  return scale;
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_amp_foreach_non_finite_check_and_unscale_", &check_and_unscale);
  m.impl("_amp_update_scale_", &update_scale);
}

}  // namespace spyre
