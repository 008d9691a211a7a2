// Average pooling: means over windows. Gradients go back through the same windows.
#include <algorithm>

#include <ATen/core/Tensor.h>
#include <ATen/ops/avg_pool2d_meta.h>
#include <ATen/ops/avg_pool3d_meta.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/scalar_tensor.h>
#include <torch/library.h>

#include "ops/pointwise/eager_pointwise.h"
#include "ops/reduce/eager_reduce.h"
#include "ops/windows/eager_pool.h"
#include "tensor/eager_structured.h"
#include "tensor/eager_variants.h"

namespace spyre::eager {
namespace {

using at::IntArrayRef;
using at::Tensor;

/// What sums over windows are divided by: one number, or one a position.
struct Divisor {
  double number = 1;
  Tensor each;  ///< [positions...], in float32

  Divisor(const Windows& windows, bool count_padding, IntArrayRef padding,
          std::optional<std::int64_t> given, const Tensor& like) {
    if (given) {
      number = static_cast<double>(*given);
      return;
    }
    for (std::size_t d = 0; d < windows.size(); ++d) {
      const WindowDim& dim = windows[d];
      const std::int64_t edge = dim.input + (count_padding ? at_dim(padding, d, 0) : 0);
      std::vector<float> counts;
      for (std::int64_t o = 0; o < dim.output; ++o) {
        const std::int64_t begin = dim.start + o * dim.stride;
        const std::int64_t from = count_padding ? begin : std::max<std::int64_t>(begin, 0);
        counts.push_back(static_cast<float>(std::min(begin + dim.taps, edge) - from));
      }
      const bool uniform =
          std::all_of(counts.begin(), counts.end(), [&](float c) { return c == counts[0]; });
      if (uniform) {
        number *= counts.empty() ? 1 : counts[0];
        continue;
      }
      const Tensor own = along(counts, d, windows.size(), like);
      each = each.defined() ? at::mul(each, own) : own;
    }
    if (each.defined()) each = at::mul(each, number);
  }
};

void mean_forward(const Tensor& input, const Pool& pool, const Divisor& divisor,
                  const Tensor& output) {
  const Tensor view = window_view(padded(input, pool.windows, 0), pool.windows);
  const Tensor means = pool.outputs(output);
  const DimSet dims = tap_dims(pool.windows);
  const bool integers = c10::isIntegralType(input.scalar_type(), true);
  if (!divisor.each.defined() && !integers) {
    reduce({OpFunc::mean, card::Compute::fp32, 1 / divisor.number}, view, dims, means);
    return;
  }
  const Tensor sums =
      at::empty(means.sizes(), means.options().dtype(integers ? at::kLong : at::kFloat));
  reduce({OpFunc::sum, compute_in(input.scalar_type())}, view, dims, sums);
  if (integers) {
    const Tensor by = divisor.each.defined() ? divisor.each.to(at::kLong)
                                             : at::scalar_tensor(divisor.number, at::kLong);
    pointwise(OpFunc::truncdivide, means, {sums, by}, at::kLong);
  } else {
    pointwise(OpFunc::realdiv, means, {sums, divisor.each}, at::kFloat);
  }
}

void mean_backward(const Tensor& gradient, const Pool& pool, const Divisor& divisor,
                   WindowSum& sum) {
  const Tensor own = pool.outputs(gradient);
  const Tensor share = at::empty(own.sizes(), own.options().dtype(at::kFloat));
  pointwise(OpFunc::realdiv, share,
            {own, divisor.each.defined() ? divisor.each : at::scalar_tensor(divisor.number)},
            at::kFloat);
  const Tensor terms = over_taps(share, pool.windows);
  sum.add(pool.windows, [&](const Taps&) { return terms; });
}

// ATen's ops

template <class Meta, std::size_t spatial>
Tensor& avg_pool(const Tensor& self, IntArrayRef kernel, IntArrayRef stride, IntArrayRef padding,
                 bool ceil, bool count_padding, std::optional<std::int64_t> given, Tensor& out) {
  shape_outputs<Meta>(out, self, kernel, stride, padding, ceil, count_padding, given);
  if (out.numel() == 0) return out;
  TORCH_CHECK_NOT_IMPLEMENTED(self.is_floating_point() || self.scalar_type() == at::kLong,
                              "\"avg_pool\" not implemented for '", self.toString(), "'");
  const Tensor input = batched(self, spatial), output = batched(out, spatial);
  const Pool pool = fixed_pool(input, output, kernel, stride, padding, {});
  mean_forward(input, pool, Divisor(pool.windows, count_padding, padding, given, self), output);
  return out;
}

template <std::size_t spatial>
Tensor& avg_pool_backward(const Tensor& gradient, const Tensor& self, IntArrayRef kernel,
                          IntArrayRef stride, IntArrayRef padding, bool /*ceil*/,
                          bool count_padding, std::optional<std::int64_t> given, Tensor& out) {
  check_floating("avg_pool_backward", self);
  size_output("avg_pool_backward", out, self.sizes(), options_like<spatial>(self));
  if (out.numel() == 0) return out;
  const Tensor input = batched(out, spatial), output = batched(gradient, spatial);
  const Pool pool = fixed_pool(input, output, kernel, stride, padding, {});
  WindowSum sum(input.sizes(), pool.windows, self.options().dtype(at::kFloat));
  mean_backward(output, pool, Divisor(pool.windows, count_padding, padding, given, self), sum);
  input.copy_(sum.result());
  return out;
}

template <std::size_t spatial>
Tensor& adaptive_avg_pool(const Tensor& self, IntArrayRef size, Tensor& out) {
  TORCH_CHECK(size.size() == spatial, "adaptive_avg_pool", spatial, "d: output_size must be ",
              spatial);
  TORCH_CHECK(self.dim() == spatial + 1 || self.dim() == spatial + 2, "adaptive_avg_pool", spatial,
              "d(): Expected ", spatial + 1, "D or ", spatial + 2, "D tensor, but got ",
              self.sizes());
  for (std::int64_t d = -static_cast<std::int64_t>(spatial); d < 0; ++d)
    TORCH_CHECK(
        self.size(d) > 0, "adaptive_avg_pool", spatial,
        "d(): Expected input to have non-zero size for non-batch dimensions, but input has sizes ",
        self.sizes(), " with dimension ", self.dim() + d, " being empty");
  check_floating("adaptive_avg_pool", self);
  at::DimVector full(self.sizes());
  std::copy(size.begin(), size.end(), full.end() - spatial);
  size_output("adaptive_avg_pool", out, full, options_like<spatial>(self));
  if (out.numel() == 0) return out;
  const Tensor input = batched(self, spatial), output = batched(out, spatial);
  for (const Pool& pool : adaptive_pools(input, output))
    mean_forward(input, pool, Divisor(pool.windows, true, {}, taps_of(pool.windows), self), output);
  return out;
}

template <std::size_t spatial>
Tensor& adaptive_avg_pool_backward(const Tensor& gradient, const Tensor& self, Tensor& out) {
  size_output("adaptive_avg_pool_backward", out, self.sizes(), options_like<spatial>(self));
  if (out.numel() == 0) return out;
  if (gradient.numel() == 0) return out.zero_();
  const Tensor input = batched(out, spatial), output = batched(gradient, spatial);
  const std::vector<Pool> pools = adaptive_pools(input, output);
  WindowSum sum(input.sizes(), pools[0].windows, self.options().dtype(at::kFloat));
  for (const Pool& pool : pools)
    mean_backward(output, pool, Divisor(pool.windows, true, {}, taps_of(pool.windows), self), sum);
  input.copy_(sum.result());
  return out;
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  namespace meta = at::meta;
  implement<avg_pool<meta::structured_avg_pool2d, 2>>(m, "avg_pool2d", "avg_pool2d.out");
  implement<avg_pool<meta::structured_avg_pool3d, 3>>(m, "avg_pool3d", "avg_pool3d.out");
  implement<avg_pool_backward<2>>(m, "avg_pool2d_backward", "avg_pool2d_backward.grad_input");
  implement<avg_pool_backward<3>>(m, "avg_pool3d_backward", "avg_pool3d_backward.grad_input");
  implement<adaptive_avg_pool<2>>(m, "_adaptive_avg_pool2d", "adaptive_avg_pool2d.out");
  m.impl("_adaptive_avg_pool2d_backward", functional<adaptive_avg_pool_backward<2>>);
  implement<adaptive_avg_pool<3>>(m, "_adaptive_avg_pool3d", "adaptive_avg_pool3d.out");
  implement<adaptive_avg_pool_backward<3>>(m, "_adaptive_avg_pool3d_backward",
                                           "adaptive_avg_pool3d_backward.grad_input");
}

}  // namespace spyre::eager
