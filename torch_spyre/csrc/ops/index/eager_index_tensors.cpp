// x[...] and x[...] = y with tensors in the brackets: index, index_put.
#include <algorithm>
#include <sstream>

#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/core/IListRef.h>
#include <ATen/core/List.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/masked_fill.h>
#include <c10/util/strides.h>
#include <torch/library.h>

#include "ops/index/eager_index.h"
#include "ops/pointwise/eager_pointwise.h"
#include "program/eager_plan.h"

namespace spyre::eager {
namespace {

using at::Tensor;
using Indices = c10::List<std::optional<Tensor>>;

/// What stands in the brackets, worked out.
struct Brackets {
  std::vector<Tensor> index;  ///< one a dimension of the tensor; undefined: all of it
  at::DimVector broadcast;    ///< the common size of the indices
  std::int64_t front = 0;     ///< where their dimensions are in the result
  at::DimVector result;       ///< its size
};

void check_mask(const Tensor& self, const Tensor& mask, std::size_t dim) {
  for (std::int64_t d = 0; d < mask.dim(); ++d) {
    const auto of_self = static_cast<std::int64_t>(dim) + d;
    TORCH_CHECK_INDEX(of_self < self.dim(), "too many indices for tensor of dimension ",
                      self.dim());
    TORCH_CHECK_INDEX(mask.size(d) == self.size(of_self), "The shape of the mask ", mask.sizes(),
                      " at index ", d, " does not match the shape of the indexed tensor ",
                      self.sizes(), " at index ", of_self);
  }
}

/// Masks become the positions of their true elements.
std::vector<Tensor> without_masks(const Tensor& self, const Indices& indices) {
  std::vector<Tensor> all;
  for (std::size_t i = 0; i < indices.size(); ++i) {
    const std::optional<Tensor> given = indices.get(i);
    if (!given || !given->defined()) {
      all.emplace_back();
      continue;
    }
    const at::ScalarType type = given->scalar_type();
    if (type == at::kLong || type == at::kInt) {
      all.push_back(given->to(self.device()));
      continue;
    }
    TORCH_CHECK_INDEX(type == at::kBool || type == at::kByte,
                      "tensors used as indices must be long, int, byte or bool tensors");
    if (type == at::kByte) {
      TORCH_WARN("indexing with dtype torch.uint8 is now deprecated, please use a dtype ",
                 "torch.bool instead.");
    }
    check_mask(self, *given, all.size());
    for (const Tensor& positions : true_positions(*given))
      all.push_back(positions.to(self.device()));
  }
  return all;
}

Brackets work_out(const Tensor& self, const Indices& indices) {
  Brackets brackets;
  brackets.index = without_masks(self, indices);
  TORCH_CHECK_INDEX(static_cast<std::int64_t>(brackets.index.size()) <= self.dim(),
                    "too many indices for tensor of dimension ", self.dim(), " (got ",
                    brackets.index.size(), ")");
  brackets.index.resize(self.dim());

  std::ostringstream shapes;
  bool compatible = true;
  std::int64_t first = self.dim(), last = -1, count = 0;
  for (std::int64_t d = 0; d < self.dim(); ++d) {
    const Tensor& index = brackets.index[d];
    if (!index.defined()) continue;
    shapes << (count ? ", " : "") << index.sizes();
    first = std::min(first, d);
    last = d;
    ++count;
  }
  at::DimVector& common = brackets.broadcast;
  for (const Tensor& index : brackets.index) {
    if (!index.defined()) continue;
    while (static_cast<std::int64_t>(common.size()) < index.dim()) common.insert(common.begin(), 1);
    for (std::int64_t d = 1; d <= index.dim(); ++d) {
      std::int64_t& size = common[common.size() - d];
      const std::int64_t mine = index.size(-d);
      compatible &= size == mine || size == 1 || mine == 1;
      if (size == 1) size = mine;
    }
  }
  TORCH_CHECK_INDEX(compatible,
                    "shape mismatch: indexing tensors could not be broadcast together with shapes ",
                    shapes.str());

  // Indices side by side leave their dimensions in their place; else these come first.
  brackets.front = count > 0 && last - first + 1 == count ? first : 0;
  for (std::int64_t d = 0; d < self.dim(); ++d)
    if (!brackets.index[d].defined()) brackets.result.push_back(self.size(d));
  brackets.result.insert(brackets.result.begin() + brackets.front, common.begin(), common.end());
  if (c10::multiply_integers(common) > 0)
    for (std::int64_t d = 0; d < self.dim(); ++d)
      TORCH_CHECK_INDEX(!brackets.index[d].defined() || self.size(d) > 0,
                        "index is out of bounds for dimension with size 0");
  return brackets;
}

Indexing indexing_of(OpFunc op, const Tensor& self, const Brackets& brackets, const Tensor& dense) {
  Indexing indexing;
  indexing.op = op;
  indexing.indexed = self;
  indexing.dense = dense;
  indexing.size.assign(brackets.result.begin(), brackets.result.end());
  indexing.wrap = true;
  const auto loops = static_cast<std::int64_t>(brackets.broadcast.size());
  for (std::int64_t d = 0; d < self.dim(); ++d) {
    if (!brackets.index[d].defined()) {
      indexing.walks.push_back(d);
    } else {
      indexing.coordinates.push_back({d, brackets.index[d], brackets.front + loops - 1});
    }
  }
  indexing.walks.insert(indexing.walks.begin() + brackets.front, loops, Indexing::kNone);
  return indexing;
}

void index_into(const Tensor& self, const Brackets& brackets, const Tensor& out) {
  if (out.numel() > 0) run_indexing(indexing_of(OpFunc::gather, self, brackets, out));
}

/// A result laid out as PyTorch would: like the tensor where it is walked, like the indices in
/// their dimensions. An `out` that is given is resized.
Tensor result_for(const Tensor& self, const Brackets& brackets, const Tensor& out = {}) {
  // PyTorch orders dimensions by their strides, those of one element included.
  const auto is_packed = [](const Tensor& tensor) {
    const c10::IntArrayRef size = tensor.sizes();
    return tensor.strides() == c10::contiguous_strides(size) &&
           std::find(size.begin(), size.end(), 1) == size.end();
  };
  bool packed = is_packed(self);
  at::DimVector strides, around(brackets.result.size(), 1);
  std::copy(brackets.broadcast.begin(), brackets.broadcast.end(), around.begin() + brackets.front);
  std::vector<Tensor> walked(1);
  for (std::int64_t d = 0; d < self.dim(); ++d) {
    const Tensor& index = brackets.index[d];
    if (!index.defined()) {
      strides.push_back(self.stride(d));
      continue;
    }
    packed = packed && is_packed(index);
    walked.push_back(index.expand(brackets.broadcast).view(around));
  }
  if (packed && !out.defined()) return at::empty(brackets.result, self.options());
  strides.insert(strides.begin() + brackets.front, brackets.broadcast.size(), 0);
  walked[0] = self.as_strided(brackets.result, strides);
  return result_of(walked, self.options(), out);
}

Tensor index(const Tensor& self, const Indices& indices) {
  const Brackets brackets = work_out(self, indices);
  Tensor out = result_for(self, brackets);
  index_into(self, brackets, out);
  return out;
}

/// What is written has no memory in common with an index.
void assert_apart(const Tensor& written, const Indices& indices) {
  for (std::size_t i = 0; i < indices.size(); ++i)
    if (const std::optional<Tensor> given = indices.get(i); given && given->defined())
      at::assert_no_overlap(written, *given);
}

Tensor& index_out(const Tensor& self, const Indices& indices, Tensor& out) {
  TORCH_CHECK(out.scalar_type() == self.scalar_type(), "index_out: self (", self.scalar_type(),
              ") and result (", out.scalar_type(), ") must have the same scalar type");
  at::assert_no_internal_overlap(out);
  at::assert_no_overlap(out, self);
  assert_apart(out, indices);
  const Brackets brackets = work_out(self, indices);
  if (out.sizes() != brackets.result) result_for(self, brackets, out);
  index_into(self, brackets, out);
  return out;
}

/// The mask that x[mask] = number fills under, if that is what it is: no position need be known.
Tensor filling_mask(const Tensor& self, const Indices& indices, const Tensor& value) {
  if (value.numel() != 1 || indices.size() != 1) return {};
  const std::optional<Tensor> mask = indices.get(0);
  if (!mask || !mask->defined() || mask->scalar_type() != at::kBool || mask->dim() == 0) return {};
  if (mask->dim() > self.dim()) return {};
  check_mask(self, *mask, 0);
  Tensor wide = mask->to(self.device());
  for (std::int64_t d = mask->dim(); d < self.dim(); ++d) wide = wide.unsqueeze(-1);
  return wide;
}

/// Loops over several index dimensions become one, so that of several writes to one place the last
/// in index order stays, wherever sticks are cut.
void flatten(Brackets& brackets, Tensor& values) {
  const std::int64_t loops = static_cast<std::int64_t>(brackets.broadcast.size());
  if (loops == 1) return;
  const std::int64_t count = c10::multiply_integers(brackets.broadcast);
  for (Tensor& index : brackets.index)
    if (index.defined()) index = index.expand(brackets.broadcast).reshape(-1);
  const bool single = values.numel() == 1;
  Tensor wide = values.expand(brackets.result);
  brackets.broadcast = {count};
  auto begin = brackets.result.begin() + brackets.front;
  begin = brackets.result.erase(begin, begin + loops);
  brackets.result.insert(begin, count);
  values = single ? values.reshape({}) : wide.reshape(brackets.result);
}

Tensor& index_put(Tensor& self, const Indices& indices, const Tensor& values, bool accumulate,
                  bool /*unsafe*/) {
  if (at::has_internal_overlap(self) == at::MemOverlap::Yes)
    TORCH_WARN("Use of index_put_ on expanded tensors is deprecated. Please clone() the tensor ",
               "before performing this operation. This also applies to advanced indexing e.g. ",
               "tensor[indices] = tensor");
  TORCH_CHECK_INDEX(static_cast<std::int64_t>(indices.size()) <= self.dim(),
                    "too many indices for tensor of dimension ", self.dim(), " (got ",
                    indices.size(), ")");
  TORCH_CHECK(self.scalar_type() == values.scalar_type(),
              "Index put requires the source and destination dtypes match, got ",
              self.scalar_type(), " for the destination and ", values.scalar_type(),
              " for the source.");
  at::assert_no_overlap(self, values);
  assert_apart(self, indices);
  Tensor dense = on_device(values, self.device());
  if (!accumulate) {
    if (const Tensor mask = filling_mask(self, indices, dense); mask.defined())
      return self.masked_fill_(mask, dense.reshape({}));
  }
  Brackets brackets = work_out(self, indices);
  TORCH_CHECK(at::is_expandable_to(dense.sizes(), brackets.result),
              "shape mismatch: value tensor of shape ", dense.sizes(),
              " cannot be broadcast to indexing result of shape ", brackets.result);
  if (c10::multiply_integers(brackets.result) == 0) return self;
  flatten(brackets, dense);
  const Tensor total = accumulate ? accumulated(self) : self;
  run_indexing(
      indexing_of(accumulate ? OpFunc::indexputadd : OpFunc::indexput, total, brackets, dense));
  if (!total.is_same(self)) self.copy_(total);
  return self;
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("index.Tensor", index);
  m.impl("index.Tensor_out", index_out);
  m.impl("_index_put_impl_", index_put);
}

}  // namespace spyre::eager
