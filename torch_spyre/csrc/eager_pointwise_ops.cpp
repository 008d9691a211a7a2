// ATen's pointwise ops in terms of the card's. Most are the `.out` kernels of structured ops:
// PyTorch has worked out dtype and size of `out` by then, and the other variants arrive here too.
#include <limits>

#include <ATen/ExpandUtils.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/result_type.h>
#include <ATen/ops/scalar_tensor.h>
#include <c10/core/ScalarType.h>
#include <torch/library.h>

#include "eager_plan.h"
#include "eager_pointwise.h"
#include "spyre_dtypes.h"
#include "spyre_tensor_impl.h"

namespace spyre::eager {
namespace {

using at::Tensor;
using c10::Scalar;

Tensor number(const Scalar& value) {
  Tensor tensor = at::scalar_tensor(value, at::device(at::kCPU));
  tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
  return tensor;
}

/// Structured ops come with `out` in its size; for the others, and for out=, it is made so.
void resize(Tensor& out, c10::IntArrayRef size) {
  if (out.sizes() != size) out.resize_(size);
}

template <OpFunc op>
Tensor& unary(const Tensor& self, Tensor& out) {
  resize(out, self.sizes());
  pointwise(op, out, {self}, self.scalar_type());
  return out;
}

template <OpFunc op>
Tensor& binary(const Tensor& self, const Tensor& other, Tensor& out) {
  resize(out, at::infer_size(self.sizes(), other.sizes()));
  pointwise(op, out, {self, other}, at::result_type(self, other));
  return out;
}

template <OpFunc op>
Tensor& binary_scalar(const Tensor& self, const Scalar& other, Tensor& out) {
  pointwise(op, out, {self, number(other)}, at::result_type(self, other));
  return out;
}

/// a op b in a floating dtype, whatever the inputs are.
template <OpFunc op>
Tensor& binary_float(const Tensor& self, const Tensor& other, Tensor& out) {
  pointwise(op, out, {self, other}, c10::ScalarType::Float);
  return out;
}

Tensor& add(const Tensor& self, const Tensor& other, const Scalar& alpha, Tensor& out) {
  const auto common = at::result_type(self, other);
  if (alpha.equal(1))
    pointwise(OpFunc::add, out, {self, other}, common);
  else
    pointwise(OpFunc::axpy, out, {self, other}, common, {alpha.toDouble()});
  return out;
}

Tensor& sub(const Tensor& self, const Tensor& other, const Scalar& alpha, Tensor& out) {
  const auto common = at::result_type(self, other);
  if (alpha.equal(1))
    pointwise(OpFunc::sub, out, {self, other}, common);
  else
    pointwise(OpFunc::axpy, out, {self, other}, common, {-alpha.toDouble()});
  return out;
}

Tensor& div_mode(const Tensor& self, const Tensor& other, std::optional<std::string_view> mode,
                 Tensor& out) {
  if (!mode) return binary_float<OpFunc::realdiv>(self, other, out);
  if (*mode == "floor") return binary<OpFunc::floordivide>(self, other, out);
  return binary<OpFunc::truncdivide>(self, other, out);
}

Tensor& pow_tensor_scalar(const Tensor& self, const Scalar& exponent, Tensor& out) {
  const auto common = at::result_type(self, exponent);
  if (exponent.equal(2.0))
    pointwise(OpFunc::square, out, {self}, common);
  else
    pointwise(OpFunc::pow, out, {self, number(exponent)}, common);
  return out;
}

Tensor& pow_scalar(const Scalar& self, const Tensor& exponent, Tensor& out) {
  pointwise(OpFunc::pow, out, {number(self), exponent}, at::result_type(self, exponent));
  return out;
}

Tensor& clamp(const Tensor& self, const std::optional<Scalar>& low,
              const std::optional<Scalar>& high, Tensor& out) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  pointwise(OpFunc::clip, out, {self}, out.scalar_type(),
            {low ? low->toDouble() : -infinity, high ? high->toDouble() : infinity});
  return out;
}

Tensor& clamp_min(const Tensor& self, const Scalar& low, Tensor& out) {
  return clamp(self, low, std::nullopt, out);
}
Tensor& clamp_max(const Tensor& self, const Scalar& high, Tensor& out) {
  return clamp(self, std::nullopt, high, out);
}

Tensor floor_divide(const Tensor& self, const Tensor& other) {
  const Tensor& on_card = is_spyre(self) ? self : other;
  Tensor out = at::empty(at::infer_size(self.sizes(), other.sizes()),
                         on_card.options().dtype(at::result_type(self, other)));
  return binary<OpFunc::floordivide>(self, other, out);
}
Tensor& floor_divide_(Tensor& self, const Tensor& other) {
  return binary<OpFunc::floordivide>(self, other, self);
}

Tensor hardswish(const Tensor& self) {
  Tensor out = at::empty_like(self);
  return unary<OpFunc::hardswish>(self, out);
}
Tensor& hardswish_(Tensor& self) { return unary<OpFunc::hardswish>(self, self); }

Tensor& hardtanh_out(const Tensor& self, const Scalar& low, const Scalar& high, Tensor& out) {
  resize(out, self.sizes());
  return clamp(self, low, high, out);
}
Tensor hardtanh(const Tensor& self, const Scalar& low, const Scalar& high) {
  Tensor out = at::empty_like(self);
  return clamp(self, low, high, out);
}
Tensor& hardtanh_(Tensor& self, const Scalar& low, const Scalar& high) {
  return clamp(self, low, high, self);
}

Tensor relu(const Tensor& self) {
  Tensor out = at::empty_like(self);
  pointwise(OpFunc::relufwd, out, {self}, self.scalar_type());
  return out;
}
Tensor& relu_(Tensor& self) {
  pointwise(OpFunc::relufwd, self, {self}, self.scalar_type());
  return self;
}

Tensor& gelu(const Tensor& self, std::string_view approximate, Tensor& out) {
  pointwise(approximate == "tanh" ? OpFunc::gelutanh : OpFunc::geluerf, out, {self},
            self.scalar_type());
  return out;
}
Tensor& gelu_backward(const Tensor& grad, const Tensor& self, std::string_view approximate,
                      Tensor& out) {
  pointwise(approximate == "tanh" ? OpFunc::gelutanhbwd : OpFunc::geluerfbwd, out, {grad, self},
            self.scalar_type());
  return out;
}

template <OpFunc op>
Tensor& backward(const Tensor& grad, const Tensor& saved, Tensor& out) {
  pointwise(op, out, {grad, saved}, saved.scalar_type());
  return out;
}

Tensor& threshold_backward(const Tensor& grad, const Tensor& self, const Scalar& threshold,
                           Tensor& out) {
  pointwise(OpFunc::thresholdbwd, out, {grad, self}, self.scalar_type(), {threshold.toDouble()});
  return out;
}

Tensor& leaky_relu(const Tensor& self, const Scalar& slope, Tensor& out) {
  pointwise(OpFunc::leakyrelu, out, {self}, self.scalar_type(), {slope.toDouble()});
  return out;
}

Tensor& elu(const Tensor& self, const Scalar& alpha, const Scalar& scale, const Scalar& input_scale,
            Tensor& out) {
  pointwise(OpFunc::elu, out, {self}, self.scalar_type(),
            {alpha.toDouble(), scale.toDouble(), input_scale.toDouble()});
  return out;
}

Tensor& softplus(const Tensor& self, const Scalar& beta, const Scalar& threshold, Tensor& out) {
  pointwise(OpFunc::softplus, out, {self}, self.scalar_type(),
            {beta.toDouble(), threshold.toDouble()});
  return out;
}

Tensor& threshold(const Tensor& self, const Scalar& limit, const Scalar& value, Tensor& out) {
  pointwise(OpFunc::threshold, out, {self}, self.scalar_type(),
            {limit.toDouble(), value.toDouble()});
  return out;
}

Tensor& addcmul(const Tensor& self, const Tensor& a, const Tensor& b, const Scalar& value,
                Tensor& out) {
  pointwise(OpFunc::addcmul, out, {self, a, b}, out.scalar_type(), {value.toDouble()});
  return out;
}
Tensor& addcdiv(const Tensor& self, const Tensor& a, const Tensor& b, const Scalar& value,
                Tensor& out) {
  pointwise(OpFunc::addcdiv, out, {self, a, b}, out.scalar_type(), {value.toDouble()});
  return out;
}
Tensor& lerp_scalar(const Tensor& self, const Tensor& end, const Scalar& weight, Tensor& out) {
  pointwise(OpFunc::lerp, out, {self, end, number(weight)}, out.scalar_type());
  return out;
}
Tensor& lerp_tensor(const Tensor& self, const Tensor& end, const Tensor& weight, Tensor& out) {
  pointwise(OpFunc::lerp, out, {self, end, weight}, out.scalar_type());
  return out;
}

Tensor& where_out(const Tensor& condition, const Tensor& self, const Tensor& other, Tensor& out) {
  TORCH_CHECK(condition.scalar_type() == at::kBool || condition.scalar_type() == at::kByte,
              "where expected condition to be a boolean tensor, but got a tensor with dtype ",
              condition.scalar_type());
  const auto size = at::infer_size(at::infer_size(condition.sizes(), self.sizes()), other.sizes());
  resize(out, size);
  pointwise(OpFunc::where3, out, {condition, self, other}, out.scalar_type());
  return out;
}
Tensor where(const Tensor& condition, const Tensor& self, const Tensor& other) {
  const auto size = at::infer_size(at::infer_size(condition.sizes(), self.sizes()), other.sizes());
  Tensor out = at::empty(size, condition.options().dtype(at::result_type(self, other)));
  return where_out(condition, self, other, out);
}

Tensor& masked_fill_tensor(Tensor& self, const Tensor& mask, const Tensor& value) {
  TORCH_CHECK(value.dim() == 0,
              "masked_fill_ only supports a 0-dimensional value tensor, but got "
              "tensor with ",
              value.dim(), " dimension(s).");
  TORCH_CHECK(mask.scalar_type() == at::kBool,
              "masked_fill_ only supports boolean masks, but got "
              "mask with dtype ",
              mask.scalar_type());
  pointwise(OpFunc::where3, self, {mask, value, self}, self.scalar_type());
  return self;
}
Tensor& masked_fill_scalar(Tensor& self, const Tensor& mask, const Scalar& value) {
  return masked_fill_tensor(self, mask, number(value));
}

Tensor isnan(const Tensor& self) {
  Tensor out = at::empty_like(self, self.options().dtype(at::kBool));
  pointwise(OpFunc::isnan, out, {self}, self.scalar_type());
  return out;
}

Tensor& bitwise_not(const Tensor& self, Tensor& out) {
  pointwise(self.scalar_type() == at::kBool ? OpFunc::logicalnot : OpFunc::bitwisenot, out, {self},
            self.scalar_type());
  return out;
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("abs.out", &unary<OpFunc::abs>);
  m.impl("neg.out", &unary<OpFunc::neg>);
  m.impl("sgn.out", &unary<OpFunc::sign>);
  m.impl("sign.out", &unary<OpFunc::sign>);
  m.impl("exp.out", &unary<OpFunc::exp>);
  m.impl("exp2.out", &unary<OpFunc::exp2>);
  m.impl("expm1.out", &unary<OpFunc::expm1>);
  m.impl("log.out", &unary<OpFunc::log>);
  m.impl("log2.out", &unary<OpFunc::log2>);
  m.impl("log10.out", &unary<OpFunc::log10>);
  m.impl("log1p.out", &unary<OpFunc::log1p>);
  m.impl("sqrt.out", &unary<OpFunc::sqrt>);
  m.impl("rsqrt.out", &unary<OpFunc::rsqrt>);
  m.impl("reciprocal.out", &unary<OpFunc::reciprocal>);
  m.impl("sin.out", &unary<OpFunc::sin>);
  m.impl("cos.out", &unary<OpFunc::cos>);
  m.impl("tan.out", &unary<OpFunc::tan>);
  m.impl("asin.out", &unary<OpFunc::asin>);
  m.impl("acos.out", &unary<OpFunc::acos>);
  m.impl("atan.out", &unary<OpFunc::atan>);
  m.impl("sinh.out", &unary<OpFunc::sinh>);
  m.impl("cosh.out", &unary<OpFunc::cosh>);
  m.impl("asinh.out", &unary<OpFunc::asinh>);
  m.impl("acosh.out", &unary<OpFunc::acosh>);
  m.impl("atanh.out", &unary<OpFunc::atanh>);
  m.impl("tanh.out", &unary<OpFunc::tanh>);
  m.impl("sigmoid.out", &unary<OpFunc::sigmoid>);
  m.impl("erf.out", &unary<OpFunc::erf>);
  m.impl("erfc.out", &unary<OpFunc::erfc>);
  m.impl("floor.out", &unary<OpFunc::floor>);
  m.impl("ceil.out", &unary<OpFunc::ceil>);
  m.impl("trunc.out", &unary<OpFunc::trunc>);
  m.impl("round.out", &unary<OpFunc::round>);
  m.impl("frac.out", &unary<OpFunc::frac>);
  m.impl("signbit.out", &unary<OpFunc::signbit>);
  m.impl("silu.out", &unary<OpFunc::silu>);
  m.impl("mish.out", &unary<OpFunc::mish>);
  m.impl("hardswish.out", &unary<OpFunc::hardswish>);
  m.impl("hardsigmoid.out", &unary<OpFunc::hardsigmoid>);
  m.impl("logical_not.out", &unary<OpFunc::logicalnot>);
  m.impl("bitwise_not.out", &bitwise_not);
  m.impl("isnan", &isnan);
  m.impl("hardswish", &hardswish);
  m.impl("hardswish_", &hardswish_);
  m.impl("hardtanh", &hardtanh);
  m.impl("hardtanh.out", &hardtanh_out);
  m.impl("hardtanh_", &hardtanh_);
  m.impl("relu", &relu);
  m.impl("relu_", &relu_);
  m.impl("gelu.out", &gelu);
  m.impl("leaky_relu.out", &leaky_relu);
  m.impl("elu.out", &elu);
  m.impl("softplus.out", &softplus);
  m.impl("threshold.out", &threshold);
  m.impl("clamp.out", &clamp);
  m.impl("clamp_min.out", &clamp_min);
  m.impl("clamp_max.out", &clamp_max);

  m.impl("add.out", &add);
  m.impl("sub.out", &sub);
  m.impl("mul.out", &binary<OpFunc::mul>);
  m.impl("div.out", &binary_float<OpFunc::realdiv>);
  m.impl("div.out_mode", &div_mode);
  m.impl("floor_divide", &floor_divide);
  m.impl("floor_divide_.Tensor", &floor_divide_);
  m.impl("floor_divide.out", &binary<OpFunc::floordivide>);
  m.impl("remainder.Tensor_out", &binary<OpFunc::remainder>);
  m.impl("fmod.Tensor_out", &binary<OpFunc::fmod>);
  m.impl("maximum.out", &binary<OpFunc::maximum>);
  m.impl("minimum.out", &binary<OpFunc::minimum>);
  m.impl("fmax.out", &binary<OpFunc::fmax>);
  m.impl("fmin.out", &binary<OpFunc::fmin>);
  m.impl("clamp_min.Tensor_out", &binary<OpFunc::maximum>);
  m.impl("clamp_max.Tensor_out", &binary<OpFunc::minimum>);
  m.impl("atan2.out", &binary_float<OpFunc::atan2>);
  m.impl("hypot.out", &binary_float<OpFunc::hypot>);
  m.impl("copysign.out", &binary_float<OpFunc::copysign>);
  m.impl("pow.Tensor_Tensor_out", &binary<OpFunc::pow>);
  m.impl("pow.Tensor_Scalar_out", &pow_tensor_scalar);
  m.impl("pow.Scalar_out", &pow_scalar);
  m.impl("addcmul.out", &addcmul);
  m.impl("addcdiv.out", &addcdiv);
  m.impl("lerp.Scalar_out", &lerp_scalar);
  m.impl("lerp.Tensor_out", &lerp_tensor);
  m.impl("bitwise_and.Tensor_out", &binary<OpFunc::bitwiseand>);
  m.impl("bitwise_or.Tensor_out", &binary<OpFunc::bitwiseor>);
  m.impl("bitwise_xor.Tensor_out", &binary<OpFunc::bitwisexor>);
  m.impl("bitwise_left_shift.Tensor_out", &binary<OpFunc::shiftleft>);
  m.impl("bitwise_right_shift.Tensor_out", &binary<OpFunc::shiftright>);
  m.impl("logical_and.out", &binary<OpFunc::logicaland>);
  m.impl("logical_or.out", &binary<OpFunc::logicalor>);
  m.impl("logical_xor.out", &binary<OpFunc::logicalxor>);

  m.impl("eq.Tensor_out", &binary<OpFunc::equal>);
  m.impl("ne.Tensor_out", &binary<OpFunc::notequal>);
  m.impl("gt.Tensor_out", &binary<OpFunc::greaterthan>);
  m.impl("ge.Tensor_out", &binary<OpFunc::greaterequal>);
  m.impl("lt.Tensor_out", &binary<OpFunc::lesserthan>);
  m.impl("le.Tensor_out", &binary<OpFunc::lesserequal>);
  m.impl("eq.Scalar_out", &binary_scalar<OpFunc::equal>);
  m.impl("ne.Scalar_out", &binary_scalar<OpFunc::notequal>);
  m.impl("gt.Scalar_out", &binary_scalar<OpFunc::greaterthan>);
  m.impl("ge.Scalar_out", &binary_scalar<OpFunc::greaterequal>);
  m.impl("lt.Scalar_out", &binary_scalar<OpFunc::lesserthan>);
  m.impl("le.Scalar_out", &binary_scalar<OpFunc::lesserequal>);
  m.impl("where.self", &where);
  m.impl("where.self_out", &where_out);
  m.impl("masked_fill_.Scalar", &masked_fill_scalar);
  m.impl("masked_fill_.Tensor", &masked_fill_tensor);

  m.impl("sigmoid_backward.grad_input", &backward<OpFunc::sigmoidbwd>);
  m.impl("tanh_backward.grad_input", &backward<OpFunc::tanhbwd>);
  m.impl("silu_backward.grad_input", &backward<OpFunc::silubwd>);
  m.impl("gelu_backward.grad_input", &gelu_backward);
  m.impl("threshold_backward.grad_input", &threshold_backward);
}

}  // namespace spyre::eager
