// im2col and col2im, which users know as F.unfold and F.fold: windows as columns, and their sum.
#include <ATen/core/Tensor.h>
#include <ATen/native/im2col_shape_check.h>
#include <torch/library.h>

#include "ops/windows/eager_windows.h"
#include "tensor/eager_structured.h"
#include "tensor/eager_variants.h"

namespace spyre::eager {
namespace {

using at::IntArrayRef;
using at::Tensor;

void check_pairs(const char* op, IntArrayRef kernel, IntArrayRef dilation, IntArrayRef padding,
                 IntArrayRef stride) {
  const auto check = [&](const char* name, IntArrayRef value) {
    TORCH_CHECK(value.size() == 2, op, ": ", name, " must be 2 ints, got ", value);
  };
  check("kernel_size", kernel);
  check("dilation", dilation);
  check("padding", padding);
  check("stride", stride);
}

Windows windows_of(IntArrayRef image, IntArrayRef kernel, IntArrayRef dilation, IntArrayRef padding,
                   IntArrayRef stride) {
  Windows windows;
  for (std::size_t d = 0; d < 2; ++d) {
    const std::int64_t reach = dilation[d] * (kernel[d] - 1) + 1;
    windows.push_back({image[d], (image[d] + 2 * padding[d] - reach) / stride[d] + 1, kernel[d],
                       stride[d], dilation[d], -padding[d]});
  }
  return windows;
}

/// [images, channels, taps..., positions...] of columns [images, channels * taps, positions].
Tensor by_tap(const Tensor& columns, const Windows& windows) {
  return columns.view({columns.size(0), columns.size(1) / taps_of(windows), windows[0].taps,
                       windows[1].taps, windows[0].output, windows[1].output});
}

Tensor& im2col(const Tensor& self, IntArrayRef kernel, IntArrayRef dilation, IntArrayRef padding,
               IntArrayRef stride, Tensor& out) {
  check_pairs("im2col", kernel, dilation, padding, stride);
  at::native::im2col_shape_check(self, Tensor(), kernel[0], kernel[1], dilation[0], dilation[1],
                                 padding[0], padding[1], stride[0], stride[1]);
  const bool single = self.dim() == 3;
  const Tensor input = single ? self.unsqueeze(0) : self;
  const Windows windows = windows_of(input.sizes().slice(2), kernel, dilation, padding, stride);
  at::DimVector size{input.size(0), input.size(1) * taps_of(windows), positions_of(windows)};
  size_output("im2col", out, IntArrayRef(size).slice(single), self.options());
  if (out.numel() == 0) return out;
  const Tensor view = window_view(padded(input, windows, 0), windows);
  const Tensor result = single ? out.unsqueeze(0) : out;
  if (result.is_contiguous()) {
    by_tap(result, windows).copy_(view);
  } else {
    result.copy_(view.reshape(size));
  }
  return out;
}

Tensor& col2im(const Tensor& self, IntArrayRef image, IntArrayRef kernel, IntArrayRef dilation,
               IntArrayRef padding, IntArrayRef stride, Tensor& out) {
  TORCH_CHECK(image.size() == 2, "col2im: output_size must be 2 ints, got ", image);
  check_pairs("col2im", kernel, dilation, padding, stride);
  at::native::col2im_shape_check(self, Tensor(), image[0], image[1], kernel[0], kernel[1],
                                 dilation[0], dilation[1], padding[0], padding[1], stride[0],
                                 stride[1]);
  TORCH_CHECK_NOT_IMPLEMENTED(self.is_floating_point(), "\"col2im_out\" not implemented for '",
                              self.toString(), "'");
  const bool single = self.dim() == 2;
  const Tensor input = single ? self.unsqueeze(0) : self;
  const Windows windows = windows_of(image, kernel, dilation, padding, stride);
  at::DimVector size{input.size(0), input.size(1) / taps_of(windows), image[0], image[1]};
  size_output("col2im", out, IntArrayRef(size).slice(single), self.options());
  if (out.numel() == 0) return out;
  const Tensor terms = by_tap(input.contiguous(), windows);
  WindowSum sum(size, windows, self.options().dtype(at::kFloat));
  sum.add(windows, [&](const Taps& taps) { return taps.cut(terms); });
  (single ? out.unsqueeze(0) : out).copy_(sum.result());
  return out;
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  implement<im2col>(m, "im2col", "im2col.out");
  implement<col2im>(m, "col2im", "col2im.out");
}

}  // namespace spyre::eager
