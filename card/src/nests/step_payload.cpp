#include "nests/step_payload.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>

#include "spyre/program.h"

namespace spyre::card {

void PayloadReader::refuse(const std::string& field, const std::string& why) const {
  std::string where = "step " + std::to_string(step_index_) + " (" + step_name_ + ")";
  if (loop_ >= 0) where += std::string(", ") + part_ + ' ' + std::to_string(loop_);
  throw Error(ErrorCode::invalid_argument, "program: " + where + ", " + field + ": " + why);
}

std::int64_t PayloadReader::word(const char* field) { return word_of(nullptr, field); }

std::int64_t PayloadReader::word_of(const char* owner, const char* field) {
  if (payload_.empty())
    refuse(owner ? std::string(owner) + ' ' + field : field, "the payload ends before it");
  std::int64_t value;
  std::memcpy(&value, payload_.data(), sizeof value);
  payload_ = payload_.subspan(sizeof value);
  return value;
}

std::int64_t PayloadReader::within(const char* field, std::int64_t lowest, std::int64_t highest) {
  const std::int64_t value = word(field);
  if (value < lowest || value > highest)
    refuse(field, std::to_string(value) + " is not in " + std::to_string(lowest) + ".." +
                      std::to_string(highest));
  return value;
}

std::int64_t PayloadReader::count(const char* field) {
  const std::int64_t value = word(field);
  if (value < 0 || static_cast<std::uint64_t>(value) > words_left())
    refuse(field, std::to_string(value) + " does not fit in the " + std::to_string(words_left()) +
                      " words that follow");
  return value;
}

std::int64_t PayloadReader::operand(const char* field) {
  return within(field, 0, kMaxProgramOperands - 1);
}

DataFormat PayloadReader::format(const char* field) {
  const std::int64_t value = word(field);
  for (const FormatInfo& info : kFormats)
    if (static_cast<std::int64_t>(info.format) == value && info.elems_per_stick > 0)
      return info.format;
  refuse(field, std::to_string(value) + " is not a format of device memory");
}

Narrow PayloadReader::narrow(const char* field) {
  return static_cast<Narrow>(within(field, 0, static_cast<std::int64_t>(Narrow::uint8)));
}

double PayloadReader::real(const char* field) { return std::bit_cast<double>(word(field)); }

std::span<const std::byte> PayloadReader::words(const char* field, std::int64_t count) {
  if (count < 0 || static_cast<std::uint64_t>(count) > words_left())
    refuse(field, std::to_string(count) + " words do not fit in the " +
                      std::to_string(words_left()) + " that follow");
  const auto taken = payload_.first(static_cast<std::size_t>(count) * sizeof(std::int64_t));
  payload_ = payload_.subspan(taken.size());
  return taken;
}

void PayloadReader::finish() const {
  if (!payload_.empty()) refuse("payload size", std::to_string(words_left()) + " words too many");
}

void Reach::add(const PayloadReader& reader, const char* field, std::span<const std::int64_t> size,
                std::span<const std::int64_t> stride, std::int64_t offset) {
  if (std::find(size.begin(), size.end(), 0) != size.end()) return;  // visits nothing
  std::int64_t first = offset, last = offset;
  for (std::size_t d = 0; d < size.size(); ++d) {
    std::int64_t span;
    std::int64_t& end = stride[d] < 0 ? first : last;
    if (__builtin_mul_overflow(size[d] - 1, stride[d], &span) ||
        __builtin_add_overflow(end, span, &end))
      reader.refuse(field, "reaches beyond 64 bits");
  }
  if (first < 0)
    reader.refuse(field, "element " + std::to_string(first) + " lies before the operand");
  if (last >= kDefaultCardBytes)
    reader.refuse(field, "element " + std::to_string(last) + " lies beyond any card's memory");
  first_ = std::min(first_, first);
  end_ = std::max(end_, last + 1);
  std::vector<Dim>& nest = nests_.emplace_back();
  for (std::size_t d = 0; d < size.size(); ++d)
    if (size[d] > 1 && stride[d] != 0) nest.push_back({size[d], std::abs(stride[d])});
}

ByteRange Reach::bytes(DataFormat format) const {
  const std::int64_t width = format_info(format).bits / 8;
  const auto begin = static_cast<std::uint64_t>(std::min(first_, end_) * width);
  const auto end = static_cast<std::uint64_t>(end_ * width);
  constexpr std::uint64_t stick = kStickBytes;
  const std::uint64_t sticks = end > begin ? (end - 1) / stick - begin / stick + 1 : 0;
  // Steps of a stick or more lead to other sticks, unless there are more than lie in between.
  std::uint64_t touched = 0;
  for (const std::vector<Dim>& nest : nests_) {
    std::int64_t run = width;
    std::uint64_t runs = 1;
    for (const Dim& dim : nest) {
      if (dim.stride * width < kStickBytes) {
        run += (dim.size - 1) * dim.stride * width;
      } else if (__builtin_mul_overflow(runs, static_cast<std::uint64_t>(dim.size), &runs)) {
        runs = sticks;
      }
    }
    const std::uint64_t run_sticks = (static_cast<std::uint64_t>(run) + stick - 1) / stick;
    touched += std::min(std::min(runs, sticks) * run_sticks, sticks);
  }
  return {begin, end, std::min(touched, sticks) * stick};
}

LoopNests read_nests(PayloadReader& reader, std::span<const char* const> names) {
  const std::size_t operands = names.size();
  LoopNests loops;
  loops.reach.resize(operands);
  const std::int64_t nests = reader.count("loop count");
  loops.nests.reserve(static_cast<std::size_t>(nests));
  for (std::int64_t n = 0; n < nests; ++n) {
    reader.in_loop(n);
    LoopNest& nest = loops.nests.emplace_back();
    const auto dims = static_cast<std::size_t>(reader.count("dimensions"));
    nest.stride.resize(operands);
    for (std::size_t k = 0; k < operands; ++k)
      nest.offset.push_back(reader.word_of(names[k], "offset"));
    std::int64_t visits = 1;
    for (std::size_t d = 0; d < dims; ++d) {
      nest.size.push_back(reader.within("size", 0, kMaxElements));
      for (std::size_t k = 0; k < operands; ++k)
        nest.stride[k].push_back(reader.word_of(names[k], "stride"));
    }
    for (const std::int64_t size : nest.size)
      if (size == 0) visits = 0;
    for (const std::int64_t size : nest.size)
      if (visits != 0 && (__builtin_mul_overflow(visits, size, &visits) || visits > kMaxElements))
        reader.refuse("size", "visits more elements than a card has bytes");
    loops.visits += visits;
    if (loops.visits > kMaxElements)
      reader.refuse("size", "visits more elements than a card has bytes");
    for (std::size_t k = 0; k < operands; ++k)
      loops.reach[k].add(reader, names[k], nest.size, nest.stride[k], nest.offset[k]);
  }
  reader.in_loop(-1);
  return loops;
}

}  // namespace spyre::card
