// Kernels that many ATen ops share: a pointwise op of the card with the arguments of an `.out` op.
#pragma once

#include <ATen/Dispatch.h>
#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/ScalarOps.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/result_type.h>

#include "ops/pointwise/eager_pointwise.h"
#include "tensor/eager_structured.h"
#include "tensor/eager_variants.h"

namespace spyre::eager {

/// A Python number as an operand: it takes no part in the choice of a dtype.
inline at::Tensor number(const c10::Scalar& value) {
  return at::native::wrapped_scalar_tensor(value);  // int64 or float64: exact
}

/// A Python number as an element: integers refuse what they cannot hold, as the CPU's kernels do.
inline double element(const c10::Scalar& value, c10::ScalarType dtype) {
  if (!c10::isIntegralType(dtype, /*includeBool=*/true)) return value.toDouble();
  return AT_DISPATCH_INTEGRAL_TYPES_AND(at::kBool, dtype, "element",
                                        [&] { return static_cast<double>(value.to<scalar_t>()); });
}

// Structured ops come with an `out` that suits them; one that a caller gave is checked here.

inline void resize_to(const at::Tensor& out, c10::IntArrayRef size) {
  if (out.sizes() == size) return;
  at::assert_no_internal_overlap(out);
  at::native::resize_output(out, size);
}

/// Makes `out` as large as the inputs are together.
template <class... Inputs>
void fit(const at::Tensor& out, const Inputs&... inputs) {
  if ((... && (inputs.sizes() == out.sizes()))) return;
  at::DimVector size;
  ((size = at::infer_size_dimvector(size, inputs.sizes())), ...);
  if (out.sizes() != size) result_of({inputs...}, out.options(), out);
}

inline void check_same_dtype(const at::Tensor& self, const at::Tensor& out) {
  TORCH_CHECK(self.scalar_type() == out.scalar_type(), "Found dtype ", out.scalar_type(),
              " but expected ", self.scalar_type());
}

/// op(inputs...), computed in the common dtype of the inputs: there integers wrap around, and two
/// bools have a sum that is true. All but int64 are computed wider, so that it shows in an `out` of
/// another dtype.
inline void arithmetic(OpFunc op, const at::Tensor& out, std::initializer_list<at::Tensor> inputs,
                       c10::ScalarType common, std::vector<double> constants = {}) {
  if (common == out.scalar_type() || common == at::kLong || !c10::isIntegralType(common, true))
    return pointwise(op, out, inputs, common, std::move(constants));
  const at::Tensor result = at::empty(out.sizes(), out.options().dtype(common));
  pointwise(op, result, inputs, common, std::move(constants));
  out.copy_(result);
}

/// op(a), in the dtype of a; in a floating dtype if the op has no integers.
template <OpFunc op>
at::Tensor& unary(const at::Tensor& self, at::Tensor& out) {
  if (op_info(op).int64)
    check_same_dtype(self, out);
  else
    check_cast(c10::ScalarType::Float, out);
  fit(out, self);
  pointwise(op, out, {self}, self.scalar_type());
  return out;
}

/// An output of the dtype of `self`, as large as the inputs are together.
template <class... Inputs>
void fit_like(const at::Tensor& self, at::Tensor& out, const Inputs&... inputs) {
  if (!out.defined()) out = at::empty_like(self);
  check_same_dtype(self, out);
  fit(out, inputs...);
}

/// An activation: op(a, constants...) in the dtype of a.
inline at::Tensor& activation(OpFunc op, const at::Tensor& self, at::Tensor& out,
                              std::vector<double> constants = {}) {
  fit_like(self, out, self);
  pointwise(op, out, {self}, self.scalar_type(), std::move(constants));
  return out;
}

template <OpFunc op>
at::Tensor& activated(const at::Tensor& self, at::Tensor& out) {
  return activation(op, self, out);
}

template <OpFunc op>
at::Tensor& binary(const at::Tensor& self, const at::Tensor& other, at::Tensor& out) {
  const c10::ScalarType common = at::result_type(self, other);
  check_cast(common, out);
  fit(out, self, other);
  arithmetic(op, out, {self, other}, common);
  return out;
}

/// Whether op(a): true or false, or 1 or 0 in any dtype.
template <OpFunc op>
at::Tensor& holds(const at::Tensor& self, at::Tensor& out) {
  if (!out.defined()) out = result_of({self}, self.options().dtype(at::kBool));
  fit(out, self);
  pointwise(op, out, {self}, self.scalar_type());
  return out;
}

/// Whether a op b: the same.
template <OpFunc op>
at::Tensor& compare(const at::Tensor& self, const at::Tensor& other, at::Tensor& out) {
  if (!out.defined()) {
    const at::Tensor& on_card = self.is_cpu() ? other : self;
    out = result_of({self, other}, on_card.options().dtype(at::kBool));
  }
  fit(out, self, other);
  pointwise(op, out, {self, other}, at::result_type(self, other));
  return out;
}

template <OpFunc op>
at::Tensor& compare_scalar(const at::Tensor& self, const c10::Scalar& other, at::Tensor& out) {
  const at::Tensor wrapped = number(other);
  if (out.sizes() != self.sizes()) fit(out, self, wrapped);
  pointwise(op, out, {self, wrapped}, at::result_type(self, other));
  return out;
}

/// a op b in a floating dtype, whatever the inputs are.
template <OpFunc op>
at::Tensor& binary_float(const at::Tensor& self, const at::Tensor& other, at::Tensor& out) {
  check_cast(c10::ScalarType::Float, out);
  fit(out, self, other);
  pointwise(op, out, {self, other}, c10::ScalarType::Float);
  return out;
}

/// Of the gradient and what the forward op saved.
inline at::Tensor& derivative(OpFunc op, const at::Tensor& grad, const at::Tensor& saved,
                              at::Tensor& out, std::vector<double> constants = {}) {
  fit_like(saved, out, grad, saved);
  pointwise(op, out, {grad, saved}, saved.scalar_type(), std::move(constants));
  return out;
}

template <OpFunc op>
at::Tensor& backward(const at::Tensor& grad, const at::Tensor& saved, at::Tensor& out) {
  return derivative(op, grad, saved, out);
}

}  // namespace spyre::eager
