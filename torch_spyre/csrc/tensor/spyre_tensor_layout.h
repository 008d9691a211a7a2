// SpyreTensorLayout: where the elements of a tensor's storage lie in device memory.
//
// Device memory is a row-major array of `device_size`, whose last dimension is (part of) one stick:
// a coordinate of the second-last dimension starts a new stick whatever the last size is. Device
// coordinate c holds the storage element at host offset dot(c, stride_map). A stride of 0 means
// that the dimension repeats the same elements; -1 that only coordinate 0 holds an element.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include <c10/core/ScalarType.h>
#include <c10/util/ArrayRef.h>

#include "spyre/card.h"

namespace spyre {

enum class ElementArrangement : std::uint8_t {
  STANDARD = 0,
  DL16_TO_FP32 = 1,
  QFP8CH = 2,
  EXX2 = 3
};

struct SpyreTensorLayout {
  std::vector<std::int64_t> device_size;
  std::vector<std::int64_t> stride_map;
  DataFormat device_dtype = DataFormat::INVALID;
  ElementArrangement element_arrangement = ElementArrangement::STANDARD;

  SpyreTensorLayout() = default;
  /// Python can make an object without calling a constructor; pybind11 then allocates memory only.
  /// All zeros is what the default constructor makes of it.
  static void* operator new(std::size_t bytes) {
    return std::memset(::operator new(bytes), 0, bytes);
  }
  static void* operator new(std::size_t, void* place) { return place; }
  static void operator delete(void* memory) { ::operator delete(memory); }
  /// The default layout of a contiguous host tensor.
  SpyreTensorLayout(c10::IntArrayRef host_size, c10::ScalarType dtype);
  /// The default algorithm with the host dims taken in `dim_order`: its last entry becomes the
  /// stick dim; an extra trailing -1 gives every element a stick of its own ("sparse").
  SpyreTensorLayout(c10::IntArrayRef host_size, c10::IntArrayRef host_strides,
                    c10::ScalarType dtype, c10::IntArrayRef dim_order,
                    ElementArrangement arrangement = ElementArrangement::STANDARD);
  /// An explicit layout; checked for consistency here, against a tensor when it is used.
  SpyreTensorLayout(std::vector<std::int64_t> device_size, std::vector<std::int64_t> stride_map,
                    DataFormat device_dtype,
                    ElementArrangement arrangement = ElementArrangement::STANDARD);

  /// Storage offsets 0..numel-1 packed into sticks one after the other: fits every stride.
  static SpyreTensorLayout flat(std::int64_t numel, DataFormat format);

  int elems_per_stick() const { return format_info(device_dtype).elems_per_stick; }
  std::int64_t element_bytes() const { return format_info(device_dtype).bits / 8; }
  std::int64_t device_numel() const;
  std::int64_t bytes() const;
  std::string str() const;

  bool operator==(const SpyreTensorLayout&) const = default;
  std::size_t hash() const;
};

/// The layout a new tensor of these sizes and strides gets.
SpyreTensorLayout default_layout(c10::IntArrayRef size, c10::IntArrayRef stride,
                                 c10::ScalarType dtype);

/// Refuses a layout whose format is not that of the dtype. Raw bytes may have any one-byte pair.
void check_format(const SpyreTensorLayout& layout, c10::ScalarType dtype);

/// Refuses negative sizes and sizes whose product no integer holds.
void check_sizes(c10::IntArrayRef size);

/// Number of storage elements a tensor of this geometry reaches, counted from offset 0.
std::int64_t storage_span(c10::IntArrayRef size, c10::IntArrayRef stride, std::int64_t offset = 0);

}  // namespace spyre
