// Windows of pooling ops, for maxima and means.
#pragma once

#include <numeric>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/tensor.h>

#include "ops/windows/eager_windows.h"
#include "program/eager_lines.h"

namespace spyre::eager {

/// Windows of some outputs, and which outputs those are.
struct Pool {
  Windows windows;
  c10::SmallVector<std::int64_t, 3> first, step;  ///< empty: all of them

  at::Tensor outputs(at::Tensor all) const {
    for (std::size_t d = 0; d < first.size(); ++d)
      all = all.slice(static_cast<std::int64_t>(d) + 2, first[d], std::nullopt, step[d]);
    return all;
  }
};

/// With a dimension for images, which PyTorch lets users leave out.
inline at::Tensor batched(const at::Tensor& tensor, std::size_t spatial) {
  return tensor.dim() == static_cast<std::int64_t>(spatial) + 1 ? tensor.unsqueeze(0) : tensor;
}

/// A value a dimension: one given stands for all, none for `otherwise`.
inline std::int64_t at_dim(at::IntArrayRef values, std::size_t d, std::int64_t otherwise = 1) {
  if (values.empty()) return otherwise;
  return values.size() == 1 ? values[0] : values[d];
}

inline Pool fixed_pool(const at::Tensor& input, const at::Tensor& output, at::IntArrayRef kernel,
                       at::IntArrayRef stride, at::IntArrayRef padding, at::IntArrayRef dilation) {
  Pool pool;
  const std::size_t spatial = static_cast<std::size_t>(input.dim()) - 2;
  for (std::size_t d = 0; d < spatial; ++d) {
    const auto dim = static_cast<std::int64_t>(d) + 2;
    const std::int64_t taps = at_dim(kernel, d);
    pool.windows.push_back({input.size(dim), output.size(dim), taps, at_dim(stride, d, taps),
                            at_dim(dilation, d), -at_dim(padding, d, 0)});
  }
  return pool;
}

/// Window o of an adaptive pool goes from floor(o * in / out) to ceil((o + 1) * in / out). With g
/// the greatest common divisor, every out/g-th window is the same again, in/g further on, and those
/// of one such series do not overlap.
inline std::vector<Pool> adaptive_pools(const at::Tensor& input, const at::Tensor& output) {
  std::vector<Pool> pools{Pool()};
  for (std::int64_t dim = 2; dim < input.dim(); ++dim) {
    const std::int64_t in = input.size(dim), out = output.size(dim), common = std::gcd(in, out);
    std::vector<Pool> next;
    for (const Pool& pool : pools)
      for (std::int64_t o = 0; o < out / common; ++o) {
        const std::int64_t begin = o * in / out, end = ((o + 1) * in + out - 1) / out;
        Pool& more = next.emplace_back(pool);
        more.windows.push_back({in, common, end - begin, in / common, 1, begin});
        more.first.push_back(o);
        more.step.push_back(out / common);
      }
    pools = std::move(next);
  }
  return pools;
}

inline DimSet tap_dims(const Windows& windows) {
  return dim_range(2, 2 + static_cast<std::int64_t>(windows.size()));
}

/// Host values on the card, in the shape of dimension `d` of `rank`.
template <class T>
at::Tensor along(const std::vector<T>& values, std::size_t d, std::size_t rank,
                 const at::Tensor& like) {
  at::DimVector size(rank, 1);
  size[d] = static_cast<std::int64_t>(values.size());
  return at::tensor(values).view(size).to(like.device());
}

/// [images, channels, positions...] with dimensions of size 1 for taps.
inline at::Tensor over_taps(at::Tensor tensor, const Windows& windows) {
  for (std::size_t d = 0; d < windows.size(); ++d) tensor = tensor.unsqueeze(2);
  return tensor;
}

/// Of results: with the memory format of the input where PyTorch keeps it, in two dimensions.
template <std::size_t spatial>
at::TensorOptions options_like(const at::Tensor& self) {
  return self.options().memory_format(spatial == 2 ? self.suggest_memory_format()
                                                   : c10::MemoryFormat::Contiguous);
}

}  // namespace spyre::eager
