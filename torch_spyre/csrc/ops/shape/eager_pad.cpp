// Reflection and replication padding of the last dimensions, and their gradients.
//
// Padding is a copy of boxes: in each dimension what lies before the input, the input, and what
// lies behind. A gradient folds the outer parts back, one dimension after the other, in float32.
#include <algorithm>
#include <vector>

#include <ATen/native/Padding.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/flip.h>
#include <ATen/ops/reflection_pad1d_backward_meta.h>
#include <ATen/ops/reflection_pad1d_meta.h>
#include <ATen/ops/reflection_pad3d_backward_meta.h>
#include <ATen/ops/reflection_pad3d_meta.h>
#include <ATen/ops/replication_pad1d_backward_meta.h>
#include <ATen/ops/replication_pad1d_meta.h>
#include <ATen/ops/replication_pad2d_meta.h>
#include <ATen/ops/replication_pad3d_meta.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include "ops/memory/spyre_copy.h"
#include "ops/shape/eager_boxes.h"
#include "tensor/eager_structured.h"
#include "tensor/eager_variants.h"

namespace spyre::eager {
namespace {

using at::IntArrayRef;
using at::Tensor;

enum class Pad { reflect, replicate };

/// What is added before and behind a dimension; negative where elements are cut off.
struct Margins {
  std::int64_t before, behind;
};

/// PyTorch has the last dimension first.
Margins margins_of(IntArrayRef padding, std::int64_t dim, std::int64_t rank) {
  const std::int64_t i = rank - 1 - dim;
  if (2 * i >= static_cast<std::int64_t>(padding.size())) return {0, 0};
  return {padding[2 * i], padding[2 * i + 1]};
}

std::vector<Stretch> stretches(Pad pad, std::int64_t size, Margins margins) {
  const std::int64_t total = size + margins.before + margins.behind, step = pad == Pad::reflect;
  std::vector<Stretch> parts;
  // Of the output from `begin` to `end`: what is there, whose first element comes from `from`.
  const auto add = [&](std::int64_t begin, std::int64_t end, std::int64_t from, std::int64_t by) {
    const std::int64_t first = std::max<std::int64_t>(begin, 0);
    const std::int64_t count = std::min(end, total) - first;
    if (count > 0) parts.push_back({count, from + (first - begin) * by, by, first});
  };
  const std::int64_t behind = margins.before + size;
  add(0, margins.before, step * margins.before, -step);
  add(margins.before, behind, 0, 1);
  add(behind, total, size - 1 - step, -step);
  return parts;
}

void pad_to(Pad pad, const Tensor& self, IntArrayRef padding, const Tensor& out) {
  if (out.numel() == 0) return;
  std::vector<std::vector<Stretch>> all;
  for (std::int64_t d = 0; d < self.dim(); ++d)
    all.push_back(stretches(pad, self.size(d), margins_of(padding, d, self.dim())));
  copy_boxes({self}, out, boxes_of(self, out, all));
}

/// The gradient of one dimension of `size` elements.
Tensor folded(Pad pad, const Tensor& grad, std::int64_t dim, std::int64_t size, Margins margins) {
  at::DimVector sizes(grad.sizes());
  sizes[dim] = size;
  Tensor sum = at::zeros(sizes, grad.options());
  for (const Stretch& stretch : stretches(pad, size, margins)) {
    const Tensor part = grad.narrow(dim, stretch.to, stretch.size);
    if (stretch.step == 1)
      sum.narrow(dim, stretch.from, stretch.size).add_(part);
    else if (stretch.step == 0)
      sum.narrow(dim, stretch.from, 1).add_(part.sum(dim, /*keepdim=*/true));
    else
      sum.narrow(dim, stretch.from - stretch.size + 1, stretch.size).add_(part.flip(dim));
  }
  return sum;
}

void fold_to(Pad pad, const Tensor& grad, const Tensor& self, IntArrayRef padding,
             const Tensor& grad_input) {
  if (grad_input.numel() == 0) return;
  Tensor sum = grad.to(at::kFloat);
  for (std::int64_t d = 0; d < self.dim(); ++d) {
    const Margins margins = margins_of(padding, d, self.dim());
    if (margins.before != 0 || margins.behind != 0)
      sum = folded(pad, sum, d, self.size(d), margins);
  }
  copy_from(sum, grad_input, false);
}

/// Of a result that is made, channels that come last in the input come last.
template <class Meta, Pad pad>
Tensor& padded(const Tensor& self, IntArrayRef padding, Tensor& out) {
  const bool made = !out.defined();
  shape_outputs<Meta>(out, self, padding);
  if (made) out.unsafeGetTensorImpl()->empty_tensor_restride(self.suggest_memory_format());
  pad_to(pad, self, padding, out);
  return out;
}

template <class Meta, Pad pad>
Tensor& pad_backward_out(const Tensor& grad, const Tensor& self, IntArrayRef padding,
                         Tensor& grad_input) {
  shape_outputs<Meta>(grad_input, grad, self, padding);
  fold_to(pad, grad, self, padding, grad_input);
  return grad_input;
}

// ---------------------------------------------------- those whose shape function PyTorch keeps

at::DimVector padded_size(const Tensor& self, IntArrayRef padding) {
  at::DimVector size(self.sizes());
  for (std::int64_t d = 0; d < self.dim(); ++d) {
    const Margins margins = margins_of(padding, d, self.dim());
    size[d] += margins.before + margins.behind;
  }
  return size;
}

at::DimVector reflected_size(const Tensor& self, IntArrayRef padding) {
  at::native::padding::check_valid_input<2>(self, padding);
  for (std::int64_t d = self.dim() - 2; d < self.dim(); ++d) {
    const Margins margins = margins_of(padding, d, self.dim());
    TORCH_CHECK(
        margins.before < self.size(d) && margins.behind < self.size(d), "Argument #",
        d == self.dim() - 1 ? 4 : 6,
        ": Padding size should be less than the corresponding input dimension, but got: padding (",
        margins.before, ", ", margins.behind, ") at dimension ", d, " of input ", self.sizes());
  }
  at::DimVector size = padded_size(self, padding);
  TORCH_CHECK(size[self.dim() - 1] >= 1 && size[self.dim() - 2] >= 1, "input ", self.sizes(),
              " is too small. Calculated output: ", IntArrayRef(size));
  return size;
}

Tensor& reflection_pad2d(const Tensor& self, IntArrayRef padding, Tensor& out) {
  const at::DimVector size = reflected_size(self, padding);
  size_output("reflection_pad2d", out, size,
              self.options().memory_format(self.suggest_memory_format()));
  pad_to(Pad::reflect, self, padding, out);
  return out;
}

template <Pad pad, int dims>
Tensor& backward(const Tensor& grad, const Tensor& self, IntArrayRef padding, Tensor& grad_input) {
  at::native::padding::check_valid_input<dims>(self, padding);
  const at::DimVector size = padded_size(self, padding);
  TORCH_CHECK(grad.sizes() == IntArrayRef(size), "grad_output has size ", grad.sizes(),
              ", but padding ", self.sizes(), " by ", padding, " gives ", IntArrayRef(size), ".");
  size_output("padding", grad_input, self.sizes(), self.options());
  fold_to(pad, grad, self, padding, grad_input);
  return grad_input;
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  using namespace at::meta;
  m.impl("reflection_pad1d.out", padded<structured_reflection_pad1d, Pad::reflect>);
  implement<reflection_pad2d>(m, "reflection_pad2d", "reflection_pad2d.out");
  m.impl("reflection_pad3d.out", padded<structured_reflection_pad3d, Pad::reflect>);
  m.impl("replication_pad1d.out", padded<structured_replication_pad1d, Pad::replicate>);
  implement<padded<structured_replication_pad2d, Pad::replicate>>(m, "replication_pad2d",
                                                                  "replication_pad2d.out");
  m.impl("replication_pad3d.out", padded<structured_replication_pad3d, Pad::replicate>);

  m.impl("reflection_pad1d_backward.grad_input",
         pad_backward_out<structured_reflection_pad1d_backward, Pad::reflect>);
  implement<backward<Pad::reflect, 2>>(m, "reflection_pad2d_backward",
                                       "reflection_pad2d_backward.grad_input");
  m.impl("reflection_pad3d_backward.grad_input",
         pad_backward_out<structured_reflection_pad3d_backward, Pad::reflect>);
  m.impl("replication_pad1d_backward.grad_input",
         pad_backward_out<structured_replication_pad1d_backward, Pad::replicate>);
  implement<backward<Pad::replicate, 2>>(m, "replication_pad2d_backward",
                                         "replication_pad2d_backward.grad_input");
  implement<backward<Pad::replicate, 3>>(m, "replication_pad3d_backward",
                                         "replication_pad3d_backward.grad_input");
}

}  // namespace spyre::eager
