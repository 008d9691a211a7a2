#include "tensor/spyre_tensor_layout.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include <c10/core/TensorImpl.h>
#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>
#include <c10/util/accumulate.h>
#include <c10/util/hash.h>
#include <c10/util/strides.h>

#include "tensor/spyre_dtypes.h"
#include "tensor/spyre_tiling.h"

namespace spyre {
namespace {

constexpr std::size_t kMaxRank = 8;

/// Of a storage. At worst each of them has a stick to itself, and strides are multiplied by the
/// elements of a stick: integers hold the results.
constexpr std::int64_t kMaxElements =
    std::numeric_limits<std::int64_t>::max() / (kStickBytes * kStickBytes);

bool too_large(c10::IntArrayRef size) {
  std::int64_t numel = 1;
  bool overflow = false;
  for (const std::int64_t extent : size)
    overflow |= __builtin_mul_overflow(numel, std::max<std::int64_t>(extent, 1), &numel);
  return overflow || numel > kMaxElements;
}

c10::DimVector packed_strides(c10::IntArrayRef host_size) {
  TORCH_CHECK_VALUE(!too_large(host_size), "host_size=", host_size, " is larger than any memory.");
  return c10::contiguous_strides(host_size);
}

std::vector<std::int64_t> identity_order(std::size_t rank) {
  std::vector<std::int64_t> order(rank);
  std::iota(order.begin(), order.end(), 0);
  return order;
}

/// Host dim behind each device dim, outermost first; the stick dim stands twice. -1 is "no dim".
std::vector<std::int64_t> device_dim_map(c10::IntArrayRef order) {
  std::vector<std::int64_t> map(order.begin(), order.end());
  if (order.size() > 1)
    std::rotate(map.begin(), map.begin() + 1, map.end());  // d0 next to the stick
  map.push_back(order.back());
  return map;
}

std::int64_t sticks(std::int64_t elements, std::int64_t elems_per_stick) {
  return elements / elems_per_stick + (elements % elems_per_stick != 0);
}

void check_dim_order(std::size_t host_rank, c10::IntArrayRef order) {
  const bool sparse = order.size() == host_rank + 1 && !order.empty() && order.back() == -1;
  TORCH_CHECK_VALUE(order.size() == host_rank || sparse,
                    "Incompatible host_size and dim_order: ", host_rank,
                    " host dimensions, dim_order=", order,
                    ". dim_order must name each dimension once and may end with -1.");
  std::vector<bool> seen(host_rank, false);
  for (const std::int64_t dim : order.slice(0, host_rank)) {
    TORCH_CHECK_VALUE(dim >= 0 && dim < static_cast<std::int64_t>(host_rank) && !seen[dim],
                      "dim_order=", order, " is not a permutation of the ", host_rank,
                      " host dimensions.");
    seen[dim] = true;
  }
  TORCH_CHECK(order.size() <= kMaxRank + 1 && host_rank <= kMaxRank,
              "Unsupported tensor rank: ", order.size(), ". A tiled layout has at most ", kMaxRank,
              " host dimensions; reshape the tensor first.");
}

}  // namespace

SpyreTensorLayout::SpyreTensorLayout(c10::IntArrayRef host_size, c10::ScalarType dtype)
    : SpyreTensorLayout(host_size, packed_strides(host_size), dtype,
                        identity_order(host_size.size())) {}

SpyreTensorLayout::SpyreTensorLayout(c10::IntArrayRef host_size, c10::IntArrayRef host_strides,
                                     c10::ScalarType dtype, c10::IntArrayRef dim_order,
                                     ElementArrangement arrangement)
    : device_dtype(device_format(dtype)), element_arrangement(arrangement) {
  TORCH_CHECK_VALUE(host_size.size() == host_strides.size(), "host_size has ", host_size.size(),
                    " entries, host_strides has ", host_strides.size(), ".");
  for (const std::int64_t size : host_size)
    TORCH_CHECK_VALUE(size >= 0, "host_size=", host_size, " has a negative entry.");
  for (const std::int64_t stride : host_strides)
    TORCH_CHECK_VALUE(stride >= 0, "host_strides=", host_strides, " has a negative entry.");
  check_dim_order(host_size.size(), dim_order);

  const std::int64_t eps = elems_per_stick();
  if (dim_order.empty()) {
    device_size = {1, eps};
    stride_map = {-1, -1};
    return;
  }
  const std::vector<std::int64_t> map = device_dim_map(dim_order);
  const std::size_t rank = map.size(), last = rank - 1;
  const std::int64_t stick_dim = map.back();
  // The stick dim's other place: how many sticks it takes.
  const std::size_t outer = dim_order.size() == 1 ? 0 : last - 2;

  device_size.resize(rank);
  stride_map.assign(rank, -1);
  for (std::size_t i = 0; i < rank; ++i) {
    const std::int64_t dim = map[i];
    if (i == last)
      device_size[i] = eps;
    else if (i == outer)
      device_size[i] = dim < 0 ? 1 : sticks(host_size[dim], eps);
    else
      device_size[i] = host_size[dim];
    if (dim < 0 || host_size[dim] == 1) continue;
    TORCH_CHECK_VALUE(host_strides[dim] <= kMaxElements, "host_strides=", host_strides,
                      " reach beyond any memory.");
    stride_map[i] = i == outer && dim == stick_dim ? host_strides[dim] * eps : host_strides[dim];
  }
  bytes();  // refuses what no memory can hold
}

SpyreTensorLayout::SpyreTensorLayout(std::vector<std::int64_t> sizes,
                                     std::vector<std::int64_t> strides, DataFormat format,
                                     ElementArrangement arrangement)
    : device_size(std::move(sizes)),
      stride_map(std::move(strides)),
      device_dtype(format),
      element_arrangement(arrangement) {
  TORCH_CHECK_VALUE(device_size.size() == stride_map.size() && !device_size.empty(),
                    "device_size has ", device_size.size(), " entries, stride_map has ",
                    stride_map.size(), "; both need one per device dimension.");
  for (std::size_t i = 0; i < device_size.size(); ++i) {
    TORCH_CHECK_VALUE(device_size[i] >= 0, "device_size=", c10::IntArrayRef(device_size),
                      " has a negative entry.");
    TORCH_CHECK_VALUE(stride_map[i] >= -1, "stride_map=", c10::IntArrayRef(stride_map),
                      ": strides are positive, 0 (replicated) or -1 (synthetic).");
    TORCH_CHECK_VALUE(stride_map[i] <= kMaxElements * kStickBytes,
                      "stride_map=", c10::IntArrayRef(stride_map), " reaches beyond any memory.");
  }
  const std::int64_t eps = elems_per_stick();
  TORCH_CHECK_VALUE(eps > 0, "DataFormats.", format_info(format).name,
                    " is not a format of device tensors.");
  TORCH_CHECK_VALUE(device_size.back() <= eps, "device_size=", c10::IntArrayRef(device_size),
                    ": the last dimension lies inside a stick and has at most ", eps,
                    " elements in DataFormats.", format_info(format).name, ".");
  bytes();
}

SpyreTensorLayout SpyreTensorLayout::flat(std::int64_t numel, DataFormat format) {
  const std::int64_t eps = format_info(format).elems_per_stick;
  return SpyreTensorLayout({sticks(numel, eps), eps}, {eps, 1}, format);
}

std::int64_t SpyreTensorLayout::device_numel() const {
  TORCH_CHECK_VALUE(!device_size.empty(), "this SpyreTensorLayout was never initialised.");
  // Sizes come from users: a product that wraps around would pass for a small layout.
  std::int64_t numel = elems_per_stick();
  bool overflow = false;
  for (const std::int64_t size : device_size)
    if (size == 0) return 0;
  for (std::size_t i = 0; i + 1 < device_size.size(); ++i)
    overflow |= __builtin_mul_overflow(numel, device_size[i], &numel);
  TORCH_CHECK_VALUE(!overflow, "device_size=", c10::IntArrayRef(device_size),
                    " is larger than any memory.");
  return numel;
}

std::int64_t SpyreTensorLayout::bytes() const {
  std::int64_t total = 0;
  TORCH_CHECK_VALUE(!__builtin_mul_overflow(device_numel(), element_bytes(), &total),
                    "device_size=", c10::IntArrayRef(device_size), " is larger than any memory.");
  return total;
}

std::string SpyreTensorLayout::str() const {
  return c10::str("SpyreTensorLayout(device_size=[", c10::Join(", ", device_size),
                  "], stride_map =[", c10::Join(", ", stride_map), "], device_dtype=DataFormats.",
                  format_info(device_dtype).name, ')');
}

std::size_t SpyreTensorLayout::hash() const {
  return c10::get_hash(device_size, stride_map, static_cast<int>(device_dtype),
                       static_cast<int>(element_arrangement));
}

SpyreTensorLayout default_layout(c10::IntArrayRef size, c10::IntArrayRef stride,
                                 c10::ScalarType dtype) {
  if (size.size() <= kMaxRank) {
    SpyreTensorLayout layout(size, stride, dtype, identity_order(size.size()));
    if (Tiling(layout).reaches(size, stride, 0)) return layout;
  }
  return SpyreTensorLayout::flat(storage_span(size, stride), device_format(dtype));
}

void check_format(const SpyreTensorLayout& layout, c10::ScalarType dtype) {
  const bool bytes = c10::elementSize(dtype) == 1 && layout.element_bytes() == 1;
  TORCH_CHECK_VALUE(layout.device_dtype == device_format(dtype) || bytes, "a ", dtype_name(dtype),
                    " tensor has the device format ", format_info(device_format(dtype)).name,
                    ", the layout has ", format_info(layout.device_dtype).name, ".");
}

void check_sizes(c10::IntArrayRef size) {
  for (const std::int64_t extent : size)
    TORCH_CHECK(extent >= 0, "Trying to create tensor with negative dimension ", extent, ": ",
                size);
  // Before strides and layouts are made of them.
  TORCH_CHECK_WITH(OutOfMemoryError, !too_large(size),
                   "Storage size calculation overflowed with sizes=", size);
}

std::int64_t storage_span(c10::IntArrayRef size, c10::IntArrayRef stride, std::int64_t offset) {
  for (const std::int64_t extent : size)
    if (extent == 0) return 0;
  std::int64_t last = offset, reach = 0;
  bool overflow = false;
  for (std::size_t i = 0; i < size.size(); ++i) {
    overflow |= __builtin_mul_overflow(size[i] - 1, stride[i], &reach);
    overflow |= __builtin_add_overflow(last, reach, &last);
  }
  TORCH_CHECK(!overflow && last < kMaxElements,
              "Storage size calculation overflowed with sizes=", size, " and strides=", stride);
  return last + 1;
}

}  // namespace spyre
