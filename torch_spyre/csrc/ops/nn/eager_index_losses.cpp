// Negative log likelihood: the loss reads one class of every sample, its gradient writes one.
#include <limits>

#include <ATen/core/Reduction.h>
#include <ATen/ops/div.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/ne.h>
#include <ATen/ops/neg.h>
#include <ATen/ops/nll_loss_backward_meta.h>
#include <ATen/ops/nll_loss_forward_meta.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/where.h>
#include <torch/library.h>

#include "ops/index/eager_index.h"
#include "program/eager_plan.h"
#include "tensor/eager_structured.h"
#include "tensor/eager_variants.h"

namespace spyre::eager {
namespace {

using at::Tensor;

/// Samples with their classes in dimension 1 (or 0 if there is one sample alone).
struct Samples {
  std::int64_t dim;
  Tensor classes;  ///< of every sample; class 0 where the target is to be ignored; dim has size 1
  Tensor counted;  ///< whether a sample's target is not to be ignored
  Tensor weights;  ///< of every sample, float32, 0 where it is ignored
};

/// The elements of `input` at the classes of the samples.
Tensor at_classes(const Tensor& input, std::int64_t dim, const Tensor& classes) {
  Tensor out = at::empty(classes.sizes(), input.options());
  run_elements({.op = OpFunc::gather, .dim = dim}, input, classes, out);
  return out;
}

Samples samples_of(const Tensor& self, const Tensor& target, const Tensor& weight,
                   std::int64_t ignore_index) {
  Samples samples;
  samples.dim = self.dim() == 1 ? 0 : 1;
  const Tensor targets = self.dim() == 1 ? on_device(target, self.device()).reshape({1})
                                         : on_device(target, self.device()).unsqueeze(1);
  samples.counted = at::ne(targets, ignore_index);
  samples.classes = at::where(samples.counted, targets, 0).to(targets.scalar_type());
  samples.weights = samples.counted.to(at::kFloat);
  if (weight.defined()) {
    Tensor of_class = at::empty(samples.classes.sizes(), weight.options());
    run_flat(OpFunc::gather, on_device(weight, self.device()), samples.classes, of_class,
             /*wrap=*/false);
    samples.weights = at::mul(samples.weights, of_class.to(at::kFloat));
  }
  return samples;
}

/// `output` and `total_weight` have their sizes.
void loss(const Tensor& self, const Tensor& target, const Tensor& weight, std::int64_t reduction,
          std::int64_t ignore_index, const Tensor& output, const Tensor& total_weight) {
  check_floating("nll_loss", self);
  if (target.numel() == 0) {
    // Without samples the mean is 0 / 0.
    output.fill_(reduction == at::Reduction::Mean ? std::numeric_limits<double>::quiet_NaN() : 0);
    total_weight.zero_();
    return;
  }
  const Samples samples = samples_of(self, target, weight, ignore_index);
  const Tensor likelihood = at_classes(self, samples.dim, samples.classes).to(at::kFloat);
  // Not a product: an ignored likelihood may be infinite.
  const Tensor losses =
      at::where(samples.counted, at::neg(at::mul(likelihood, samples.weights)), 0);
  if (reduction == at::Reduction::None) {
    output.copy_(losses.reshape(output.sizes()));
    total_weight.zero_();
    return;
  }
  const Tensor weights = at::sum(samples.weights), sum = at::sum(losses);
  output.copy_(reduction == at::Reduction::Mean ? at::div(sum, weights) : sum);
  total_weight.copy_(weights);
}

/// Writes the gradient to `grad_input`, which has its size.
void loss_backward(const Tensor& grad_output, const Tensor& self, const Tensor& target,
                   const Tensor& weight, std::int64_t reduction, std::int64_t ignore_index,
                   const Tensor& total_weight, const Tensor& grad_input) {
  grad_input.zero_();
  if (target.numel() == 0) return;
  const Samples samples = samples_of(self, target, weight, ignore_index);
  Tensor grad = grad_output.to(at::kFloat);
  if (reduction == at::Reduction::None) {
    grad = grad.reshape(samples.weights.sizes());
  } else if (reduction == at::Reduction::Mean) {
    grad = at::div(grad, total_weight.to(at::kFloat));
  }
  const Tensor values = at::where(samples.counted, at::neg(at::mul(samples.weights, grad)), 0)
                            .to(grad_input.scalar_type());
  run_elements({.op = OpFunc::scatter, .dim = samples.dim}, grad_input, samples.classes, values);
}

void check_images(const Tensor& self, const Tensor& target, const Tensor& weight) {
  TORCH_CHECK(target.dim() == 3, "only batches of spatial targets supported (3D tensors) but got ",
              "targets of dimension: ", target.dim());
  TORCH_CHECK(self.dim() == 4, "only batches of spatial inputs supported (4D tensors), but got ",
              "input of dimension: ", self.dim());
  TORCH_CHECK(target.scalar_type() == at::kLong, "expected scalar type Long but found ",
              target.scalar_type());
  TORCH_CHECK(!weight.defined() || weight.numel() == self.size(1),
              "weight tensor should be defined either for all or no classes");
  TORCH_CHECK(self.size(0) == target.size(0) && self.size(2) == target.size(1) &&
                  self.size(3) == target.size(2),
              "size mismatch (got input: ", self.sizes(), " , target: ", target.sizes());
}

at::OptionalTensorRef reference(const Tensor& tensor) {
  return tensor.defined() ? at::OptionalTensorRef(tensor) : at::OptionalTensorRef();
}

/// Of images, or of samples without positions.
template <bool images>
std::tuple<Tensor&, Tensor&> nll_loss(const Tensor& self, const Tensor& target,
                                      const std::optional<Tensor>& weight, std::int64_t reduction,
                                      std::int64_t ignore_index, Tensor& output,
                                      Tensor& total_weight) {
  const Tensor weights = weight.value_or(Tensor());
  if constexpr (images) {
    check_images(self, target, weights);
    const bool single = reduction != at::Reduction::None;
    size_output("nll_loss2d", output, single ? at::IntArrayRef() : target.sizes(), self.options());
    size_output("nll_loss2d", total_weight, {}, self.options());
  } else {
    shape_outputs<at::meta::structured_nll_loss_forward>(
        {output, total_weight}, self, target, reference(weights), reduction, ignore_index);
  }
  loss(self, target, weights, reduction, ignore_index, output, total_weight);
  return {output, total_weight};
}

template <bool images>
Tensor& nll_loss_backward(const Tensor& grad_output, const Tensor& self, const Tensor& target,
                          const std::optional<Tensor>& weight, std::int64_t reduction,
                          std::int64_t ignore_index, const Tensor& total_weight,
                          Tensor& grad_input) {
  const Tensor weights = weight.value_or(Tensor());
  if constexpr (images) {
    check_images(self, target, weights);
    size_output("nll_loss2d", grad_input, self.sizes(), self.options());
  } else {
    shape_outputs<at::meta::structured_nll_loss_backward>(grad_input, grad_output, self, target,
                                                          reference(weights), reduction,
                                                          ignore_index, total_weight);
  }
  loss_backward(grad_output, self, target, weights, reduction, ignore_index, total_weight,
                grad_input);
  return grad_input;
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("nll_loss_forward.output", nll_loss<false>);
  m.impl("nll_loss_backward.grad_input", nll_loss_backward<false>);
  implement<nll_loss<true>>(m, "nll_loss2d_forward", "nll_loss2d_forward.output");
  implement<nll_loss_backward<true>>(m, "nll_loss2d_backward", "nll_loss2d_backward.grad_input");
}

}  // namespace spyre::eager
