// A vector of indices for whole slices along one dimension: index_select, index_add, index_copy,
// index_fill, embedding and its gradient, and what lists or folds slices.
#include <ATen/MemoryOverlap.h>
#include <ATen/ops/div.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/index_add_meta.h>
#include <ATen/ops/index_copy_meta.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/repeat_interleave.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include "ops/index/eager_index.h"
#include "program/eager_plan.h"
#include "tensor/eager_structured.h"
#include "tensor/eager_variants.h"

namespace spyre::eager {
namespace {

using at::Tensor;

void check_index_type(const char* name, const Tensor& index) {
  TORCH_CHECK(index.scalar_type() == at::kLong || index.scalar_type() == at::kInt, name,
              ": Expected dtype int32 or int64 for index, got ", index.scalar_type(), ".");
}

// -------------------------------------------------------------------------------- reading slices

Tensor& index_select(const Tensor& self, std::int64_t dim, const Tensor& index, Tensor& out) {
  TORCH_CHECK_INDEX(index.dim() <= 1, "index_select(): Index is supposed to be a vector, but got ",
                    index.dim(), " dimensions.");
  check_index_type("index_select()", index);
  dim = c10::maybe_wrap_dim(dim, self.dim());
  if (self.dim() == 0)
    TORCH_CHECK(index.numel() == 1, "index_select(): Index to scalar can have only 1 value, got ",
                index.numel(), " value(s)");
  at::DimVector size(self.sizes());
  if (self.dim() > 0) size[dim] = index.numel();
  size_output("index_select()", out, size, self.options(), {self, index});
  if (out.numel() == 0) return out;
  TORCH_CHECK(self.dim() == 0 || self.size(dim) > 0,
              "index_select(): self indexing axis dim should be positive");
  run_slices({.op = OpFunc::indexselect, .dim = dim}, self, on_device(index, self.device()), out);
  return out;
}

Tensor embedding(const Tensor& weight, const Tensor& indices, std::int64_t /*padding_idx*/,
                 bool /*scale_grad_by_freq*/, bool /*sparse*/) {
  TORCH_CHECK(weight.dim() == 2, "'weight' must be 2-D");
  check_index_type("embedding()", indices);
  at::DimVector size(indices.sizes());
  size.push_back(weight.size(1));
  Tensor out = at::empty(size, weight.options());
  if (out.numel() == 0) return out;
  Indexing indexing;
  indexing.op = OpFunc::embedding;
  indexing.size.assign(size.begin(), size.end());
  indexing.dense = out;
  indexing.indexed = weight;
  indexing.walks.assign(indices.dim(), Indexing::kNone);
  indexing.walks.push_back(1);
  indexing.coordinates.push_back({0, indices, indices.dim() - 1});
  run_indexing(std::move(indexing));
  return out;
}

// -------------------------------------------------------------------------------- writing slices

/// `source` times alpha, in float32 where that keeps bits.
Tensor scaled(const Tensor& source, const at::Scalar& alpha) {
  if (alpha.equal(1)) return source;
  return at::mul(accumulated(source), alpha);
}

Tensor& index_add_out(const Tensor& self, std::int64_t dim, const Tensor& index,
                      const Tensor& source, const at::Scalar& alpha, Tensor& out) {
  dim = shape_outputs<at::meta::structured_index_add>(out, self, dim, index, source, alpha).dim;
  start_from(self, out);
  const bool vector = out.dim() <= 1;  // of which the CPU has a kernel of its own
  if (index.numel() == 0 || (out.numel() == 0 && !vector)) return out;
  const Tensor total = accumulated(out);
  run_slices({.op = OpFunc::scatteradd, .dim = dim, .index_error = vector}, total, index,
             scaled(source, alpha));
  if (!total.is_same(out)) out.copy_(total);
  return out;
}

Tensor& index_copy_out(const Tensor& self, std::int64_t dim, const Tensor& index,
                       const Tensor& source, Tensor& out) {
  dim = shape_outputs<at::meta::structured_index_copy>(out, self, dim, index, source).dim;
  start_from(self, out);
  run_slices({.op = OpFunc::indexput, .dim = dim}, out, index, source);
  return out;
}

Tensor& index_fill_scalar(Tensor& self, std::int64_t dim, const Tensor& index,
                          const at::Scalar& value) {
  TORCH_CHECK_INDEX(index.scalar_type() == at::kLong,
                    "index_fill_(): Expected dtype int64 for index.");
  TORCH_CHECK(index.dim() <= 1, "Index has to be a vector/scalar");
  if (at::has_internal_overlap(self) == at::MemOverlap::Yes)
    TORCH_WARN("Use of index_fill_ on expanded tensors is deprecated. Please clone() the tensor ",
               "before performing this operation. This also applies to advanced indexing e.g. ",
               "tensor[mask] = scalar");
  at::assert_no_overlap(self, index);
  TORCH_CHECK(!self.is_complex() && !value.isComplex(),
              "index_fill_(): Converting complex Scalar to non-complex type is not supported");
  dim = c10::maybe_wrap_dim(dim, self.dim());
  run_slices({.op = OpFunc::indexput, .dim = dim, .wrap = true}, self,
             on_device(index, self.device()), number_like(self, value));
  return self;
}

Tensor& index_fill_tensor(Tensor& self, std::int64_t dim, const Tensor& index,
                          const Tensor& value) {
  TORCH_CHECK(value.dim() == 0, "index_fill_ only supports a 0-dimensional value tensor, but got ",
              "tensor with ", value.dim(), " dimension(s).");
  return index_fill_scalar(self, dim, index, value.item());
}

/// Sums of rows of `grad` (of shape indices + [row]) for each of `rows` indices, in float32.
Tensor sums_of_rows(const Tensor& grad, const Tensor& indices, std::int64_t rows) {
  Tensor sums = at::zeros({rows, grad.size(-1)}, grad.options().dtype(at::kFloat));
  if (grad.numel() == 0) return sums;
  const Tensor rows_of_grad = grad.reshape({indices.numel(), grad.size(-1)});
  run_slices({.op = OpFunc::scatteradd, .dim = 0}, sums, indices.reshape(-1), rows_of_grad);
  return sums;
}

Tensor embedding_dense_backward(const Tensor& grad, const Tensor& indices, std::int64_t num_weights,
                                std::int64_t padding_idx, bool scale_grad_by_freq) {
  check_index_type("embedding_backward()", indices);
  Tensor sums = sums_of_rows(grad, indices, num_weights);
  if (scale_grad_by_freq && grad.numel() > 0) {
    const Tensor one = number_like(sums, 1);
    const Tensor ones = one.expand({indices.numel(), 1});
    sums.div_(sums_of_rows(ones, indices, num_weights).clamp_min_(1));
  }
  if (padding_idx >= 0 && padding_idx < num_weights) sums.select(0, padding_idx).zero_();
  return sums.to(grad.scalar_type());
}

// ------------------------------------------------------------------------------ listing, folding

/// The size of the result is a sum of device values that the host must know, so the host reads them
/// and lists the indices.
Tensor repeat_interleave(const Tensor& repeats, std::optional<std::int64_t> output_size) {
  return at::repeat_interleave(repeats.cpu(), output_size).to(repeats.device());
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  implement<index_select>(m, "index_select", "index_select.out");
  m.impl("embedding", embedding);
  m.impl("index_add.out", index_add_out);
  m.impl("index_copy.out", index_copy_out);
  m.impl("index_fill_.int_Scalar", index_fill_scalar);
  m.impl("index_fill_.int_Tensor", index_fill_tensor);
  m.impl("embedding_dense_backward", embedding_dense_backward);
  m.impl("repeat_interleave.Tensor", repeat_interleave);
}

}  // namespace spyre::eager
