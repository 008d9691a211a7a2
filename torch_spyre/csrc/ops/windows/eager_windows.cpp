#include "ops/windows/eager_windows.h"

#include <algorithm>
#include <numeric>

#include <ATen/ops/empty.h>

#include "ops/memory/spyre_copy.h"

namespace spyre::eager {

at::Tensor padded(const at::Tensor& tensor, const Windows& windows, const c10::Scalar& value) {
  if (!pads(windows)) return tensor;
  const at::Tensor result = at::empty(padded_size(tensor.sizes(), windows), tensor.options());
  spyre::fill(result, value);
  inside(result, windows).copy_(tensor);
  return result;
}

at::Tensor window_view(const at::Tensor& padded, const Windows& windows, const Windows& part) {
  at::DimVector size{padded.size(0), padded.size(1)}, stride{padded.stride(0), padded.stride(1)};
  std::int64_t offset = padded.storage_offset();
  for (std::size_t d = 0; d < part.size(); ++d) {
    const std::int64_t step = padded.stride(static_cast<std::int64_t>(d) + 2);
    size.push_back(part[d].taps);
    stride.push_back(step * part[d].dilation);
    offset += step * (part[d].start + windows[d].before());
  }
  for (std::size_t d = 0; d < part.size(); ++d) {
    size.push_back(part[d].output);
    stride.push_back(padded.stride(static_cast<std::int64_t>(d) + 2) * part[d].stride);
  }
  return padded.as_strided(size, stride, offset);
}

at::Tensor Taps::cut(at::Tensor all) const {
  const auto rank = static_cast<std::int64_t>(begin.size());
  for (std::int64_t d = 0; d < rank; ++d) {
    const std::int64_t dim = all.dim() - 2 * rank + d;
    if (all.size(dim) > 1) all = all.slice(dim, begin[d], end[d]);
  }
  return all;
}

void WindowSum::add(const Windows& part, const std::function<at::Tensor(const Taps&)>& terms) {
  // Taps t and u of some windows meet where (t - u) * dilation is a multiple of the stride: so many
  // neighbours never do.
  c10::SmallVector<std::int64_t, 3> apart;
  bool all_apart = true;
  Taps box;
  for (const WindowDim& dim : part) {
    apart.push_back(dim.output > 1 ? dim.stride / std::gcd(dim.stride, dim.dilation) : dim.taps);
    all_apart = all_apart && apart.back() >= dim.taps;
    box.begin.push_back(0);
    box.end.push_back(std::min(apart.back(), dim.taps));
  }
  const at::Tensor target = window_view(sum_, windows_, part);
  for (;;) {
    const at::Tensor place = box.cut(target);
    if (zero_ && all_apart)
      place.copy_(terms(box));
    else
      place.add_(terms(box));
    zero_ = false;
    std::size_t d = part.size();
    while (d > 0 && box.end[d - 1] == part[d - 1].taps) {
      --d;
      box.begin[d] = 0;
      box.end[d] = std::min(apart[d], part[d].taps);
    }
    if (d == 0) return;
    box.begin[d - 1] = box.end[d - 1];
    box.end[d - 1] = std::min(box.end[d - 1] + apart[d - 1], part[d - 1].taps);
  }
}

}  // namespace spyre::eager
