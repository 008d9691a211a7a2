// What a descriptor must satisfy before move() may run it.
#include <algorithm>
#include <optional>
#include <string>

#include "nests/move.h"

namespace spyre::card {
namespace {

/// Complains about a loop nest of a descriptor, or without a number about all of it.
class Complaint {
 public:
  Complaint(const DataConversion& conversion, std::optional<std::size_t> loop = {})
      : conversion_(conversion), loop_(loop) {}
  [[noreturn]] void operator()(const std::string& why) const {
    const std::string loop = loop_ ? ", loop " + std::to_string(*loop_) : "";
    throw Error(ErrorCode::invalid_argument, conversion_.name + loop + ": " + why);
  }

 private:
  const DataConversion& conversion_;
  const std::optional<std::size_t> loop_;
};

void check_format(const Complaint& refuse, const char* side, DataFormat format) {
  if (!usable(format))
    refuse(std::string("format ") + format_info(format).name + " (" +
           std::to_string(static_cast<int>(format)) + ") of the " + side + " has no elements");
}

void check_lengths(const Complaint& refuse, const StrideInfo& loops) {
  const auto check = [&](const char* name, std::size_t length) {
    if (length != loops.size.size())
      refuse(std::string(name) + " has " + std::to_string(length) + " entries, size has " +
             std::to_string(loops.size.size()));
  };
  check("stride_src", loops.stride_src.size());
  check("stride_dst", loops.stride_dst.size());
  for (const std::int64_t size : loops.size)
    if (size < 0) refuse("size " + std::to_string(size) + " is negative");
}

/// Adds the elements of a nest that is not empty.
void count(const Complaint& refuse, const StrideInfo& loops, std::uint64_t& total) {
  std::uint64_t count = 1;
  bool fits = true;
  for (const std::int64_t size : loops.size)
    fits &= !__builtin_mul_overflow(count, static_cast<std::uint64_t>(size), &count);
  if (!fits || __builtin_add_overflow(total, count, &total))
    refuse("the number of elements overflows 64 bits");
}

struct Side {
  const char* name;
  const std::vector<std::int64_t>& stride;
  std::int64_t offset;
  DataFormat format;
  std::uint64_t bytes;
};

void check_side(const Complaint& refuse, const StrideInfo& loops, const Side& side) {
  const std::uint64_t limit = side.bytes / static_cast<std::uint64_t>(element_bytes(side.format));
  LoopNest::Reach reach{side.offset, side.offset};
  for (std::size_t d = 0; d < loops.size.size(); ++d)
    if (!reach.widen(loops.size[d], side.stride[d]))
      refuse(std::string("offsets of the ") + side.name + " overflow 64 bits");
  const bool low = reach.first < 0;
  if (!low && static_cast<std::uint64_t>(reach.last) < limit) return;
  refuse("reaches element " + std::to_string(low ? reach.first : reach.last) + " of the " +
         side.name + ", which has " + std::to_string(limit) + " elements of " +
         format_info(side.format).name + " (" + std::to_string(side.bytes) + " bytes)");
}

}  // namespace

void check_bounds(const DataConversion& conversion, std::uint64_t src_bytes,
                  std::uint64_t dst_bytes) {
  check_format(conversion, "source", conversion.src);
  check_format(conversion, "destination", conversion.dst);
  converter(conversion.src, conversion.dst, conversion.narrow);  // refuses unknown narrowings
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < conversion.loops.size(); ++i) {
    const Complaint refuse(conversion, i);
    const StrideInfo& loops = conversion.loops[i];
    check_lengths(refuse, loops);
    if (std::find(loops.size.begin(), loops.size.end(), 0) != loops.size.end()) continue;
    count(refuse, loops, total);
    check_side(refuse, loops,
               {"source", loops.stride_src, loops.offset_src, conversion.src, src_bytes});
    check_side(refuse, loops,
               {"destination", loops.stride_dst, loops.offset_dst, conversion.dst, dst_bytes});
  }
}

}  // namespace spyre::card
