// Kernels that many ATen ops share: a pointwise op of the card with the arguments of an `.out` op.
#pragma once

#include <ATen/ExpandUtils.h>
#include <ATen/ops/result_type.h>
#include <ATen/ops/scalar_tensor.h>

#include "eager_pointwise.h"

namespace spyre::eager {

/// A Python number as an operand: it takes no part in the choice of a dtype.
inline at::Tensor number(const c10::Scalar& value) {
  at::Tensor tensor = at::scalar_tensor(value, at::device(at::kCPU));
  tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
  return tensor;
}

/// Structured ops come with `out` in its size; for the others, and for out=, it is made so.
inline void resize(at::Tensor& out, c10::IntArrayRef size) {
  if (out.sizes() != size) out.resize_(size);
}

/// PyTorch has checked this unless the caller gave `out`.
inline void check_floating(const at::Tensor& out) {
  TORCH_CHECK(out.is_floating_point(),
              "result type Float can't be cast to the desired output type ", out.scalar_type());
}

template <OpFunc op>
at::Tensor& unary(const at::Tensor& self, at::Tensor& out) {
  if (!op_info(op).int64) check_floating(out);
  resize(out, self.sizes());
  pointwise(op, out, {self}, self.scalar_type());
  return out;
}

template <OpFunc op>
at::Tensor& binary(const at::Tensor& self, const at::Tensor& other, at::Tensor& out) {
  resize(out, at::infer_size(self.sizes(), other.sizes()));
  pointwise(op, out, {self, other}, at::result_type(self, other));
  return out;
}

template <OpFunc op>
at::Tensor& binary_scalar(const at::Tensor& self, const c10::Scalar& other, at::Tensor& out) {
  pointwise(op, out, {self, number(other)}, at::result_type(self, other));
  return out;
}

/// a op b in a floating dtype, whatever the inputs are.
template <OpFunc op>
at::Tensor& binary_float(const at::Tensor& self, const at::Tensor& other, at::Tensor& out) {
  check_floating(out);
  pointwise(op, out, {self, other}, c10::ScalarType::Float);
  return out;
}

/// The gradient and what the forward op saved.
template <OpFunc op>
at::Tensor& backward(const at::Tensor& grad, const at::Tensor& saved, at::Tensor& out) {
  resize(out, saved.sizes());
  pointwise(op, out, {grad, saved}, saved.scalar_type());
  return out;
}

}  // namespace spyre::eager
