// Activations and their derivatives in terms of the card's pointwise ops.
#include <tuple>
#include <utility>

#include <ATen/native/Gelu.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/library.h>

#include "ops/pointwise/eager_pointwise_kernels.h"
#include "tensor/eager_structured.h"

namespace spyre::eager {
namespace {

using at::Tensor;
using c10::Scalar;

Tensor& clip(const Tensor& self, const Scalar& low, const Scalar& high, Tensor& out) {
  TORCH_CHECK(self.scalar_type() != at::kBool, "Bool inputs not supported for hardtanh");
  return activation(OpFunc::clip, self, out, {low.toDouble(), high.toDouble()});
}
Tensor& relu(const Tensor& self, Tensor& out) {
  TORCH_CHECK(self.scalar_type() != at::kBool, "Boolean inputs not supported for relu");
  return activation(OpFunc::relufwd, self, out);
}

Tensor& gelu(const Tensor& self, std::string_view approximate, Tensor& out) {
  const bool tanh = at::native::get_gelutype_enum(approximate) == at::native::GeluType::Tanh;
  return activation(tanh ? OpFunc::gelutanh : OpFunc::geluerf, self, out);
}
/// An activation whose parameters are the constants of the card's op.
template <OpFunc op, class... Parameters>
Tensor& with_constants(const Tensor& self, Parameters... parameters, Tensor& out) {
  return activation(op, self, out, {parameters.toDouble()...});
}

Tensor& threshold(const Tensor& self, const Scalar& limit, const Scalar& value, Tensor& out) {
  const auto dtype = self.scalar_type();
  return activation(OpFunc::threshold, self, out, {element(limit, dtype), element(value, dtype)});
}

/// The second result is what the CPU's backward op would want to have kept; the card's does not.
std::tuple<Tensor&, Tensor&> log_sigmoid(const Tensor& self, Tensor& out, Tensor& buffer) {
  if (!buffer.defined()) buffer = at::empty({0}, self.options());
  return {activation(OpFunc::logsigmoid, self, out), buffer};
}

/// The two halves along `dim`, of the input or of its gradient.
std::pair<Tensor, Tensor> halves(const Tensor& whole, std::int64_t dim) {
  const std::int64_t size = whole.size(dim) / 2;
  return {whole.narrow(dim, 0, size), whole.narrow(dim, size, size)};
}

Tensor& glu(const Tensor& self, std::int64_t dim, Tensor& out) {
  const auto [value, gate] = halves(self, dim);
  fit_like(self, out, value, gate);
  pointwise(OpFunc::glu, out, {value, gate}, self.scalar_type());
  return out;
}
Tensor& glu_backward(const Tensor& grad, const Tensor& self, std::int64_t dim, Tensor& out) {
  TORCH_CHECK(self.dim() > 0, "glu does not support 0-dimensional tensors");
  TORCH_CHECK(self.size(dim) % 2 == 0, "Halving dimension must be even, but dimension ", dim,
              " is size ", self.size(dim));
  size_output("glu_backward", out, self.sizes(), self.options());
  const auto [value, gate] = halves(self, dim);
  const auto [value_grad, gate_grad] = halves(out, dim);
  pointwise(OpFunc::glu, value_grad, {grad, gate}, self.scalar_type());
  pointwise(OpFunc::glubwd, gate_grad, {grad, value, gate}, self.scalar_type());
  return out;
}
Tensor prelu(const Tensor& self, const Tensor& weight) {
  Tensor out = at::empty_like(self);
  pointwise(OpFunc::prelu, out, {self, weight}, self.scalar_type());
  return out;
}
std::tuple<Tensor, Tensor> prelu_backward(const Tensor& grad, const Tensor& self,
                                          const Tensor& weight) {
  Tensor self_grad = at::empty_like(self);
  Tensor weight_grad = at::empty(self.sizes(), weight.options());
  pointwise(OpFunc::prelubwd, self_grad, {grad, self, weight}, self.scalar_type());
  pointwise(OpFunc::preluweightbwd, weight_grad, {grad, self}, self.scalar_type());
  return {self_grad, weight_grad};
}

// ------------------------------------------------------------------------------------- derivatives

Tensor& gelu_backward(const Tensor& grad, const Tensor& self, std::string_view approximate,
                      Tensor& out) {
  const bool tanh = at::native::get_gelutype_enum(approximate) == at::native::GeluType::Tanh;
  return derivative(tanh ? OpFunc::gelutanhbwd : OpFunc::geluerfbwd, grad, self, out);
}

/// A derivative whose parameters are the constants of the card's op.
template <OpFunc op, class... Parameters>
Tensor& derivative_with(const Tensor& grad, const Tensor& self, Parameters... parameters,
                        Tensor& out) {
  return derivative(op, grad, self, out, {parameters.toDouble()...});
}

Tensor& leaky_relu_backward(const Tensor& grad, const Tensor& self, const Scalar& slope, bool,
                            Tensor& out) {
  return derivative(OpFunc::leakyrelubwd, grad, self, out, {slope.toDouble()});
}

Tensor& elu_backward(const Tensor& grad, const Scalar& alpha, const Scalar& scale,
                     const Scalar& input_scale, bool is_result, const Tensor& saved, Tensor& out) {
  return derivative(is_result ? OpFunc::elubwdresult : OpFunc::elubwd, grad, saved, out,
                    {alpha.toDouble(), scale.toDouble(), input_scale.toDouble()});
}

Tensor& log_sigmoid_backward(const Tensor& grad, const Tensor& self, const Tensor&, Tensor& out) {
  if (!out.defined()) out = at::empty_like(grad);
  return backward<OpFunc::logsigmoidbwd>(grad, self, out);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  using S = const Scalar&;
  m.impl("silu.out", &activated<OpFunc::silu>);
  m.impl("mish.out", &activated<OpFunc::mish>);
  m.impl("hardswish.out", &activated<OpFunc::hardswish>);
  m.impl("hardsigmoid.out", &activated<OpFunc::hardsigmoid>);
  m.impl("hardswish", functional<activated<OpFunc::hardswish>>);
  m.impl("hardswish_", in_place<activated<OpFunc::hardswish>>);
  implement<clip>(m, "hardtanh", "hardtanh.out");
  m.impl("hardtanh_", in_place<clip>);
  m.impl("relu", functional<relu>);
  m.impl("relu_", in_place<relu>);
  m.impl("gelu.out", &gelu);
  m.impl("leaky_relu.out", with_constants<OpFunc::leakyrelu, S>);
  m.impl("elu.out", with_constants<OpFunc::elu, S, S, S>);
  m.impl("softplus.out", with_constants<OpFunc::softplus, S, S>);
  m.impl("threshold.out", &threshold);
  m.impl("hardshrink.out", with_constants<OpFunc::hardshrink, S>);
  m.impl("softshrink.out", with_constants<OpFunc::softshrink, S>);
  implement<log_sigmoid>(m, "log_sigmoid_forward", "log_sigmoid_forward.output");
  m.impl("glu.out", &glu);
  m.impl("_prelu_kernel", &prelu);

  m.impl("sigmoid_backward.grad_input", &backward<OpFunc::sigmoidbwd>);
  m.impl("tanh_backward.grad_input", &backward<OpFunc::tanhbwd>);
  m.impl("silu_backward.grad_input", &backward<OpFunc::silubwd>);
  m.impl("gelu_backward.grad_input", &gelu_backward);
  m.impl("threshold_backward.grad_input", derivative_with<OpFunc::thresholdbwd, S>);
  m.impl("leaky_relu_backward.grad_input", &leaky_relu_backward);
  m.impl("elu_backward.grad_input", &elu_backward);
  m.impl("softplus_backward.grad_input", derivative_with<OpFunc::softplusbwd, S, S>);
  m.impl("hardsigmoid_backward.grad_input", &backward<OpFunc::hardsigmoidbwd>);
  m.impl("hardshrink_backward.grad_input", derivative_with<OpFunc::shrinkbwd, S>);
  m.impl("softshrink_backward.grad_input", derivative_with<OpFunc::shrinkbwd, S>);
  m.impl("hardswish_backward", functional<backward<OpFunc::hardswishbwd>>);
  m.impl("mish_backward", functional<backward<OpFunc::mishbwd>>);
  implement<derivative_with<OpFunc::hardtanhbwd, S, S>>(m, "hardtanh_backward",
                                                        "hardtanh_backward.grad_input");
  implement<log_sigmoid_backward>(m, "log_sigmoid_backward", "log_sigmoid_backward.grad_input");
  implement<glu_backward>(m, "glu_backward", "glu_backward.grad_input");
  m.impl("_prelu_kernel_backward", &prelu_backward);
}

}  // namespace spyre::eager
