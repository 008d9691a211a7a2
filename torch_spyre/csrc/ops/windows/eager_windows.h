// Sliding windows over the last dimensions of a tensor [images, channels, ...]: what convolution,
// pooling, unfold and fold see of it. A window is a view, so nothing is copied to look at one.
#pragma once

#include <cstdint>
#include <functional>

#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/util/SmallVector.h>

namespace spyre::eager {

/// Windows along one dimension: window o has `taps` elements, at start + o * stride + t * dilation.
/// Those outside of [0, input) are padding.
struct WindowDim {
  std::int64_t input, output, taps;
  std::int64_t stride = 1, dilation = 1, start = 0;

  std::int64_t before() const { return start < 0 ? -start : 0; }
  std::int64_t after() const {
    const std::int64_t end = start + (output - 1) * stride + (taps - 1) * dilation + 1;
    return end > input ? end - input : 0;
  }
};
using Windows = c10::SmallVector<WindowDim, 3>;

inline std::int64_t taps_of(const Windows& windows) {
  std::int64_t count = 1;
  for (const WindowDim& dim : windows) count *= dim.taps;
  return count;
}

inline std::int64_t positions_of(const Windows& windows) {
  std::int64_t count = 1;
  for (const WindowDim& dim : windows) count *= dim.output;
  return count;
}

inline bool pads(const Windows& windows) {
  for (const WindowDim& dim : windows)
    if (dim.before() > 0 || dim.after() > 0) return true;
  return false;
}

/// A tensor with room for the padding, and what is inside of it.
inline at::DimVector padded_size(at::IntArrayRef size, const Windows& windows) {
  at::DimVector padded(size);
  for (std::size_t d = 0; d < windows.size(); ++d)
    padded[d + 2] += windows[d].before() + windows[d].after();
  return padded;
}

inline at::Tensor inside(at::Tensor padded, const Windows& windows) {
  for (std::size_t d = 0; d < windows.size(); ++d)
    padded = padded.narrow(static_cast<std::int64_t>(d) + 2, windows[d].before(), windows[d].input);
  return padded;
}

/// With its padding, if the windows reach into any.
at::Tensor padded(const at::Tensor& tensor, const Windows& windows, const c10::Scalar& value);

/// [images, channels, taps..., positions...] of a tensor that has the padding of `windows`, for all
/// of them or for some.
at::Tensor window_view(const at::Tensor& padded, const Windows& windows, const Windows& part);
inline at::Tensor window_view(const at::Tensor& padded, const Windows& windows) {
  return window_view(padded, windows, windows);
}

/// A box of taps.
class Taps {
 public:
  c10::SmallVector<std::int64_t, 3> begin, end;
  /// Of a tensor that ends in dimensions [taps..., positions...]; one of size 1 stands for all.
  at::Tensor cut(at::Tensor all) const;
};

/// The gradient of looking through windows: what each element gets from all windows it is in.
class WindowSum {
 public:
  WindowSum(at::IntArrayRef size, const Windows& windows, const at::TensorOptions& options)
      : windows_(windows), sum_(at::zeros(padded_size(size, windows), options)) {}

  /// terms(taps): the terms of a box of taps, broadcast to [images, channels, taps...,
  /// positions...]. Called for boxes in which no element occurs twice, so each is one addition on
  /// the card. `part`: the windows themselves, or some of them.
  void add(const Windows& part, const std::function<at::Tensor(const Taps&)>& terms);

  at::Tensor result() const { return inside(sum_, windows_); }

 private:
  Windows windows_;
  at::Tensor sum_;
  bool zero_ = true;
};

}  // namespace spyre::eager
