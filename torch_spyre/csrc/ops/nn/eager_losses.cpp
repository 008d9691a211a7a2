// Losses and their derivatives. One pointwise op gives the loss of every element; a mean or a sum
// of them is taken in fp32, whatever the dtype, and rounded once.
#include <ATen/core/Reduction.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/ge.h>
#include <ATen/ops/le.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/sum.h>
#include <torch/library.h>

#include "ops/pointwise/eager_pointwise_kernels.h"
#include "tensor/eager_structured.h"

namespace spyre::eager {
namespace {

using at::Tensor;
using Weight = std::optional<Tensor>;

void check_dtype(const char* name, const Tensor& self) {
  TORCH_CHECK_NOT_IMPLEMENTED(self.is_floating_point(), "\"", name, "\" not implemented for '",
                              self.scalar_type(), "'");
}

Tensor& loss(OpFunc op, Tensor& out, std::initializer_list<Tensor> inputs, std::int64_t reduction,
             std::vector<double> constants, at::ScalarType dtype) {
  const Tensor &self = *inputs.begin(), &target = *(inputs.begin() + 1);
  const auto size = at::infer_size(self.sizes(), target.sizes());
  const char* const name = op_info(op).name;
  check_dtype(name, self);
  if (reduction == at::Reduction::None) {
    size_output(name, out, size, self.options().dtype(dtype));
    pointwise(op, out, inputs, at::kFloat, std::move(constants));
    return out;
  }
  const Tensor elements = at::empty(size, self.options().dtype(at::kFloat));
  pointwise(op, elements, inputs, at::kFloat, std::move(constants));
  size_output(name, out, {}, self.options().dtype(dtype));
  return out.copy_(reduction == at::Reduction::Mean ? at::mean(elements) : at::sum(elements));
}

/// What the derivative of every element is multiplied with.
double norm(const Tensor& self, std::int64_t reduction) {
  return reduction == at::Reduction::Mean ? 1.0 / static_cast<double>(self.numel()) : 1.0;
}

Tensor& derivative(OpFunc op, Tensor& out, std::initializer_list<Tensor> inputs,
                   std::vector<double> constants) {
  const Tensor &self = *(inputs.begin() + 1), &target = *(inputs.begin() + 2);
  size_output(op_info(op).name, out, at::infer_size(self.sizes(), target.sizes()), self.options());
  pointwise(op, out, inputs, at::kFloat, std::move(constants));
  return out;
}

// ------------------------------------------------------------------------- of every difference

template <OpFunc op, class... Parameters>
Tensor& difference_loss(const Tensor& self, const Tensor& target, std::int64_t reduction,
                        Parameters... parameters, Tensor& out) {
  return loss(op, out, {self, target}, reduction, {parameters...}, at::result_type(self, target));
}

/// `factor`: of the derivative, beside what the reduction brings.
template <OpFunc op, int factor, class... Parameters>
Tensor& difference_backward(const Tensor& grad, const Tensor& self, const Tensor& target,
                            std::int64_t reduction, Parameters... parameters, Tensor& out) {
  return derivative(op, out, {grad, self, target}, {factor * norm(self, reduction), parameters...});
}

Tensor& huber(const Tensor& self, const Tensor& target, std::int64_t reduction, double delta,
              Tensor& out) {
  TORCH_CHECK(delta > 0, "huber_loss does not support non-positive values for delta.");
  if (!out.defined() && reduction == at::Reduction::None)
    out = result_of({self, target}, self.options());
  return loss(OpFunc::huber, out, {self, target}, reduction, {delta}, self.scalar_type());
}

// ---------------------------------------------------------------------------- binary cross entropy

Tensor weight_or_one(const Weight& weight) {
  return weight && weight->defined() ? *weight : number(1);
}

/// Like the CPU's: the host waits for the answer.
void check_probabilities(const Tensor& self, const Tensor& target, const Weight& weight) {
  check_floating("binary_cross_entropy", self);
  check_same_dtype(self, target);
  if (weight && weight->defined())
    TORCH_CHECK(at::is_expandable_to(weight->sizes(), self.sizes()), "A weight of size ",
                weight->sizes(), " does not fit an input of size ", self.sizes(), ".");
  const auto good = [](const Tensor& tensor) {
    return at::ge(tensor, 0).logical_and_(at::le(tensor, 1)).all();
  };
  const Tensor input = good(self);
  if (input.logical_and(good(target)).item<bool>()) return;
  TORCH_CHECK(input.item<bool>(), "all elements of input should be between 0 and 1");
  TORCH_CHECK(false, "all elements of target should be between 0 and 1");
}

Tensor& cross_entropy(const Tensor& self, const Tensor& target, const Weight& weight,
                      std::int64_t reduction, Tensor& out) {
  check_probabilities(self, target, weight);
  return loss(OpFunc::bce, out, {self, target, weight_or_one(weight)}, reduction, {},
              self.scalar_type());
}
Tensor& cross_entropy_backward(const Tensor& grad, const Tensor& self, const Tensor& target,
                               const Weight& weight, std::int64_t reduction, Tensor& out) {
  if (!out.defined()) out = at::empty_like(self);
  return derivative(OpFunc::bcebwd, out, {grad, self, target, weight_or_one(weight)},
                    {norm(self, reduction)});
}
}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("mse_loss.out", difference_loss<OpFunc::squareddifference>);
  implement<difference_backward<OpFunc::msebwd, 2>>(m, "mse_loss_backward",
                                                    "mse_loss_backward.grad_input");
  m.impl("smooth_l1_loss.out", difference_loss<OpFunc::smoothl1, double>);
  m.impl("smooth_l1_loss_backward.grad_input", difference_backward<OpFunc::smoothl1bwd, 1, double>);
  implement<huber>(m, "huber_loss", "huber_loss.out");
  m.impl("huber_loss_backward.out", difference_backward<OpFunc::huberbwd, 1, double>);
  implement<cross_entropy>(m, "binary_cross_entropy", "binary_cross_entropy.out");
  implement<cross_entropy_backward>(m, "binary_cross_entropy_backward",
                                    "binary_cross_entropy_backward.grad_input");
}

}  // namespace spyre::eager
