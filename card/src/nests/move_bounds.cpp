// What a descriptor must satisfy before move() or fill() may run it.
#include <string>

#include "formats/convert.h"
#include "nests/move.h"

namespace spyre::card {
namespace {

[[noreturn]] void refuse(const std::string& what, std::size_t loop, const std::string& why) {
  throw Error(ErrorCode::invalid_argument, what + ", loop " + std::to_string(loop) + ": " + why);
}

/// Lowest and highest element one side of a nest touches.
struct Reach {
  std::int64_t low, high;
};

/// False if the arithmetic overflows. All sizes are positive.
bool reach_of(const std::vector<std::int64_t>& size, const std::vector<std::int64_t>& stride,
              std::int64_t offset, Reach& reach) {
  reach = {offset, offset};
  for (std::size_t i = 0; i < size.size(); ++i) {
    std::int64_t extent;
    if (__builtin_mul_overflow(size[i] - 1, stride[i], &extent)) return false;
    std::int64_t& end = extent < 0 ? reach.low : reach.high;
    if (__builtin_add_overflow(end, extent, &end)) return false;
  }
  return true;
}

void check_side(const std::string& what, std::size_t loop, const char* side, const StrideInfo& nest,
                const std::vector<std::int64_t>& stride, std::int64_t offset, DataFormat format,
                std::uint64_t bytes) {
  const std::uint64_t limit = bytes / static_cast<std::uint64_t>(element_bytes(format));
  Reach reach;
  if (!reach_of(nest.size, stride, offset, reach))
    refuse(what, loop, std::string("offsets of the ") + side + " overflow 64 bits");
  const bool low = reach.low < 0;
  if (!low && static_cast<std::uint64_t>(reach.high) < limit) return;
  refuse(what, loop,
         "reaches element " + std::to_string(low ? reach.low : reach.high) + " of the " + side +
             ", which has " + std::to_string(limit) + " elements of " + format_info(format).name +
             " (" + std::to_string(bytes) + " bytes)");
}

/// Checks the sizes of a nest; adds its elements to `total`. False if it has none.
bool check_sizes(const std::string& what, std::size_t loop, const StrideInfo& nest,
                 std::uint64_t& total) {
  bool empty = false;
  std::uint64_t count = 1;
  for (std::int64_t size : nest.size) {
    if (size < 0) refuse(what, loop, "size " + std::to_string(size) + " is negative");
    if (size == 0) empty = true;
  }
  if (empty) return false;
  for (std::int64_t size : nest.size)
    if (__builtin_mul_overflow(count, static_cast<std::uint64_t>(size), &count))
      refuse(what, loop, "the number of elements overflows 64 bits");
  if (__builtin_add_overflow(total, count, &total))
    refuse(what, loop, "the number of elements overflows 64 bits");
  return true;
}

void check_length(const std::string& what, std::size_t loop, const StrideInfo& nest,
                  const char* name, std::size_t length) {
  if (length != nest.size.size())
    refuse(what, loop,
           std::string(name) + " has " + std::to_string(length) + " entries, size has " +
               std::to_string(nest.size.size()));
}

void check_format(const std::string& what, const char* side, DataFormat format) {
  if (!usable(format))
    throw Error(ErrorCode::invalid_argument, what + ": format " + format_info(format).name + " (" +
                                                 std::to_string(static_cast<int>(format)) +
                                                 ") of the " + side + " has no elements");
}

}  // namespace

void check_bounds(const DataConversion& conversion, std::uint64_t src_bytes,
                  std::uint64_t dst_bytes) {
  const std::string& what = conversion.name;
  check_format(what, "source", conversion.src);
  check_format(what, "destination", conversion.dst);
  converter(conversion.src, conversion.dst, conversion.narrow);  // refuses unknown narrowings
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < conversion.loops.size(); ++i) {
    const StrideInfo& nest = conversion.loops[i];
    check_length(what, i, nest, "stride_src", nest.stride_src.size());
    check_length(what, i, nest, "stride_dst", nest.stride_dst.size());
    if (!check_sizes(what, i, nest, total)) continue;
    check_side(what, i, "source", nest, nest.stride_src, nest.offset_src, conversion.src,
               src_bytes);
    check_side(what, i, "destination", nest, nest.stride_dst, nest.offset_dst, conversion.dst,
               dst_bytes);
  }
}

void check_fill_bounds(std::span<const StrideInfo> loops, DataFormat format,
                       std::uint64_t dst_bytes) {
  const std::string what = "fill";
  check_format(what, "destination", format);
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < loops.size(); ++i) {
    const StrideInfo& nest = loops[i];
    check_length(what, i, nest, "stride_dst", nest.stride_dst.size());
    if (!check_sizes(what, i, nest, total)) continue;
    check_side(what, i, "destination", nest, nest.stride_dst, nest.offset_dst, format, dst_bytes);
  }
}

}  // namespace spyre::card
