// Convolution as matrix products. The windows of an image are a view of it; gathered into the
// columns of a matrix they are what the kernel is multiplied with. The gradient of the input is the
// same backwards: products are added up where their windows lie, which is also what a transposed
// convolution does. Work is cut into blocks of images and positions, so that the columns of a large
// image never exist all at once.
#include <algorithm>
#include <array>

#include <ATen/TensorUtils.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/sum.h>
#include <torch/library.h>

#include "ops/matmul/eager_matmul.h"
#include "ops/pointwise/eager_pointwise.h"
#include "ops/windows/eager_windows.h"
#include "program/eager_plan.h"

namespace spyre::eager {
namespace {

using at::Tensor;

/// Gathered columns of so many bytes exist at once.
constexpr std::int64_t kColumnBytes = 64 << 20;

/// What is seen through windows ("wide": the input, or the output of a transposed convolution) and
/// what has one element a window ("narrow").
struct Convolution {
  Windows windows;
  std::int64_t groups, images;
  std::int64_t wide_channels, narrow_channels;  ///< of one group

  Convolution(const Tensor& wide, const Tensor& narrow, const Tensor& weight,
              at::IntArrayRef stride, at::IntArrayRef padding, at::IntArrayRef dilation,
              std::int64_t group_count)
      : groups(group_count),
        images(wide.size(0)),
        wide_channels(weight.size(1)),
        narrow_channels(weight.size(0) / group_count) {
    for (std::int64_t d = 0; d + 2 < wide.dim(); ++d)
      windows.push_back({wide.size(d + 2), narrow.size(d + 2), weight.size(d + 2), stride[d],
                         dilation[d], -padding[d]});
  }

  std::int64_t rank() const { return static_cast<std::int64_t>(windows.size()); }
  std::int64_t depth() const { return wide_channels * taps_of(windows); }

  /// [groups, narrow channels, depth].
  Tensor kernel(const Tensor& weight) const {
    return weight.reshape({groups, narrow_channels, depth()});
  }

  /// Calls body(block) for parts of the images and of the positions of one dimension.
  struct Block {
    std::int64_t first, count;     ///< images
    std::int64_t dim, begin, end;  ///< positions
  };
  template <class Body>
  void each_block(std::int64_t element_size, const Body& body) const {
    std::int64_t dim = 0;
    for (std::int64_t d = 1; d < rank(); ++d)
      if (windows[d].output > windows[dim].output) dim = d;
    const std::int64_t image_bytes =
        std::max<std::int64_t>(groups * depth() * positions_of(windows) * element_size, 1);
    const std::int64_t images_at_once = std::max<std::int64_t>(kColumnBytes / image_bytes, 1);
    const std::int64_t parts = (image_bytes + kColumnBytes - 1) / kColumnBytes;
    const std::int64_t positions = windows[dim].output,
                       step = std::max<std::int64_t>(positions / parts, 1);
    for (std::int64_t first = 0; first < images; first += images_at_once) {
      const std::int64_t count = std::min(images_at_once, images - first);
      for (std::int64_t begin = 0; begin < positions; begin += step)
        body(Block{first, count, dim, begin, std::min(begin + step, positions)});
    }
  }

  bool one_block(std::int64_t element_size) const {
    int blocks = 0;
    each_block(element_size, [&](const Block&) { ++blocks; });
    return blocks == 1;
  }
};

using Block = Convolution::Block;

/// The view as a tensor of `size`, in place if that is a view too.
Tensor collapsed(const Tensor& view, at::IntArrayRef size) {
  if (at::detail::computeStride(view.sizes(), view.strides(), size)) return view.view(size);
  const Tensor copy = at::empty(size, view.options());
  copy.view(view.sizes()).copy_(view);
  return copy;
}

/// [images, groups * channels, inner...] as [groups, channels, inner..., images, positions...],
/// where the positions are the last `rank` dimensions.
Tensor by_group(const Tensor& tensor, std::int64_t groups, std::int64_t rank) {
  const Tensor split = tensor.unflatten(1, {groups, tensor.size(1) / groups});
  return split.movedim(0, split.dim() - rank - 1);
}

/// The narrow tensor of a block: [images, channels, positions...].
Tensor narrow_block(const Tensor& tensor, const Block& block) {
  return tensor.narrow(0, block.first, block.count).slice(block.dim + 2, block.begin, block.end);
}

/// [groups, channels, images * positions].
Tensor narrow_matrix(const Tensor& part, const Convolution& conv) {
  const Tensor grouped = by_group(part, conv.groups, conv.rank());
  return collapsed(grouped, {conv.groups, conv.narrow_channels,
                             part.numel() / (conv.groups * conv.narrow_channels)});
}

/// [groups, depth, images * positions] of what the windows of a block show.
Tensor columns(const Tensor& wide, const Convolution& conv, const Block& block) {
  const Tensor view =
      window_view(padded(wide.narrow(0, block.first, block.count), conv.windows, 0), conv.windows)
          .slice(2 + conv.rank() + block.dim, block.begin, block.end);
  const Tensor grouped = by_group(view, conv.groups, conv.rank());
  const std::int64_t depth = conv.depth(), width = grouped.numel() / (conv.groups * depth);
  // Windows that overlap a lot give long runs along the positions, the others along the taps.
  if (conv.windows.back().stride < conv.windows.back().taps || conv.windows.back().taps == 1)
    return collapsed(grouped, {conv.groups, depth, width});
  const std::int64_t inner = grouped.dim() - conv.rank() - 1;
  at::DimVector order{0};
  for (std::int64_t d = inner; d < grouped.dim(); ++d) order.push_back(d);
  for (std::int64_t d = 1; d < inner; ++d) order.push_back(d);
  return collapsed(grouped.permute(order), {conv.groups, width, depth}).transpose(1, 2);
}

/// narrow = what the kernel makes of each window of `wide`.
void correlate(const Convolution& conv, const Tensor& wide, const Tensor& weight,
               const Tensor& bias, const Tensor& narrow) {
  if (narrow.numel() == 0) return;
  const Tensor kernel = conv.kernel(weight);
  conv.each_block(wide.element_size(), [&](const Block& block) {
    const Tensor cols = columns(wide, conv, block);
    const Tensor part = by_group(narrow_block(narrow, block), conv.groups, conv.rank());
    const at::DimVector size{conv.groups, conv.narrow_channels, cols.size(2)};
    const bool in_place = at::detail::computeStride(part.sizes(), part.strides(), size).has_value();
    const Tensor product = in_place ? part.view(size) : at::empty(size, narrow.options());
    // The bias is put in place first and added to there: exact, as it has the result's dtype, and
    // faster than one element for a whole row.
    if (bias.defined()) product.copy_(bias.view({conv.groups, conv.narrow_channels, 1}));
    matmul(kernel, cols, product, bias.defined() ? std::optional(product) : std::nullopt);
    if (!in_place) part.copy_(product.view(part.sizes()));
  });
}

/// wide = the sum of what the kernel makes of each element of `narrow`, where its window lies.
void spread(const Convolution& conv, const Tensor& narrow, const Tensor& weight, const Tensor& bias,
            const Tensor& wide) {
  if (wide.numel() == 0) return;
  const Tensor kernel = conv.kernel(weight).transpose(1, 2);
  const bool exact = c10::isIntegralType(wide.scalar_type(), true);
  const auto options = wide.options().dtype(exact ? at::kLong : at::kFloat);
  const auto finish = [&](const WindowSum& sum, const Block& block) {
    const Tensor part = wide.narrow(0, block.first, block.count);
    if (!bias.defined()) {
      part.copy_(sum.result());
      return;
    }
    at::DimVector size(wide.dim(), 1);
    size[1] = bias.numel();
    pointwise(OpFunc::add, part, {sum.result(), bias.view(size)}, wide.scalar_type());
  };
  std::optional<WindowSum> sum;
  conv.each_block(4, [&](const Block& block) {
    if (block.begin == 0) {
      at::DimVector size(wide.sizes());
      size[0] = block.count;
      sum.emplace(size, conv.windows, options);
    }
    const Tensor part = narrow_block(narrow, block);
    const Tensor matrix = narrow_matrix(part, conv);
    const Tensor cols = at::empty({conv.groups, conv.depth(), matrix.size(2)}, options);
    matmul(kernel, matrix, cols);
    // [groups, channels, taps..., images, positions...] as [images, channels, taps...,
    // positions...]
    at::DimVector size{conv.groups * conv.wide_channels};
    for (const WindowDim& dim : conv.windows) size.push_back(dim.taps);
    size.push_back(block.count);
    for (std::int64_t d = 0; d < conv.rank(); ++d) size.push_back(part.size(d + 2));
    const Tensor terms = cols.view(size).movedim(1 + conv.rank(), 0);
    Windows windows = conv.windows;
    WindowDim& cut = windows[block.dim];
    cut.start += block.begin * cut.stride;
    cut.output = block.end - block.begin;
    sum->add(windows, [&](const Taps& taps) { return taps.cut(terms); });
    if (block.end == conv.windows[block.dim].output) finish(*sum, block);
  });
}

/// The gradient of the kernel, from the wide and the narrow tensor.
Tensor kernel_gradient(const Convolution& conv, const Tensor& wide, const Tensor& narrow,
                       const Tensor& weight) {
  Tensor gradient = at::empty(weight.sizes(), weight.options());
  if (gradient.numel() == 0) return gradient;
  if (wide.numel() == 0 || narrow.numel() == 0) return gradient.zero_();
  const at::DimVector size{conv.groups, conv.narrow_channels, conv.depth()};
  const bool at_once = conv.one_block(wide.element_size());
  const Tensor sum =
      at_once ? gradient.view(size) : at::empty(size, weight.options().dtype(at::kFloat));
  bool first = true;
  conv.each_block(wide.element_size(), [&](const Block& block) {
    const Tensor cols = columns(wide, conv, block);
    const Tensor terms = narrow_matrix(narrow_block(narrow, block), conv);
    matmul(terms, cols.transpose(1, 2), sum, first ? std::nullopt : std::optional(sum));
    first = false;
  });
  if (!at_once) gradient.view(size).copy_(sum);
  return gradient;
}

Tensor bias_gradient(const Tensor& gradient) {
  at::DimVector dims{0};
  for (std::int64_t d = 2; d < gradient.dim(); ++d) dims.push_back(d);
  return at::sum(gradient, dims);
}

void check_dtypes(const Tensor& input, const Tensor& weight, const Tensor& bias) {
  on_device(weight, input.device());
  TORCH_CHECK(input.scalar_type() == weight.scalar_type(), "Input type (", input.toString(),
              ") and weight type (", weight.toString(), ") should be the same");
  TORCH_CHECK_NOT_IMPLEMENTED(
      input.scalar_type() != at::kBool,
      "convolution is not implemented for Bool tensors. Convert them with .to(torch.float16).");
  if (!bias.defined()) return;
  on_device(bias, input.device());
  TORCH_CHECK(input.scalar_type() == bias.scalar_type(), "Input type (", input.toString(),
              ") and bias type (", bias.toString(), ") should be the same");
}

Tensor convolution(const Tensor& input, const Tensor& weight, const std::optional<Tensor>& given,
                   at::IntArrayRef stride, at::IntArrayRef padding, at::IntArrayRef dilation,
                   bool transposed, at::IntArrayRef output_padding, std::int64_t groups) {
  const Tensor bias = given.value_or(Tensor());
  check_dtypes(input, weight, bias);
  for (std::int64_t d = 0; d + 2 < input.dim(); ++d) {
    TORCH_CHECK(dilation[d] > 0, "dilation should be greater than zero, but got ", dilation);
    TORCH_CHECK(!transposed || output_padding[d] < std::max(stride[d], dilation[d]),
                "output padding must be smaller than either stride or dilation, but got ",
                "output_padding: ", output_padding, " stride: ", stride, " dilation: ", dilation);
  }
  at::DimVector size{input.size(0), transposed ? weight.size(1) * groups : weight.size(0)};
  for (std::int64_t d = 0; d + 2 < input.dim(); ++d) {
    const std::int64_t reach = dilation[d] * (weight.size(d + 2) - 1) + 1;
    size.push_back(transposed ? (input.size(d + 2) - 1) * stride[d] - 2 * padding[d] + reach +
                                    output_padding[d]
                              : (input.size(d + 2) + 2 * padding[d] - reach) / stride[d] + 1);
    TORCH_CHECK(!transposed || size.back() > 0,
                "Given input size per channel: ", input.sizes().slice(2),
                ". Calculated output size per channel: ", c10::IntArrayRef(size).slice(2),
                ". Output size is too small");
  }
  Tensor output = at::empty(size, input.options());
  const Tensor &wide = transposed ? output : input, &narrow = transposed ? input : output;
  const Convolution conv(wide, narrow, weight, stride, padding, dilation, groups);
  if (transposed)
    spread(conv, narrow, weight, bias, wide);
  else
    correlate(conv, wide, weight, bias, narrow);
  return output;
}

std::tuple<Tensor, Tensor, Tensor> convolution_backward(
    const Tensor& gradient, const Tensor& input, const Tensor& weight, at::IntArrayRef stride,
    at::IntArrayRef padding, at::IntArrayRef dilation, bool transposed,
    at::IntArrayRef /*output_padding*/, std::int64_t groups, std::array<bool, 3> wanted) {
  check_dtypes(input, weight, {});
  const Tensor &wide = transposed ? gradient : input, &narrow = transposed ? input : gradient;
  const Convolution conv(wide, narrow, weight, stride, padding, dilation, groups);
  Tensor of_input, of_weight, of_bias;
  if (wanted[0]) {
    of_input = at::empty(input.sizes(), input.options());
    if (transposed)
      correlate(conv, gradient, weight, {}, of_input);
    else
      spread(conv, gradient, weight, {}, of_input);
  }
  if (wanted[1]) of_weight = kernel_gradient(conv, wide, narrow, weight);
  if (wanted[2]) of_bias = bias_gradient(gradient);
  return {of_input, of_weight, of_bias};
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("convolution_overrideable", &convolution);
  m.impl("convolution_backward_overrideable", &convolution_backward);
}

}  // namespace spyre::eager
