// Max pooling: the largest of each window and where it is. Gradients go back through the same
// windows.
#include <array>

#include <ATen/core/Tensor.h>
#include <ATen/native/Pool.h>
#include <ATen/ops/adaptive_max_pool2d_meta.h>
#include <ATen/ops/adaptive_max_pool3d_meta.h>
#include <ATen/ops/add.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/eq.h>
#include <ATen/ops/floor_divide.h>
#include <ATen/ops/max_pool2d_with_indices_meta.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/remainder.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include "ops/reduce/eager_reduce.h"
#include "ops/windows/eager_pool.h"
#include "tensor/eager_structured.h"
#include "tensor/eager_variants.h"

namespace spyre::eager {
namespace {

using at::IntArrayRef;
using at::Tensor;
using TwoTensors = std::tuple<Tensor&, Tensor&>;

/// From positions in windows to positions in an image.
Tensor image_positions(Tensor taps, const Windows& windows) {
  Tensor result;
  std::int64_t unit = 1;
  for (std::size_t d = windows.size(); d-- > 0;) {
    const WindowDim& dim = windows[d];
    std::vector<std::int32_t> start, inside;  // the card holds no wider integers
    for (std::int64_t o = 0; o < dim.output; ++o) {
      const std::int64_t at = dim.start + o * dim.stride;
      start.push_back(static_cast<std::int32_t>(at));
      // A window that begins in the padding: the first element of it that is real.
      const std::int64_t skipped = at < 0 ? (-at + dim.dilation - 1) / dim.dilation : 0;
      inside.push_back(static_cast<std::int32_t>(at + skipped * dim.dilation));
    }
    const Tensor tap = d == 0 ? taps : at::remainder(taps, dim.taps);
    Tensor at_dim = at::add(along(start, d, windows.size(), taps), tap, dim.dilation);
    // Where nothing is above the padding's value, the padding itself may have been found.
    if (dim.start < 0) at_dim = at::maximum(at_dim, along(inside, d, windows.size(), taps));
    result = result.defined() ? at::add(result, at_dim, unit) : at_dim;
    unit *= dim.input;
    if (d > 0) taps = at::floor_divide(taps, at::scalar_tensor(dim.taps, at::kLong));
  }
  return result;
}

void max_forward(const Tensor& input, const Pool& pool, const Tensor& values,
                 const Tensor& indices) {
  const Tensor view =
      window_view(padded(input, pool.windows, range_of(input.scalar_type()).least), pool.windows);
  const Tensor best = pool.outputs(values), where = pool.outputs(indices);
  const Tensor taps = at::empty(where.sizes(), indices.options());
  reduce({OpFunc::max, compute_in(input.scalar_type())}, view, tap_dims(pool.windows), best, taps);
  where.copy_(image_positions(taps, pool.windows));
}

/// [taps..., positions...]: where in an image each tap of each window is.
Tensor tap_positions(const Windows& windows, const Tensor& like) {
  Tensor sum;
  std::int64_t unit = 1;
  const std::size_t rank = windows.size();
  for (std::size_t d = rank; d-- > 0;) {
    std::vector<std::int32_t> taps, starts;
    for (std::int64_t t = 0; t < windows[d].taps; ++t)
      taps.push_back(static_cast<std::int32_t>(unit * t * windows[d].dilation));
    for (std::int64_t o = 0; o < windows[d].output; ++o)
      starts.push_back(
          static_cast<std::int32_t>(unit * (windows[d].start + o * windows[d].stride)));
    const Tensor own =
        at::add(along(taps, d, 2 * rank, like), along(starts, d + rank, 2 * rank, like));
    sum = sum.defined() ? at::add(sum, own) : own;
    unit *= windows[d].input;
  }
  return sum;
}

void max_backward(const Tensor& gradient, const Tensor& indices, const std::vector<Pool>& pools,
                  const Tensor& of_input) {
  const auto options = of_input.options().dtype(at::kFloat);
  const Tensor zero = at::zeros({}, gradient.options());
  WindowSum sum(of_input.sizes(), pools[0].windows, options);
  for (const Pool& pool : pools) {
    const Tensor terms = over_taps(pool.outputs(gradient), pool.windows);
    const Tensor where = over_taps(pool.outputs(indices), pool.windows);
    const Tensor positions = tap_positions(pool.windows, indices);
    sum.add(pool.windows, [&](const Taps& taps) {
      return at::where(at::eq(where, taps.cut(positions)), terms, zero);
    });
  }
  of_input.copy_(sum.result());
}

// ATen's ops

TwoTensors max_pool2d(const Tensor& self, IntArrayRef kernel, IntArrayRef stride,
                      IntArrayRef padding, IntArrayRef dilation, bool ceil, Tensor& values,
                      Tensor& indices) {
  shape_outputs<at::meta::structured_max_pool2d_with_indices>({values, indices}, self, kernel,
                                                              stride, padding, dilation, ceil);
  if (values.numel() == 0) return {values, indices};
  TORCH_CHECK_NOT_IMPLEMENTED(self.scalar_type() != at::kBool,
                              "\"max_pool2d\" not implemented for 'Bool'");
  const Tensor input = batched(self, 2), output = batched(values, 2);
  max_forward(input, fixed_pool(input, output, kernel, stride, padding, dilation), output,
              batched(indices, 2));
  return {values, indices};
}

TwoTensors max_pool3d(const Tensor& self, IntArrayRef kernel, IntArrayRef stride,
                      IntArrayRef padding, IntArrayRef dilation, bool ceil, Tensor& values,
                      Tensor& indices) {
  const auto one_or_three = [](IntArrayRef list) { return list.size() == 1 || list.size() == 3; };
  TORCH_CHECK(one_or_three(kernel),
              "max_pool3d: kernel_size must either be a single int, or a tuple of three ints");
  TORCH_CHECK(stride.empty() || one_or_three(stride),
              "max_pool3d: stride must either be omitted, a single int, or a tuple of three ints");
  TORCH_CHECK(one_or_three(padding),
              "max_pool3d: padding must either be a single int, or a tuple of three ints");
  TORCH_CHECK(one_or_three(dilation),
              "max_pool3d: dilation must be either a single int, or a tuple of three ints");
  TORCH_CHECK(self.dim() == 4 || self.dim() == 5,
              "max_pool3d(): Expected 4D or 5D tensor, but got ", self.dim(), "D");
  std::array<std::int64_t, 3> taps, step, pad, spread, size;
  at::DimVector full(self.sizes());
  for (std::size_t d = 0; d < 3; ++d) {
    taps[d] = at_dim(kernel, d);
    step[d] = at_dim(stride, d, taps[d]);
    pad[d] = at_dim(padding, d, 0);
    spread[d] = at_dim(dilation, d);
    size[d] = at::native::pooling_output_shape<std::int64_t>(self.sizes().end()[-3 + d], taps[d],
                                                             pad[d], step[d], spread[d], ceil);
    full.end()[-3 + d] = size[d];
  }
  at::native::pool3d_shape_check(self, self.size(-4), taps[0], taps[1], taps[2], step[0], step[1],
                                 step[2], pad[0], pad[1], pad[2], spread[0], spread[1], spread[2],
                                 self.size(-3), self.size(-2), self.size(-1), size[0], size[1],
                                 size[2], "max_pool3d_with_indices_out()");
  TORCH_CHECK_NOT_IMPLEMENTED(self.scalar_type() != at::kBool,
                              "\"max_pool3d\" not implemented for 'Bool'");
  const auto options = self.options().memory_format(self.suggest_memory_format());
  size_output("max_pool3d", values, full, options);
  size_output("max_pool3d", indices, full, options.dtype(at::kLong));
  if (values.numel() == 0) return {values, indices};
  const Tensor input = batched(self, 3), output = batched(values, 3);
  max_forward(input, fixed_pool(input, output, taps, step, pad, spread), output,
              batched(indices, 3));
  return {values, indices};
}

template <std::size_t spatial>
Tensor& max_pool_backward(const Tensor& gradient, const Tensor& self, IntArrayRef kernel,
                          IntArrayRef stride, IntArrayRef padding, IntArrayRef dilation,
                          bool /*ceil*/, const Tensor& indices, Tensor& out) {
  check_floating("max_pool_backward", self);
  size_output("max_pool_backward", out, self.sizes(),
              self.options().memory_format(self.suggest_memory_format()));
  if (out.numel() == 0) return out;
  const Tensor input = batched(out, spatial), output = batched(gradient, spatial);
  max_backward(output, batched(indices, spatial),
               {fixed_pool(input, output, kernel, stride, padding, dilation)}, input);
  return out;
}

template <class Meta, std::size_t spatial>
TwoTensors adaptive_max_pool(const Tensor& self, IntArrayRef size, Tensor& values,
                             Tensor& indices) {
  shape_outputs<Meta>({values, indices}, self, size);
  if (values.numel() == 0) return {values, indices};
  check_floating("adaptive_max_pool", self);
  const Tensor input = batched(self, spatial), output = batched(values, spatial);
  for (const Pool& pool : adaptive_pools(input, output))
    max_forward(input, pool, output, batched(indices, spatial));
  return {values, indices};
}

template <std::size_t spatial>
Tensor& adaptive_max_pool_backward(const Tensor& gradient, const Tensor& self,
                                   const Tensor& indices, Tensor& out) {
  size_output("adaptive_max_pool_backward", out, self.sizes(), options_like<spatial>(self));
  if (out.numel() == 0) return out;
  if (gradient.numel() == 0) return out.zero_();
  const Tensor input = batched(out, spatial), output = batched(gradient, spatial);
  max_backward(output, batched(indices, spatial), adaptive_pools(input, output), input);
  return out;
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  namespace meta = at::meta;
  implement<max_pool2d>(m, "max_pool2d_with_indices", "max_pool2d_with_indices.out");
  implement<max_pool_backward<2>>(m, "max_pool2d_with_indices_backward",
                                  "max_pool2d_with_indices_backward.grad_input");
  implement<max_pool3d>(m, "max_pool3d_with_indices", "max_pool3d_with_indices.out");
  implement<max_pool_backward<3>>(m, "max_pool3d_with_indices_backward",
                                  "max_pool3d_with_indices_backward.grad_input");
  implement<adaptive_max_pool<meta::structured_adaptive_max_pool2d, 2>>(m, "adaptive_max_pool2d",
                                                                        "adaptive_max_pool2d.out");
  implement<adaptive_max_pool_backward<2>>(m, "adaptive_max_pool2d_backward",
                                           "adaptive_max_pool2d_backward.grad_input");
  implement<adaptive_max_pool<meta::structured_adaptive_max_pool3d, 3>>(m, "adaptive_max_pool3d",
                                                                        "adaptive_max_pool3d.out");
  implement<adaptive_max_pool_backward<3>>(m, "adaptive_max_pool3d_backward",
                                           "adaptive_max_pool3d_backward.grad_input");
}

}  // namespace spyre::eager
