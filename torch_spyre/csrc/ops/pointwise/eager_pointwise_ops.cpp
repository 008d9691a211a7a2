// ATen's pointwise ops in terms of the card's. Most are the `.out` kernels of structured ops:
// PyTorch has worked out dtype and size of `out` by then, and the other variants arrive here too.
#include <cmath>
#include <cstdlib>
#include <limits>
#include <tuple>

#include <ATen/native/BinaryOps.h>
#include <ATen/native/TypeProperties.h>
#include <ATen/ops/addr_native.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/eq.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/zeros.h>
#include <c10/core/DefaultDtype.h>
#include <c10/core/ScalarType.h>
#include <torch/library.h>

#include "ops/memory/spyre_copy.h"
#include "ops/pointwise/eager_pointwise_kernels.h"
#include "program/eager_plan.h"
#include "tensor/eager_structured.h"
#include "tensor/spyre_dtypes.h"
#include "tensor/spyre_tensor_impl.h"

namespace spyre::eager {
namespace {

using at::Tensor;
using c10::Scalar;

Tensor& add(const Tensor& self, const Tensor& other, const Scalar& alpha, Tensor& out) {
  const auto common = at::result_type(self, other);
  check_cast(common, out);
  at::native::alpha_check(common, alpha);
  fit(out, self, other);
  if (alpha.equal(1))
    arithmetic(OpFunc::add, out, {self, other}, common);
  else
    arithmetic(OpFunc::axpy, out, {self, other}, common, {element(alpha, common)});
  return out;
}

Tensor& sub(const Tensor& self, const Tensor& other, const Scalar& alpha, Tensor& out) {
  const auto common = at::result_type(self, other);
  at::native::sub_check(self, other);
  check_cast(common, out);
  at::native::alpha_check(common, alpha);
  fit(out, self, other);
  if (alpha.equal(1))
    arithmetic(OpFunc::sub, out, {self, other}, common);
  else
    arithmetic(OpFunc::axpy, out, {self, other}, common, {-element(alpha, common)});
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
  check_cast(common, out);
  fit(out, self);
  if (exponent.equal(2.0))
    arithmetic(OpFunc::square, out, {self}, common);
  else
    arithmetic(OpFunc::pow, out, {self, number(element(exponent, common))}, common);
  return out;
}

Tensor& pow_scalar(const Scalar& self, const Tensor& exponent, Tensor& out) {
  const auto common = at::result_type(self, exponent);
  check_cast(common, out);
  fit(out, exponent);
  arithmetic(OpFunc::pow, out, {number(self), exponent}, common);
  return out;
}

Tensor& clamp(const Tensor& self, const std::optional<Scalar>& low,
              const std::optional<Scalar>& high, Tensor& out) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  at::native::ResultTypeState state = at::native::update_result_type_state(self, {});
  for (const auto& bound : {low, high})
    if (bound) state = at::native::update_result_type_state(*bound, state);
  const auto common = at::native::result_type(state);
  check_cast(common, out);
  fit(out, self);
  const double least = low ? element(*low, common) : -infinity;
  const double most = high ? element(*high, common) : infinity;
  if (std::isnan(least) || std::isnan(most))
    spyre::fill(out, std::numeric_limits<double>::quiet_NaN());
  else
    pointwise(OpFunc::clip, out, {self}, common, {least, most});
  return out;
}

Tensor& clamp_min(const Tensor& self, const Scalar& low, Tensor& out) {
  return clamp(self, low, std::nullopt, out);
}
Tensor& clamp_max(const Tensor& self, const Scalar& high, Tensor& out) {
  return clamp(self, std::nullopt, high, out);
}

Tensor& clamp_tensor(const Tensor& self, const std::optional<Tensor>& low,
                     const std::optional<Tensor>& high, Tensor& out) {
  if (!low || !low->defined()) return binary<OpFunc::minimum>(self, *high, out);
  if (!high || !high->defined()) return binary<OpFunc::maximum>(self, *low, out);
  check_cast(at::result_type(self, *low), out);
  fit(out, self, *low, *high);
  for (const Tensor& input : {self, *low, *high}) at::assert_no_partial_overlap(out, input);
  Tensor above = at::empty(out.sizes(), out.options());  // `out` may be the upper bound
  pointwise(OpFunc::maximum, above, {self, *low}, out.scalar_type());
  pointwise(OpFunc::minimum, out, {above, *high}, out.scalar_type());
  return out;
}

/// PyTorch's own for any device broadcasts everything,
Tensor outer_sum(const Tensor& self, const Tensor& a, const Tensor& b, const Scalar& beta,
                 const Scalar& alpha) {
  if (a.dim() == 1 && b.dim() == 1) self.expand({a.size(0), b.size(0)});  // refuses what cannot be
  return at::native::math_addr(self, a, b, beta, alpha);
}
/// and copies its result into an `out` on any device.
Tensor& addr_out(const Tensor& self, const Tensor& a, const Tensor& b, const Scalar& beta,
                 const Scalar& alpha, Tensor& out) {
  const Tensor result = outer_sum(self, a, b, beta, alpha);
  check_output("addr", out, result.options().dtype(out.scalar_type()));
  check_cast(result.scalar_type(), out);
  resize_to(out, result.sizes());
  for (const Tensor& input : {self, a, b}) at::assert_no_partial_overlap(out, input);
  return out.copy_(result);
}

Tensor abs(const Tensor& self) {
  Tensor out = result_of({self}, self.options());
  return unary<OpFunc::abs>(self, out);
}

Tensor& neg(const Tensor& self, Tensor& out) {
  TORCH_CHECK(self.scalar_type() != at::kBool,
              "Negation, the `-` operator, on a bool tensor is not supported. If you are trying "
              "to invert a mask, use the `~` or `logical_not()` operator instead.");
  return unary<OpFunc::neg>(self, out);
}

Tensor rsub(const Tensor& self, const Tensor& other, const Scalar& alpha) {
  return at::sub(other, self, alpha);
}

Tensor floor_divide(const Tensor& self, const Tensor& other) {
  const Tensor& on_card = is_spyre(self) ? self : other;
  Tensor out = result_of({self, other}, on_card.options().dtype(at::result_type(self, other)));
  return binary<OpFunc::floordivide>(self, other, out);
}
Tensor& floor_divide_(Tensor& self, const Tensor& other) {
  return binary<OpFunc::floordivide>(self, other, self);
}

/// The dtype in which PyTorch would compute.
c10::ScalarType fit_three(const Tensor& self, const Tensor& a, const Tensor& b, const Tensor& out) {
  const c10::ScalarType common = at::native::result_type({self, a, b});
  check_cast(common, out);
  fit(out, self, a, b);
  return common;
}
Tensor& addcmul(const Tensor& self, const Tensor& a, const Tensor& b, const Scalar& value,
                Tensor& out) {
  const auto common = fit_three(self, a, b, out);
  arithmetic(OpFunc::addcmul, out, {self, a, b}, common, {value.toDouble()});
  return out;
}
Tensor& addcdiv(const Tensor& self, const Tensor& a, const Tensor& b, const Scalar& value,
                Tensor& out) {
  TORCH_CHECK(!c10::isIntegralType(a.scalar_type(), /*includeBool=*/true) ||
                  !c10::isIntegralType(b.scalar_type(), /*includeBool=*/true),
              "Integer division with addcdiv is no longer supported: use ",
              "(self + value * torch.trunc(tensor1 / tensor2)) or float tensors.");
  const auto common = fit_three(self, a, b, out);
  pointwise(OpFunc::addcdiv, out, {self, a, b}, common, {value.toDouble()});
  return out;
}
Tensor& lerp_scalar(const Tensor& self, const Tensor& end, const Scalar& weight, Tensor& out) {
  check_cast(self.scalar_type(), out);
  fit(out, self, end);
  pointwise(OpFunc::lerp, out, {self, end, number(weight)}, out.scalar_type());
  return out;
}
Tensor& lerp_tensor(const Tensor& self, const Tensor& end, const Tensor& weight, Tensor& out) {
  check_cast(self.scalar_type(), out);
  fit(out, self, end, weight);
  pointwise(OpFunc::lerp, out, {self, end, weight}, out.scalar_type());
  return out;
}

Tensor& heaviside(const Tensor& self, const Tensor& values, Tensor& out) {
  TORCH_CHECK(self.scalar_type() == values.scalar_type() && self.scalar_type() == out.scalar_type(),
              "heaviside is not yet implemented for tensors with different dtypes.");
  return binary<OpFunc::heaviside>(self, values, out);
}

Tensor& where_out(const Tensor& condition, const Tensor& self, const Tensor& other, Tensor& out) {
  TORCH_CHECK(condition.scalar_type() == at::kBool || condition.scalar_type() == at::kByte,
              "where expected condition to be a boolean tensor, but got a tensor with dtype ",
              condition.scalar_type());
  TORCH_CHECK(out.scalar_type() == at::result_type(self, other), "Expected out type to be ",
              at::result_type(self, other), " but got ", out.scalar_type());
  fit(out, condition, self, other);
  pointwise(OpFunc::where3, out, {condition, self, other}, out.scalar_type());
  return out;
}
Tensor where(const Tensor& condition, const Tensor& self, const Tensor& other) {
  Tensor out =
      result_of({condition, self, other}, condition.options().dtype(at::result_type(self, other)));
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
  const auto expanded = at::expand_inplace(self, mask, "masked_fill_");
  // The value may be an element of what is filled, or an integer too large for it.
  Tensor given = value.is_alias_of(self) ? value.clone() : value;
  if (c10::isIntegralType(self.scalar_type(), /*includeBool=*/false) &&
      c10::isIntegralType(value.scalar_type(), /*includeBool=*/true) &&
      c10::promoteTypes(value.scalar_type(), self.scalar_type()) != self.scalar_type())
    given = number(element(value.item(), self.scalar_type()));
  if (at::has_internal_overlap(self) != at::MemOverlap::Yes) {
    pointwise(OpFunc::where3, self, {*expanded, given, self}, self.scalar_type());
    return self;
  }
  TORCH_WARN("Use of masked_fill_ on expanded tensors is deprecated. Please clone() the tensor ",
             "before performing this operation. This also applies to advanced indexing e.g. ",
             "tensor[mask] = scalar");
  // Elements in one place become one, filled if any of them is.
  const Tensor single = unexpanded(self);
  Tensor any = *expanded;
  for (std::int64_t d = 0; d < self.dim(); ++d)
    if (single.size(d) != self.size(d)) any = any.any(d, /*keepdim=*/true);
  pointwise(OpFunc::where3, single, {any, given, single}, self.scalar_type());
  return self;
}
Tensor& masked_fill_scalar(Tensor& self, const Tensor& mask, const Scalar& value) {
  return masked_fill_tensor(self, mask, number(element(value, self.scalar_type())));
}

template <OpFunc op>
Tensor test(const Tensor& self) {
  Tensor out = result_of({self}, self.options().dtype(at::kBool));
  pointwise(op, out, {self}, self.scalar_type());
  return out;
}

Tensor& signbit(const Tensor& self, Tensor& out) {
  TORCH_CHECK(out.scalar_type() == at::kBool, "signbit does not support non-boolean outputs.");
  fit(out, self);
  pointwise(OpFunc::signbit, out, {self}, self.scalar_type());
  return out;
}
Tensor& logical_not_out(const Tensor& self, Tensor& out) {
  fit(out, self);
  pointwise(OpFunc::logicalnot, out, {self}, self.scalar_type());
  return out;
}
Tensor logical_not(const Tensor& self) {
  Tensor out = result_of({self}, self.options().dtype(at::kBool));
  return logical_not_out(self, out);
}

/// Whether x is Infinity, or -Infinity: integers never are.
template <int sign>
Tensor& is_infinity(const Tensor& self, Tensor& out) {
  TORCH_CHECK(out.scalar_type() == at::kBool, sign > 0 ? "isposinf" : "isneginf",
              " does not support non-boolean outputs.");
  fit(out, self);
  if (c10::isIntegralType(self.scalar_type(), /*includeBool=*/true))
    spyre::fill(out, false);
  else
    pointwise(OpFunc::equal, out, {self, number(sign * std::numeric_limits<double>::infinity())},
              self.scalar_type());
  return out;
}

/// The largest number of a dtype, as the card holds it: bfloat16 reaches no further than DLFloat16.
double largest(c10::ScalarType dtype) {
  constexpr double kLargestDlFloat16 = 0x1.FE8p32;
  if (dtype == at::kHalf) return std::numeric_limits<c10::Half>::max();
  if (dtype == at::kBFloat16) return kLargestDlFloat16;
  return std::numeric_limits<float>::max();
}
Tensor& nan_to_num(const Tensor& self, std::optional<double> nan, std::optional<double> above,
                   std::optional<double> below, Tensor& out) {
  TORCH_CHECK(self.scalar_type() == out.scalar_type(),
              "nan_to_num: dtype of out: ", out.scalar_type(),
              " should be same as input: ", self.scalar_type());
  fit(out, self);
  const double limit = largest(self.scalar_type());
  pointwise(OpFunc::nan_to_num, out, {self}, self.scalar_type(),
            {nan.value_or(0), above.value_or(limit), below.value_or(-limit)});
  return out;
}

Tensor& round_decimals(const Tensor& self, std::int64_t decimals, Tensor& out) {
  check_same_dtype(self, out);
  if (decimals == 0) return unary<OpFunc::round>(self, out);
  fit(out, self);
  const double power = std::pow(10.0, std::abs(decimals));
  pointwise(OpFunc::rounddecimals, out, {self}, self.scalar_type(),
            {decimals > 0 ? power : 1, decimals > 0 ? 1 : power});
  return out;
}

std::tuple<Tensor&, Tensor&> frexp(const Tensor& self, Tensor& mantissa, Tensor& exponent) {
  TORCH_CHECK(self.is_floating_point(),
              "torch.frexp() only supports floating-point dtypes, got: ", self.scalar_type());
  TORCH_CHECK(mantissa.scalar_type() == self.scalar_type(), "torch.frexp() expects mantissa to ",
              "have dtype ", self.scalar_type(), " but got ", mantissa.scalar_type());
  TORCH_CHECK(exponent.scalar_type() == at::kInt, "torch.frexp() expects exponent to have int ",
              "dtype but got ", exponent.scalar_type());
  unary<OpFunc::frexpmantissa>(self, mantissa);
  fit(exponent, self);
  pointwise(OpFunc::frexpexponent, exponent, {self}, self.scalar_type());
  return {mantissa, exponent};
}

/// Options of a result that is floating even for integers.
c10::TensorOptions floating(const Tensor& self) {
  const bool whole = c10::isIntegralType(self.scalar_type(), /*includeBool=*/true);
  return whole ? self.options().dtype(c10::get_default_dtype()) : self.options();
}

Tensor& angle_out(const Tensor& self, Tensor& out) { return unary<OpFunc::angle>(self, out); }
Tensor angle(const Tensor& self) {
  Tensor out = at::empty_like(self, floating(self));
  return angle_out(self, out);
}

Tensor& logit_out(const Tensor& self, std::optional<double> eps, Tensor& out) {
  check_cast(at::kFloat, out);
  fit(out, self);
  pointwise(OpFunc::logit, out, {self}, self.scalar_type(), {eps.value_or(-1)});
  return out;
}
Tensor logit(const Tensor& self, std::optional<double> eps) {
  Tensor out = at::empty_like(self, floating(self));
  return logit_out(self, eps, out);
}
Tensor& logit_(Tensor& self, std::optional<double> eps) { return logit_out(self, eps, self); }
Tensor& logit_backward(const Tensor& grad, const Tensor& self, std::optional<double> eps,
                       Tensor& out) {
  check_same_dtype(self, out);
  fit(out, grad, self);
  pointwise(OpFunc::logitbwd, out, {grad, self}, self.scalar_type(), {eps.value_or(-1)});
  return out;
}

bool equal(const Tensor& self, const Tensor& other) {
  TORCH_CHECK(self.device() == other.device(),
              "Expected all tensors to be on the same device, but found ", self.device(), " and ",
              other.device(), ".");
  return self.sizes() == other.sizes() && at::eq(self, other).all().item<bool>();
}

/// Zeros that autograd uses as a gradient that does not matter.
Tensor efficient_zeros(c10::IntArrayRef size, std::optional<c10::ScalarType> dtype,
                       std::optional<c10::Layout> layout, std::optional<c10::Device> device,
                       std::optional<bool> pin_memory) {
  return at::zeros(size, dtype, layout, device, pin_memory);
}

Tensor& bitwise_not(const Tensor& self, Tensor& out) {
  check_same_dtype(self, out);
  fit(out, self);
  pointwise(self.scalar_type() == at::kBool ? OpFunc::logicalnot : OpFunc::bitwisenot, out, {self},
            self.scalar_type());
  return out;
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("abs", &abs);
  m.impl("abs.out", &unary<OpFunc::abs>);
  m.impl("neg.out", &neg);
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
  m.impl("signbit.out", &signbit);
  m.impl("logical_not", &logical_not);
  m.impl("logical_not.out", &logical_not_out);
  m.impl("bitwise_not.out", &bitwise_not);
  m.impl("isnan", &test<OpFunc::isnan>);
  m.impl("isinf", &test<OpFunc::isinf>);
  m.impl("isfinite", &test<OpFunc::isfinite>);
  m.impl("isposinf.out", &is_infinity<1>);
  m.impl("isneginf.out", &is_infinity<-1>);
  m.impl("nan_to_num.out", &nan_to_num);
  m.impl("round.decimals_out", &round_decimals);
  m.impl("frexp.Tensor_out", &frexp);
  m.impl("angle", &angle);
  m.impl("angle.out", &angle_out);
  m.impl("logit", &logit);
  m.impl("logit.out", &logit_out);
  m.impl("logit_", &logit_);
  m.impl("logit_backward.grad_input", &logit_backward);
  m.impl("erfinv.out", &unary<OpFunc::erfinv>);
  m.impl("sinc.out", &unary<OpFunc::sinc>);
  m.impl("lgamma.out", &unary<OpFunc::lgamma>);
  m.impl("digamma.out", &unary<OpFunc::digamma>);
  m.impl("i0.out", &unary<OpFunc::i0>);
  m.impl("special_i0e.out", &unary<OpFunc::i0e>);
  m.impl("special_i1.out", &unary<OpFunc::i1>);
  m.impl("special_i1e.out", &unary<OpFunc::i1e>);
  m.impl("special_modified_bessel_i0.out", &unary<OpFunc::i0>);
  m.impl("special_modified_bessel_i1.out", &unary<OpFunc::i1>);
  m.impl("special_entr.out", &unary<OpFunc::entr>);
  m.impl("special_erfcx.out", &unary<OpFunc::erfcx>);
  m.impl("special_log_ndtr.out", &unary<OpFunc::log_ndtr>);
  m.impl("clamp.out", &clamp);
  m.impl("clamp_min.out", &clamp_min);
  m.impl("clamp_max.out", &clamp_max);
  m.impl("clamp.Tensor_out", &clamp_tensor);

  m.impl("add.out", &add);
  m.impl("sub.out", &sub);
  m.impl("rsub.Tensor", &rsub);
  m.impl("addr", &outer_sum);
  m.impl("addr.out", &addr_out);
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
  m.impl("hypot.out", &binary<OpFunc::hypot>);
  m.impl("copysign.out", &binary_float<OpFunc::copysign>);
  m.impl("logaddexp.out", &binary<OpFunc::logaddexp>);
  m.impl("logaddexp2.out", &binary<OpFunc::logaddexp2>);
  m.impl("xlogy.OutTensor", &binary_float<OpFunc::xlogy>);
  m.impl("special_xlog1py.out", &binary_float<OpFunc::xlog1py>);
  m.impl("heaviside.out", &heaviside);
  m.impl("gcd.out", &binary<OpFunc::gcd>);
  m.impl("lcm.out", &binary<OpFunc::lcm>);
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
  m.impl("logical_and", &compared<OpFunc::logicaland>);
  m.impl("logical_and.out", &compare<OpFunc::logicaland>);
  m.impl("logical_or", &compared<OpFunc::logicalor>);
  m.impl("logical_or.out", &compare<OpFunc::logicalor>);
  m.impl("logical_xor", &compared<OpFunc::logicalxor>);
  m.impl("logical_xor.out", &compare<OpFunc::logicalxor>);

  m.impl("eq.Tensor_out", &compare<OpFunc::equal>);
  m.impl("ne.Tensor_out", &compare<OpFunc::notequal>);
  m.impl("gt.Tensor_out", &compare<OpFunc::greaterthan>);
  m.impl("ge.Tensor_out", &compare<OpFunc::greaterequal>);
  m.impl("lt.Tensor_out", &compare<OpFunc::lesserthan>);
  m.impl("le.Tensor_out", &compare<OpFunc::lesserequal>);
  m.impl("eq.Scalar_out", &compare_scalar<OpFunc::equal>);
  m.impl("ne.Scalar_out", &compare_scalar<OpFunc::notequal>);
  m.impl("gt.Scalar_out", &compare_scalar<OpFunc::greaterthan>);
  m.impl("ge.Scalar_out", &compare_scalar<OpFunc::greaterequal>);
  m.impl("lt.Scalar_out", &compare_scalar<OpFunc::lesserthan>);
  m.impl("le.Scalar_out", &compare_scalar<OpFunc::lesserequal>);
  m.impl("equal", &equal);
  m.impl("where.self", &where);
  m.impl("where.self_out", &where_out);
  m.impl("masked_fill_.Scalar", &masked_fill_scalar);
  m.impl("masked_fill_.Tensor", &masked_fill_tensor);
  m.impl("_efficientzerotensor", &efficient_zeros);
}

}  // namespace spyre::eager
