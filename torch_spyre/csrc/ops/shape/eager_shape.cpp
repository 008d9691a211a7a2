// Ops that rearrange elements: concatenation, flips, rolls, triangles, and what follows from them.
#include <algorithm>
#include <utility>
#include <vector>

#include <ATen/MemoryOverlap.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat_meta.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/ge.h>
#include <ATen/ops/le.h>
#include <ATen/ops/native_channel_shuffle.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/tril_meta.h>
#include <ATen/ops/triu_meta.h>
#include <ATen/ops/zeros.h>
#include <c10/core/WrapDimMinimal.h>
#include <torch/library.h>

#include "ops/pointwise/eager_pointwise.h"
#include "ops/shape/eager_boxes.h"
#include "tensor/eager_structured.h"
#include "tensor/eager_variants.h"

namespace spyre::eager {
namespace {

using at::Tensor;

/// A vector without elements is left out of any concatenation, whatever the others' sizes are.
bool is_skipped(const Tensor& tensor) { return tensor.dim() == 1 && tensor.size(0) == 0; }

void concatenate(const at::ITensorListRef& tensors, std::int64_t dim, const Tensor& out) {
  constexpr std::size_t kSources = 256;  // of one program
  at::assert_no_internal_overlap(out);
  std::vector<Tensor> sources;
  std::vector<Box> boxes;
  const auto flush = [&] {
    copy_boxes(sources, out, std::exchange(boxes, {}));
    sources.clear();
  };
  std::int64_t position = 0;
  for (const Tensor& tensor : tensors) {
    if (is_skipped(tensor)) continue;
    const Tensor& source = sources.emplace_back(on_device(tensor, out.device()));
    at::assert_no_overlap(out, source);
    Box box;
    box.source = static_cast<std::int64_t>(sources.size()) - 1;
    box.size.assign(source.sizes().begin(), source.sizes().end());
    box.from.assign(source.strides().begin(), source.strides().end());
    box.to.assign(out.strides().begin(), out.strides().end());
    box.from_offset = source.storage_offset();
    box.to_offset = out.storage_offset() + position * out.stride(dim);
    position += source.size(dim);
    if (source.numel() == 0) {
      sources.pop_back();
    } else {
      boxes.push_back(std::move(box));
    }
    if (sources.size() == kSources) flush();
  }
  flush();
}

/// PyTorch's own functional variant would ask for the memory format of the inputs.
Tensor& cat(const at::ITensorListRef& tensors, std::int64_t dim, Tensor& out) {
  const auto checked = shape_outputs<at::meta::structured_cat>(out, tensors, dim);
  if (out.numel() > 0) concatenate(tensors, checked.dim, out);
  return out;
}

Tensor flip(const Tensor& self, at::IntArrayRef dims) {
  const Tensor out = at::empty_like(self);
  std::vector<std::vector<Stretch>> stretches;
  for (const std::int64_t size : self.sizes()) stretches.push_back({{size, 0, 1, 0}});
  std::vector<bool> flipped(self.dim());
  for (const std::int64_t each : dims) {
    const std::int64_t dim = c10::maybe_wrap_dim(each, self.dim());
    if (self.dim() == 0) break;
    TORCH_CHECK(!flipped[dim], "dim ", dim, " appears multiple times in the list of dims");
    flipped[dim] = true;
    stretches[dim] = {{self.size(dim), self.size(dim) - 1, -1, 0}};
  }
  if (self.numel() > 0) copy_boxes({self}, out, boxes_of(self, out, stretches));
  return out;
}

Tensor rolled(const Tensor& self, at::IntArrayRef shifts, at::IntArrayRef dims) {
  TORCH_CHECK(!shifts.empty(), "`shifts` required");
  if (dims.empty() && shifts.size() == 1) {
    const std::int64_t only = 0;
    return rolled(self.reshape({-1}), shifts, only).view(self.sizes());
  }
  TORCH_CHECK(shifts.size() == dims.size(),
              "shifts and dimensions must align. shifts: ", shifts.size(), ", dims:", dims.size());
  if (self.numel() == 0) return self.clone();
  std::vector<std::int64_t> starts(self.dim());  // where the first element goes
  for (std::size_t i = 0; i < dims.size(); ++i) {
    const std::int64_t dim = c10::maybe_wrap_dim(dims[i], self.dim(), /*wrap_scalar=*/false);
    const std::int64_t size = self.size(dim), start = starts[dim] + shifts[i] % size;
    starts[dim] = (start % size + size) % size;
  }
  std::vector<std::vector<Stretch>> stretches;
  for (std::int64_t d = 0; d < self.dim(); ++d) {
    const std::int64_t size = self.size(d), start = starts[d];
    stretches.push_back({{size - start, 0, 1, start}, {start, size - start, 1, 0}});
  }
  // PyTorch's own puts two parts together: the result is laid out as cat() would.
  const std::int64_t dim = c10::maybe_wrap_dim(dims[0], self.dim()), start = starts[dim];
  const std::array parts = {self.narrow(dim, self.size(dim) - start, start),
                            self.narrow(dim, 0, self.size(dim) - start)};
  Tensor out;
  shape_outputs<at::meta::structured_cat>(out, at::TensorList(parts), dim);
  copy_boxes({self}, out, boxes_of(self, out, stretches));
  return out;
}

// ------------------------------------------------------------------------------------- triangles

template <class Meta, bool lower>
Tensor& triangle_out(const Tensor& self, std::int64_t diagonal, Tensor& out) {
  shape_outputs<Meta>(out, self, diagonal);
  if (out.numel() == 0) return out;
  const std::int64_t rows = self.size(-2), columns = self.size(-1);
  diagonal = std::clamp(diagonal, -rows, columns);
  const auto options = self.options().dtype(at::kInt);
  const Tensor last = at::arange(diagonal, rows + diagonal, options).unsqueeze(1);
  const Tensor column = at::arange(columns, options);
  const Tensor kept = lower ? column.le(last) : column.ge(last);
  const Tensor zero = at::scalar_tensor(0, at::device(at::kCPU));
  pointwise(OpFunc::where3, out, {kept, self, zero}, self.scalar_type());
  return out;
}

Tensor trace(const Tensor& self) {
  TORCH_CHECK(self.dim() == 2, "trace: expected a matrix, but got a tensor with ", self.dim(),
              " dimensions");
  return at::sum(self.diagonal());
}

Tensor channel_shuffle(const Tensor& self, std::int64_t groups) {
  TORCH_CHECK(self.dim() > 2,
              "channel_shuffle expects input with > 2 dims, but got input with sizes ",
              self.sizes());
  TORCH_CHECK(groups > 0,
              "Number of groups to divide channels in must be positive. Value of groups:", groups);
  TORCH_CHECK(self.size(1) % groups == 0, "Number of channels must be divisible by groups. Got ",
              self.size(1), " channels and ", groups, " groups.");
  if (self.numel() == 0) return self.clone();
  return at::native_channel_shuffle(self, groups);
}

/// Windows that overlap add up, in float32 for the short floats.
Tensor unfold_backward(const Tensor& grad, at::IntArrayRef sizes, std::int64_t dim,
                       std::int64_t size, std::int64_t step) {
  if (sizes.empty()) return grad.reshape({-1}).sum(0);
  dim = c10::maybe_wrap_dim(dim, static_cast<std::int64_t>(sizes.size()));
  const bool wide = c10::isFloatingType(grad.scalar_type());
  Tensor sum = at::zeros(sizes, grad.options().dtype(wide ? at::kFloat : grad.scalar_type()));
  const std::int64_t windows = grad.size(dim);
  if (step >= size) {
    sum.unfold(dim, size, step).copy_(grad);
  } else if (windows < size) {
    for (std::int64_t w = 0; w < windows; ++w)
      sum.narrow(dim, w * step, size).add_(grad.select(dim, w).movedim(-1, dim));
  } else {
    for (std::int64_t i = 0; i < size; ++i)
      sum.slice(dim, i, i + (windows - 1) * step + 1, step).add_(grad.select(-1, i));
  }
  return sum.to(grad.scalar_type());
}

/// The view that narrow_copy() copies, with the CPU's errors, which are not those of narrow().
Tensor narrowed(const Tensor& self, std::int64_t dim, std::int64_t start, std::int64_t length) {
  TORCH_CHECK(self.dim() > 0, "narrow() cannot be applied to a 0-dim tensor.");
  TORCH_CHECK(dim < self.dim(), "narrow_copy(): dim ", dim, " is out of range for a tensor of ",
              self.dim(), " dimensions.");
  dim = c10::maybe_wrap_dim(dim, self.dim());
  const std::int64_t size = self.size(dim);
  TORCH_CHECK_INDEX(-size <= start && start <= size, "start out of range (expected to be in range ",
                    "of [", -size, ", ", size, "], but got ", start, ")");
  if (start < 0) start += size;
  TORCH_CHECK(length >= 0 && start <= size - length, "start (", start, ") + length (", length,
              ") exceeds dimension size (", size, ").");
  return self.narrow(dim, start, length);
}

Tensor& narrow_copy(const Tensor& self, std::int64_t dim, std::int64_t start, std::int64_t length,
                    Tensor& out) {
  const Tensor source = narrowed(self, dim, start, length);
  size_output("narrow_copy", out, source.sizes(), self.options());
  return out.copy_(source);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  implement<narrow_copy>(m, "narrow_copy", "narrow_copy.out");
  implement<cat>(m, "cat", "cat.out");
  m.impl("flip", flip);
  m.impl("roll", rolled);
  m.impl("tril.out", triangle_out<at::meta::structured_tril, true>);
  m.impl("triu.out", triangle_out<at::meta::structured_triu, false>);
  m.impl("trace", trace);
  m.impl("channel_shuffle", channel_shuffle);
  m.impl("unfold_backward", unfold_backward);
}

}  // namespace spyre::eager
