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
#include "tensor/spyre_tensor_impl.h"

namespace spyre::eager {
namespace {

using at::Tensor;
using c10::Scalar;

/// a + alpha b, or a - alpha b.
template <OpFunc op>
Tensor& add(const Tensor& self, const Tensor& other, const Scalar& alpha, Tensor& out) {
  const auto common = at::result_type(self, other);
  if constexpr (op == OpFunc::sub) at::native::sub_check(self, other);
  check_cast(common, out);
  at::native::alpha_check(common, alpha);
  fit(out, self, other);
  if (alpha.equal(1)) {
    arithmetic(op, out, {self, other}, common);
  } else {
    const double factor = element(alpha, common);
    arithmetic(OpFunc::axpy, out, {self, other}, common, {op == OpFunc::sub ? -factor : factor});
  }
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

Tensor& abs(const Tensor& self, Tensor& out) {
  if (!out.defined()) out = result_of({self}, self.options());
  return unary<OpFunc::abs>(self, out);
}

Tensor& neg(const Tensor& self, Tensor& out) {
  TORCH_CHECK(self.scalar_type() != at::kBool,
              "Negation, the `-` operator, on a bool tensor is not supported. If you are trying to "
              "invert a mask, use the `~` or `logical_not()` operator instead.");
  return unary<OpFunc::neg>(self, out);
}

Tensor rsub(const Tensor& self, const Tensor& other, const Scalar& alpha) {
  return at::sub(other, self, alpha);
}

Tensor& floor_divide(const Tensor& self, const Tensor& other, Tensor& out) {
  if (!out.defined()) {
    const Tensor& on_card = is_spyre(self) ? self : other;
    out = result_of({self, other}, on_card.options().dtype(at::result_type(self, other)));
  }
  return binary<OpFunc::floordivide>(self, other, out);
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
Tensor& lerp(const Tensor& self, const Tensor& end, const Tensor& weight, Tensor& out) {
  check_cast(self.scalar_type(), out);
  fit(out, self, end, weight);
  pointwise(OpFunc::lerp, out, {self, end, weight}, out.scalar_type());
  return out;
}
Tensor& lerp_scalar(const Tensor& self, const Tensor& end, const Scalar& weight, Tensor& out) {
  return lerp(self, end, number(weight), out);
}

Tensor& heaviside(const Tensor& self, const Tensor& values, Tensor& out) {
  TORCH_CHECK(self.scalar_type() == values.scalar_type() && self.scalar_type() == out.scalar_type(),
              "heaviside is not yet implemented for tensors with different dtypes.");
  return binary<OpFunc::heaviside>(self, values, out);
}

Tensor& where(const Tensor& condition, const Tensor& self, const Tensor& other, Tensor& out) {
  const c10::ScalarType common = at::result_type(self, other);
  TORCH_CHECK(condition.scalar_type() == at::kBool || condition.scalar_type() == at::kByte,
              "where expected condition to be a boolean tensor, but got a tensor with dtype ",
              condition.scalar_type());
  if (!out.defined()) out = result_of({condition, self, other}, condition.options().dtype(common));
  TORCH_CHECK(out.scalar_type() == common, "Expected out type to be ", common, " but got ",
              out.scalar_type());
  fit(out, condition, self, other);
  pointwise(OpFunc::where3, out, {condition, self, other}, out.scalar_type());
  return out;
}
Tensor& masked_fill_tensor(Tensor& self, const Tensor& mask, const Tensor& value) {
  TORCH_CHECK(value.dim() == 0,
              "masked_fill_ only supports a 0-dimensional value tensor, but got tensor with ",
              value.dim(), " dimension(s).");
  TORCH_CHECK(mask.scalar_type() == at::kBool,
              "masked_fill_ only supports boolean masks, but got mask with dtype ",
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

Tensor& signbit(const Tensor& self, Tensor& out) {
  TORCH_CHECK(out.scalar_type() == at::kBool, "signbit does not support non-boolean outputs.");
  return holds<OpFunc::signbit>(self, out);
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

Tensor& angle(const Tensor& self, Tensor& out) {
  if (!out.defined()) out = at::empty_like(self, floating(self));
  return unary<OpFunc::angle>(self, out);
}

Tensor& logit(const Tensor& self, std::optional<double> eps, Tensor& out) {
  if (!out.defined()) out = at::empty_like(self, floating(self));
  check_cast(at::kFloat, out);
  fit(out, self);
  pointwise(OpFunc::logit, out, {self}, self.scalar_type(), {eps.value_or(-1)});
  return out;
}
Tensor& logit_backward(const Tensor& grad, const Tensor& self, std::optional<double> eps,
                       Tensor& out) {
  return derivative(OpFunc::logitbwd, grad, self, out, {eps.value_or(-1)});
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
  return self.scalar_type() == at::kBool ? holds<OpFunc::logicalnot>(self, out)
                                         : unary<OpFunc::bitwisenot>(self, out);
}

template <OpFunc... ops>
void register_unary(torch::Library& m, const std::string& prefix = "") {
  (m.impl((prefix + op_info(ops).name + ".out").c_str(), &unary<ops>), ...);
}
template <OpFunc... ops>
void register_binary(torch::Library& m, const char* overload) {
  (m.impl((op_info(ops).name + std::string(overload)).c_str(), &binary<ops>), ...);
}
/// Ops that the card's table calls as PyTorch does.
void register_by_name(torch::Library& m) {
  using enum OpFunc;
  register_unary<sign, exp, exp2, expm1, log, log2, log10, log1p, sqrt, rsqrt, reciprocal>(m);
  register_unary<sin, cos, tan, asin, acos, atan, sinh, cosh, asinh, acosh, atanh, tanh>(m);
  register_unary<floor, ceil, trunc, round, frac>(m);
  register_unary<sigmoid, erf, erfc, erfinv, sinc, lgamma, digamma, i0>(m);
  register_unary<i0e, i1, i1e, entr, erfcx, log_ndtr>(m, "special_");
  register_binary<mul, maximum, minimum, fmax, fmin, hypot, logaddexp, logaddexp2>(m, ".out");
  register_binary<gcd, lcm>(m, ".out");
  register_binary<remainder, fmod>(m, ".Tensor_out");
}

template <OpFunc op>
void register_comparison(torch::Library& m, const std::string& name) {
  m.impl((name + ".Tensor_out").c_str(), &compare<op>);
  m.impl((name + ".Scalar_out").c_str(), &compare_scalar<op>);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  register_by_name(m);
  implement<abs>(m, "abs", "abs.out");
  m.impl("neg.out", &neg);
  m.impl("sgn.out", &unary<OpFunc::sign>);
  m.impl("signbit.out", &signbit);
  implement<holds<OpFunc::logicalnot>>(m, "logical_not", "logical_not.out");
  m.impl("bitwise_not.out", &bitwise_not);
  m.impl("isnan", functional<holds<OpFunc::isnan>>);
  m.impl("isinf", functional<holds<OpFunc::isinf>>);
  m.impl("isfinite", functional<holds<OpFunc::isfinite>>);
  m.impl("isposinf.out", &is_infinity<1>);
  m.impl("isneginf.out", &is_infinity<-1>);
  m.impl("nan_to_num.out", &nan_to_num);
  m.impl("round.decimals_out", &round_decimals);
  m.impl("frexp.Tensor_out", &frexp);
  implement<angle>(m, "angle", "angle.out");
  implement<logit>(m, "logit", "logit.out");
  m.impl("logit_", in_place<logit>);
  m.impl("logit_backward.grad_input", &logit_backward);
  m.impl("special_modified_bessel_i0.out", &unary<OpFunc::i0>);
  m.impl("special_modified_bessel_i1.out", &unary<OpFunc::i1>);
  m.impl("clamp.out", &clamp);
  m.impl("clamp_min.out", &clamp_min);
  m.impl("clamp_max.out", &clamp_max);
  m.impl("clamp.Tensor_out", &clamp_tensor);

  m.impl("add.out", &add<OpFunc::add>);
  m.impl("sub.out", &add<OpFunc::sub>);
  m.impl("rsub.Tensor", &rsub);
  m.impl("addr", &outer_sum);
  m.impl("addr.out", &addr_out);
  m.impl("div.out", &binary_float<OpFunc::realdiv>);
  m.impl("div.out_mode", &div_mode);
  m.impl("floor_divide", functional<floor_divide>);
  m.impl("floor_divide_.Tensor", in_place<floor_divide>);
  m.impl("floor_divide.out", floor_divide);
  m.impl("clamp_min.Tensor_out", &binary<OpFunc::maximum>);
  m.impl("clamp_max.Tensor_out", &binary<OpFunc::minimum>);
  m.impl("atan2.out", &binary_float<OpFunc::atan2>);
  m.impl("copysign.out", &binary_float<OpFunc::copysign>);
  m.impl("xlogy.OutTensor", &binary_float<OpFunc::xlogy>);
  m.impl("special_xlog1py.out", &binary_float<OpFunc::xlog1py>);
  m.impl("heaviside.out", &heaviside);
  m.impl("pow.Tensor_Tensor_out", &binary<OpFunc::pow>);
  m.impl("pow.Tensor_Scalar_out", &pow_tensor_scalar);
  m.impl("pow.Scalar_out", &pow_scalar);
  m.impl("addcmul.out", &addcmul);
  m.impl("addcdiv.out", &addcdiv);
  m.impl("lerp.Scalar_out", &lerp_scalar);
  m.impl("lerp.Tensor_out", &lerp);
  m.impl("bitwise_and.Tensor_out", &binary<OpFunc::bitwiseand>);
  m.impl("bitwise_or.Tensor_out", &binary<OpFunc::bitwiseor>);
  m.impl("bitwise_xor.Tensor_out", &binary<OpFunc::bitwisexor>);
  m.impl("bitwise_left_shift.Tensor_out", &binary<OpFunc::shiftleft>);
  m.impl("bitwise_right_shift.Tensor_out", &binary<OpFunc::shiftright>);
  implement<compare<OpFunc::logicaland>>(m, "logical_and", "logical_and.out");
  implement<compare<OpFunc::logicalor>>(m, "logical_or", "logical_or.out");
  implement<compare<OpFunc::logicalxor>>(m, "logical_xor", "logical_xor.out");

  register_comparison<OpFunc::equal>(m, "eq");
  register_comparison<OpFunc::notequal>(m, "ne");
  register_comparison<OpFunc::greaterthan>(m, "gt");
  register_comparison<OpFunc::greaterequal>(m, "ge");
  register_comparison<OpFunc::lesserthan>(m, "lt");
  register_comparison<OpFunc::lesserequal>(m, "le");
  m.impl("equal", &equal);
  implement<where>(m, "where.self", "where.self_out");
  m.impl("masked_fill_.Scalar", &masked_fill_scalar);
  m.impl("masked_fill_.Tensor", &masked_fill_tensor);
  m.impl("_efficientzerotensor", &efficient_zeros);
}

}  // namespace spyre::eager
