// Matrix products. matmul, linear and einsum are made of these by PyTorch.
#include "ops/matmul/eager_matmul.h"

#include <ATen/ops/addmm_meta.h>
#include <ATen/ops/addmv_meta.h>
#include <ATen/ops/baddbmm_meta.h>
#include <ATen/ops/bmm_meta.h>
#include <ATen/ops/clone.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm_meta.h>
#include <torch/library.h>

#include "program/eager_plan.h"
#include "tensor/eager_structured.h"
#include "tensor/eager_variants.h"
#include "tensor/spyre_dtypes.h"

namespace spyre::eager {
namespace {

using at::Tensor;
using c10::Scalar;
using c10::ScalarType;

/// Refuses operands on different devices or of dtypes that are not multiplied with each other.
void check_operands(const char* op, const Tensor& a, const Tensor& b) {
  TORCH_CHECK(a.device() == b.device(),
              "Expected all tensors to be on the same device, but found at least two devices, ",
              a.device(), " and ", b.device(), "! (in ", op, ")");
  TORCH_CHECK(a.scalar_type() == b.scalar_type(),
              "expected m1 and m2 to have the same dtype, but got: ", a.dtype(), " != ", b.dtype());
  const ScalarType dtype = a.scalar_type();
  TORCH_CHECK_NOT_IMPLEMENTED(dtype != ScalarType::Bool && !c10::isFloat8Type(dtype), "\"", op,
                              "\" not implemented for 'torch.", dtype_name(dtype),
                              dtype == ScalarType::Bool
                                  ? "'. Convert to int32 or float16 first."
                                  : "'. Use torch._scaled_mm, or convert to float16 first.");
}

double factor(const Scalar& value, const Tensor& out) {
  if (c10::isIntegralType(out.scalar_type(), true)) return static_cast<double>(value.toLong());
  return value.toDouble();
}

/// `self` of an op that adds a product to it, as large as the result.
std::optional<Tensor> addend(const Tensor& self, const Tensor& out, const Scalar& beta) {
  if (beta.toDouble() == 0) return std::nullopt;  // not even a NaN of it counts
  return on_device(self, out.device()).expand(out.sizes());
}

/// out = beta * self + alpha * (a @ b).
Tensor& add_product(const Tensor& self, const Tensor& a, const Tensor& b, const Scalar& beta,
                    const Scalar& alpha, Tensor& out) {
  matmul(a, b, out, addend(self, out, beta), factor(alpha, out), factor(beta, out));
  return out;
}

void check_addend(const Tensor& self, const Tensor& product) {
  TORCH_CHECK(self.scalar_type() == product.scalar_type(),
              "self and mat2 must have the same dtype, but got ", self.scalar_type(), " and ",
              product.scalar_type());
}

// ------------------------------------------------------------------------------- two dimensions

template <class Meta, int dim>
Tensor& product(const Tensor& self, const Tensor& mat2, Tensor& out) {
  check_operands(dim == 2 ? "mm" : "bmm", self, mat2);
  shape_outputs<Meta>(out, self, mat2);
  matmul(self, mat2, out);
  return out;
}

Tensor& addmm(const Tensor& self, const Tensor& mat1, const Tensor& mat2, const Scalar& beta,
              const Scalar& alpha, Tensor& out) {
  check_operands("addmm", mat1, mat2);
  shape_outputs<at::meta::structured_addmm>(out, self, mat1, mat2, beta, alpha);
  return add_product(self, mat1, mat2, beta, alpha, out);
}

// ------------------------------------------------------------------------------------- batches

Tensor& baddbmm(const Tensor& self, const Tensor& batch1, const Tensor& batch2, const Scalar& beta,
                const Scalar& alpha, Tensor& out) {
  check_operands("baddbmm", batch1, batch2);
  // The shape function wants the expanded addend; sizes that do not fit are its to report.
  const bool three = batch1.dim() == 3 && batch2.dim() == 3;
  const Tensor whole = three ? self.expand({batch1.size(0), batch1.size(1), batch2.size(2)}) : self;
  shape_outputs<at::meta::structured_baddbmm>(out, whole, batch1, batch2, beta, alpha);
  check_addend(self, batch1);
  return add_product(whole, batch1, batch2, beta, alpha, out);
}

/// The sum over batches is a product over batches and K.
Tensor& addbmm(const Tensor& self, const Tensor& batch1, const Tensor& batch2, const Scalar& beta,
               const Scalar& alpha, Tensor& out) {
  TORCH_CHECK(batch1.dim() == 3, "batch1 must be a 3D tensor");
  TORCH_CHECK(batch2.dim() == 3, "batch2 must be a 3D tensor");
  TORCH_CHECK(batch1.size(0) == batch2.size(0),
              "batch1 and batch2 must have same number of batches, got ", batch1.size(0), " and ",
              batch2.size(0));
  TORCH_CHECK(batch1.size(2) == batch2.size(1), "Incompatible matrix sizes for bmm (",
              batch1.size(1), "x", batch1.size(2), " and ", batch2.size(1), "x", batch2.size(2),
              ")");
  const std::int64_t depth = batch1.size(0) * batch1.size(2);
  // In place on an addend that is broadcast, the result's shape replaces the addend's.
  const bool grows =
      out.is_same(self) && out.sizes() != c10::IntArrayRef{batch1.size(1), batch2.size(2)};
  return addmm(grows ? self.clone() : self, batch1.transpose(0, 1).reshape({batch1.size(1), depth}),
               batch2.reshape({depth, batch2.size(2)}), beta, alpha, out);
}

// ------------------------------------------------------------------------------------- vectors

/// A product with a vector is one with a single row: the result has its sticks along the columns,
/// and a matrix that stands right may have them either way.
Tensor& addmv_out(const Tensor& self, const Tensor& mat, const Tensor& vec, const Scalar& beta,
                  const Scalar& alpha, Tensor& out) {
  check_operands("addmv", mat, vec);
  shape_outputs<at::meta::structured_addmv>(out, self, mat, vec, beta, alpha);
  // mv() gives an addend that is not initialised, and a beta of 0.
  if (beta.toDouble() != 0) check_addend(self, mat);
  const Tensor row = out.unsqueeze(0);
  matmul(vec.unsqueeze(0), mat.t(), row, addend(self, row, beta), factor(alpha, out),
         factor(beta, out));
  return out;
}

Tensor dot(const Tensor& self, const Tensor& other) {
  TORCH_CHECK(self.dim() == 1 && other.dim() == 1, "1D tensors expected, but got ", self.dim(),
              "D and ", other.dim(), "D tensors");
  TORCH_CHECK(self.scalar_type() == other.scalar_type(),
              "dot : expected both vectors to have same dtype, but found ", self.scalar_type(),
              " and ", other.scalar_type());
  TORCH_CHECK(self.numel() == other.numel(), "inconsistent tensor size, expected tensor [",
              self.numel(), "] and src [", other.numel(),
              "] to have the same number of elements, but got ", self.numel(), " and ",
              other.numel(), " elements respectively");
  check_operands("dot", self, other);
  const Tensor out = at::empty({}, self.options());
  matmul(self.unsqueeze(0), other.unsqueeze(1), out.view({1, 1}));
  return out;
}

// ------------------------------------------------------------- results of another dtype

ScalarType checked_out_dtype(const Tensor& a, ScalarType out) {
  TORCH_CHECK(out == a.scalar_type() ||
                  (out == ScalarType::Float && c10::isReducedFloatingType(a.scalar_type())),
              "out_dtype must be the same as input dtype or fp32 for fp16/bf16 inputs, got ", out,
              " for ", a.scalar_type());
  return out;
}

void check_product(const char* op, std::int64_t dim, const Tensor& a, const Tensor& b) {
  check_operands(op, a, b);
  TORCH_CHECK(a.dim() == dim && b.dim() == dim, op, ": expected ", dim, "D matrices, got ", a.dim(),
              "D and ", b.dim(), "D");
  TORCH_CHECK(a.size(-1) == b.size(-2) && (dim == 2 || a.size(0) == b.size(0)), op,
              ": shapes cannot be multiplied (", a.sizes(), " and ", b.sizes(), ")");
}

c10::SmallVector<std::int64_t, 3> product_size(const Tensor& a, const Tensor& b) {
  c10::SmallVector<std::int64_t, 3> size(a.sizes().begin(), a.sizes().end());
  size.back() = b.size(-1);
  return size;
}

template <int dim>
Tensor& product_dtype(const Tensor& a, const Tensor& b, ScalarType dtype, Tensor& out) {
  constexpr const char* name = dim == 2 ? "mm" : "bmm";
  check_product(name, dim, a, b);
  size_output(name, out, product_size(a, b), a.options().dtype(checked_out_dtype(a, dtype)));
  matmul(a, b, out);
  return out;
}

template <int dim>
Tensor& add_product_dtype(const Tensor& self, const Tensor& a, const Tensor& b, ScalarType dtype,
                          const Scalar& beta, const Scalar& alpha, Tensor& out) {
  constexpr const char* name = dim == 2 ? "addmm" : "baddbmm";
  check_product(name, dim, a, b);
  size_output(name, out, product_size(a, b), a.options().dtype(checked_out_dtype(a, dtype)));
  TORCH_CHECK(self.scalar_type() == dtype || self.scalar_type() == a.scalar_type(),
              "self dtype must match either out_dtype or the dtype of the matrices, got ",
              self.scalar_type());
  return add_product(self, a, b, beta, alpha, out);
}

Tensor& int_mm(const Tensor& self, const Tensor& mat2, Tensor& out) {
  check_product("_int_mm", 2, self, mat2);
  TORCH_CHECK(self.scalar_type() == ScalarType::Char, "Expected self dtype to be int8 but got ",
              self.scalar_type());
  size_output("_int_mm", out, product_size(self, mat2), self.options().dtype(ScalarType::Int));
  matmul(self, mat2, out);
  return out;
}

/// Scales are tensors, one for all or one a row of `self` and a column of `mat2`.
Tensor scaled_mm(const Tensor& self, const Tensor& mat2, const Tensor& scale_a,
                 const Tensor& scale_b, const std::optional<Tensor>& bias,
                 const std::optional<Tensor>& scale_result, std::optional<ScalarType> out_dtype,
                 bool /*use_fast_accum*/) {
  TORCH_CHECK(self.dim() == 2 && mat2.dim() == 2, "_scaled_mm: expected matrices, got ", self.dim(),
              "D and ", mat2.dim(), "D");
  TORCH_CHECK(self.size(1) == mat2.size(0), "mat1 and mat2 shapes cannot be multiplied (",
              self.size(0), "x", self.size(1), " and ", mat2.size(0), "x", mat2.size(1), ")");
  TORCH_CHECK(c10::isFloat8Type(self.scalar_type()) && c10::isFloat8Type(mat2.scalar_type()),
              "Expected both inputs to be fp8 types but got ", self.scalar_type(), " and ",
              mat2.scalar_type());
  TORCH_CHECK(self.device() == mat2.device(), "Expected all tensors to be on the same device.");
  const auto check_scale = [](const Tensor& scale, const char* name, std::int64_t rows,
                              std::int64_t columns) {
    TORCH_CHECK(scale.scalar_type() == ScalarType::Float, name, " must be a float32 tensor.");
    TORCH_CHECK(scale.numel() == 1 ||
                    (scale.dim() == 2 && scale.size(0) == rows && scale.size(1) == columns),
                name, " must be one number or have size [", rows, ", ", columns, "], got ",
                scale.sizes());
  };
  check_scale(scale_a, "scale_a", self.size(0), 1);
  check_scale(scale_b, "scale_b", 1, mat2.size(1));
  Tensor sums = at::empty({self.size(0), mat2.size(1)}, self.options().dtype(ScalarType::Float));
  matmul(self, mat2, sums);
  const auto scaled_by = [&](const Tensor& scale) {
    return sums.mul(scale.numel() == 1 ? scale.reshape({}) : scale);
  };
  sums = scaled_by(scale_a);
  sums = scaled_by(scale_b);
  if (bias && bias->defined()) sums = sums.add(*bias);
  const ScalarType dtype = out_dtype.value_or(self.scalar_type());
  if (scale_result && scale_result->defined() && c10::isFloat8Type(dtype))
    sums = scaled_by(*scale_result);
  return sums.to(dtype);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  implement<product<at::meta::structured_mm, 2>>(library, "mm", "mm.out");
  implement<addmm>(library, "addmm", "addmm.out");
  implement<product<at::meta::structured_bmm, 3>>(library, "bmm", "bmm.out");
  implement<baddbmm>(library, "baddbmm", "baddbmm.out");
  implement<addbmm>(library, "addbmm", "addbmm.out");
  library.impl("addbmm_", in_place<addbmm>);
  library.impl("addmv.out", &addmv_out);
  library.impl("dot", &dot);
  library.impl("vdot", &dot);
  implement<product_dtype<2>>(library, "mm.dtype", "mm.dtype_out");
  implement<product_dtype<3>>(library, "bmm.dtype", "bmm.dtype_out");
  implement<add_product_dtype<2>>(library, "addmm.dtype", "addmm.dtype_out");
  implement<add_product_dtype<3>>(library, "baddbmm.dtype", "baddbmm.dtype_out");
  implement<int_mm>(library, "_int_mm", "_int_mm.out");
  library.impl("_scaled_mm", &scaled_mm);
}

}  // namespace
}  // namespace spyre::eager
