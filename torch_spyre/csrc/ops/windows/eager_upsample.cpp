// Resizing images, one dimension after the other. Along a dimension every output is a weighted sum
// of a few inputs: of one for nearest, two for linear, four for cubic. Which ones is known
// beforehand, so elements move in evenly spaced runs instead of one by one.
#include <algorithm>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/native/UpSample.h>
#include <ATen/ops/_upsample_nearest_exact1d_backward_meta.h>
#include <ATen/ops/_upsample_nearest_exact1d_meta.h>
#include <ATen/ops/_upsample_nearest_exact2d_backward_meta.h>
#include <ATen/ops/_upsample_nearest_exact2d_meta.h>
#include <ATen/ops/_upsample_nearest_exact3d_backward_meta.h>
#include <ATen/ops/_upsample_nearest_exact3d_meta.h>
#include <ATen/ops/add.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/upsample_bicubic2d_backward_meta.h>
#include <ATen/ops/upsample_bicubic2d_meta.h>
#include <ATen/ops/upsample_bilinear2d_backward_meta.h>
#include <ATen/ops/upsample_bilinear2d_meta.h>
#include <ATen/ops/upsample_linear1d_backward_meta.h>
#include <ATen/ops/upsample_linear1d_meta.h>
#include <ATen/ops/upsample_nearest1d_backward_meta.h>
#include <ATen/ops/upsample_nearest1d_meta.h>
#include <ATen/ops/upsample_nearest2d_backward_meta.h>
#include <ATen/ops/upsample_nearest2d_meta.h>
#include <ATen/ops/upsample_nearest3d_backward_meta.h>
#include <ATen/ops/upsample_nearest3d_meta.h>
#include <ATen/ops/upsample_trilinear3d_backward_meta.h>
#include <ATen/ops/upsample_trilinear3d_meta.h>
#include <torch/library.h>

#include "ops/pointwise/eager_pointwise.h"
#include "ops/windows/eager_pool.h"
#include "tensor/eager_structured.h"
#include "tensor/eager_variants.h"

namespace spyre::eager {
namespace {

using at::Tensor;
using Scale = std::optional<double>;

enum class Kind { nearest, nearest_exact, linear, cubic };

// Which inputs an output takes

/// One input for each output, and its weight; without weights the input itself.
struct Tap {
  std::vector<std::int64_t> source;
  std::vector<float> weight;
};

std::vector<Tap> taps_of(Kind kind, std::int64_t in, std::int64_t out, bool align_corners,
                         Scale scale) {
  namespace native = at::native;
  if (kind == Kind::nearest || kind == Kind::nearest_exact) {
    std::vector<Tap> taps(1);
    const auto index = kind == Kind::nearest ? native::nearest_idx : native::nearest_exact_idx;
    for (std::int64_t o = 0; o < out; ++o) taps[0].source.push_back(index(o, in, out, scale));
    return taps;
  }
  const bool cubic = kind == Kind::cubic;
  std::vector<Tap> taps(cubic ? 4 : 2);
  const auto ratio = native::area_pixel_compute_scale<float>(in, out, align_corners, scale);
  for (std::int64_t o = 0; o < out; ++o) {
    float weights[4];
    std::int64_t first = 0, second = 0;
    if (cubic) {
      const float real = native::area_pixel_compute_source_index(ratio, o, align_corners, true);
      float lambda = 0;
      native::guard_index_and_lambda(real, in, first, lambda);
      native::get_cubic_upsample_coefficients<float>(weights, lambda);
    } else {
      native::compute_source_index_and_lambda(first, second, weights[0], weights[1], ratio, o, in,
                                              out, align_corners);
    }
    for (std::size_t t = 0; t < taps.size(); ++t) {
      const std::int64_t at =
          cubic ? first - 1 + static_cast<std::int64_t>(t) : (t == 0 ? first : second);
      taps[t].source.push_back(std::clamp<std::int64_t>(at, 0, in - 1));
      taps[t].weight.push_back(weights[t]);
    }
  }
  return taps;
}

/// Outputs first, first + step, ... take inputs start, start + stride, ...
struct Run {
  std::int64_t first, step, count, start, stride;

  Tensor outputs(const Tensor& tensor, std::int64_t dim) const {
    return tensor.slice(dim, first, first + (count - 1) * step + 1, step);
  }
  /// With stride 0 one input.
  Tensor inputs(const Tensor& tensor, std::int64_t dim) const {
    if (stride == 0) return tensor.narrow(dim, start, 1);
    return tensor.slice(dim, start, start + (count - 1) * stride + 1, stride);
  }
};

/// Runs of outputs that are `period` apart.
std::vector<Run> runs_of(const std::vector<std::int64_t>& source, std::int64_t period) {
  std::vector<Run> runs;
  const auto count = static_cast<std::int64_t>(source.size());
  for (std::int64_t begin = 0; begin < std::min(period, count); ++begin) {
    Run run{begin, period, 1, source[begin], 0};
    for (std::int64_t o = begin + period; o < count; o += period) {
      const std::int64_t stride = source[o] - source[o - period];
      if (stride >= 0 && (run.count == 1 || stride == run.stride)) {
        run.stride = stride;
        ++run.count;
        continue;
      }
      runs.push_back(run);
      run = {o, period, 1, source[o], 0};
    }
    runs.push_back(run);
  }
  return runs;
}

/// With the period that gives the fewest: a resize by a ratio p / q repeats itself after p outputs,
/// but for the edges.
std::vector<Run> runs_of(const std::vector<std::int64_t>& source) {
  constexpr std::int64_t kLongestPeriod = 64;
  std::vector<Run> best = runs_of(source, 1);
  for (std::int64_t period = 2; period <= kLongestPeriod; ++period) {
    if (static_cast<std::size_t>(period) >= best.size()) break;
    std::vector<Run> runs = runs_of(source, period);
    if (runs.size() < best.size()) best = std::move(runs);
  }
  return best;
}

Tensor resized(const Tensor& x, std::int64_t dim, std::int64_t length, c10::ScalarType dtype) {
  at::DimVector size(x.sizes());
  size[dim] = length;
  return at::empty(size, x.options().dtype(dtype));
}

// Along one dimension

Tensor gather(const Tensor& x, std::int64_t dim, const Tap& tap) {
  const Tensor result =
      resized(x, dim, static_cast<std::int64_t>(tap.source.size()), x.scalar_type());
  for (const Run& run : runs_of(tap.source)) run.outputs(result, dim).copy_(run.inputs(x, dim));
  return result;
}

Tensor resample(const Tensor& x, std::int64_t dim, const std::vector<Tap>& taps) {
  if (taps[0].weight.empty()) return gather(x, dim, taps[0]);
  const Tensor sum = resized(x, dim, static_cast<std::int64_t>(taps[0].source.size()), at::kFloat);
  for (const Tap& tap : taps) {
    const Tensor weight = along(tap.weight, dim, x.dim(), x), terms = gather(x, dim, tap);
    if (&tap == &taps[0])
      pointwise(OpFunc::mul, sum, {terms, weight}, at::kFloat);
    else
      pointwise(OpFunc::addcmul, sum, {sum, terms, weight}, at::kFloat, {1});
  }
  return sum;
}

Tensor resample_backward(const Tensor& gradient, std::int64_t dim, std::int64_t length,
                         const std::vector<Tap>& taps) {
  const Tensor sum = resized(gradient, dim, length, at::kFloat).zero_();
  for (const Tap& tap : taps) {
    Tensor terms = gradient;
    if (!tap.weight.empty()) {
      terms = resized(gradient, dim, gradient.size(dim), at::kFloat);
      pointwise(OpFunc::mul, terms, {gradient, along(tap.weight, dim, gradient.dim(), gradient)},
                at::kFloat);
    }
    for (const Run& run : runs_of(tap.source)) {
      const Tensor part = run.outputs(terms, dim);
      const bool one_input = run.stride == 0 && run.count > 1;
      run.inputs(sum, dim).add_(one_input ? at::sum(part, {dim}, true, at::kFloat) : part);
    }
  }
  return sum;
}

// ATen's ops

void check_dtype(Kind kind, const Tensor& tensor) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      kind == Kind::nearest || kind == Kind::nearest_exact || tensor.is_floating_point(),
      "interpolation is not implemented for ", tensor.toString(),
      " on spyre. Convert it with .to(torch.float16), or use mode='nearest'.");
}

Tensor& resize_forward(Kind kind, const Tensor& self, bool align_corners,
                       std::initializer_list<Scale> scales, Tensor& out) {
  if (out.numel() == 0) return out;
  check_dtype(kind, self);
  Tensor x = self;
  std::int64_t dim = 2;
  for (const Scale scale : scales) {
    x = resample(x, dim, taps_of(kind, self.size(dim), out.size(dim), align_corners, scale));
    ++dim;
  }
  return out.copy_(x);
}

Tensor& resize_backward(Kind kind, const Tensor& gradient, bool align_corners,
                        std::initializer_list<Scale> scales, Tensor& out) {
  if (out.numel() == 0) return out;
  check_dtype(Kind::linear, gradient);
  Tensor x = gradient;
  std::int64_t dim = 2;
  for (const Scale scale : scales) {
    const std::int64_t in = out.size(dim);
    x = resample_backward(x, dim, in, taps_of(kind, in, gradient.size(dim), align_corners, scale));
    ++dim;
  }
  return out.copy_(x);
}

// Ops with and without align_corners; `Scales`: one a dimension.

template <Kind kind, class Meta, class... Scales>
Tensor& nearest(const Tensor& self, at::IntArrayRef size, Scales... scales, Tensor& out) {
  shape_outputs<Meta>(out, self, size, scales...);
  return resize_forward(kind, self, false, {scales...}, out);
}
template <Kind kind, class Meta, class... Scales>
Tensor& nearest_backward(const Tensor& grad, at::IntArrayRef size, at::IntArrayRef input_size,
                         Scales... scales, Tensor& out) {
  shape_outputs<Meta>(out, grad, size, input_size, scales...);
  return resize_backward(kind, grad, false, {scales...}, out);
}

template <Kind kind, class Meta, class... Scales>
Tensor& smooth(const Tensor& self, at::IntArrayRef size, bool align, Scales... scales,
               Tensor& out) {
  shape_outputs<Meta>(out, self, size, align, scales...);
  return resize_forward(kind, self, align, {scales...}, out);
}
template <Kind kind, class Meta, class... Scales>
Tensor& smooth_backward(const Tensor& grad, at::IntArrayRef size, at::IntArrayRef input_size,
                        bool align, Scales... scales, Tensor& out) {
  shape_outputs<Meta>(out, grad, size, input_size, align, scales...);
  return resize_backward(kind, grad, align, {scales...}, out);
}

template <auto forward, auto backward>
void register_op(torch::Library& m, const std::string& name) {
  implement<forward>(m, name.c_str(), (name + ".out").c_str());
  implement<backward>(m, (name + "_backward").c_str(), (name + "_backward.grad_input").c_str());
}

}  // namespace

#define SPYRE_RESIZE(name, ways, kind, ...)                                                      \
  register_op<ways<Kind::kind, at::meta::structured_##name, __VA_ARGS__>,                        \
              ways##_backward<Kind::kind, at::meta::structured_##name##_backward, __VA_ARGS__>>( \
      m, #name)

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  using S = Scale;
  SPYRE_RESIZE(upsample_nearest1d, nearest, nearest, S);
  SPYRE_RESIZE(upsample_nearest2d, nearest, nearest, S, S);
  SPYRE_RESIZE(upsample_nearest3d, nearest, nearest, S, S, S);
  SPYRE_RESIZE(_upsample_nearest_exact1d, nearest, nearest_exact, S);
  SPYRE_RESIZE(_upsample_nearest_exact2d, nearest, nearest_exact, S, S);
  SPYRE_RESIZE(_upsample_nearest_exact3d, nearest, nearest_exact, S, S, S);
  SPYRE_RESIZE(upsample_linear1d, smooth, linear, S);
  SPYRE_RESIZE(upsample_bilinear2d, smooth, linear, S, S);
  SPYRE_RESIZE(upsample_trilinear3d, smooth, linear, S, S, S);
  SPYRE_RESIZE(upsample_bicubic2d, smooth, cubic, S, S);
}

}  // namespace spyre::eager
