// The steps a program can have. A new opcode is a class here, a decoder and a row of kDecoders.
#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "move.h"
#include "program.h"
#include "spyre/program.h"

namespace spyre::card {

namespace {

// No step has reason to visit more elements than a card has bytes. The bound also keeps the sums of
// a program's traffic far from overflowing.
constexpr std::int64_t kMaxElements = kDefaultCardBytes;

/// Reads a payload word by word. Every complaint names the step and the field.
class PayloadReader {
 public:
  PayloadReader(std::string step, std::span<const std::byte> payload)
      : step_(std::move(step)), payload_(payload) {}

  [[noreturn]] void refuse(const std::string& field, const std::string& why) const {
    throw Error(ErrorCode::invalid_argument, "program: " + step_ + ", " + field + ": " + why);
  }

  std::int64_t word(const std::string& field) {
    if (payload_.empty()) refuse(field, "the payload ends before it");
    std::int64_t value;
    std::memcpy(&value, payload_.data(), sizeof value);
    payload_ = payload_.subspan(sizeof value);
    return value;
  }

  std::int64_t within(const std::string& field, std::int64_t lowest, std::int64_t highest) {
    const std::int64_t value = word(field);
    if (value < lowest || value > highest)
      refuse(field, std::to_string(value) + " is not in " + std::to_string(lowest) + ".." +
                        std::to_string(highest));
    return value;
  }

  /// A number of things of which each takes at least one more word of the payload.
  std::int64_t count(const std::string& field) {
    const std::int64_t value = word(field);
    if (value < 0 || static_cast<std::uint64_t>(value) > words_left())
      refuse(field, std::to_string(value) + " does not fit in the " + std::to_string(words_left()) +
                        " words that follow");
    return value;
  }

  std::int64_t operand(const std::string& field) {
    return within(field, 0, kMaxProgramOperands - 1);
  }

  DataFormat format(const std::string& field) {
    const std::int64_t value = word(field);
    for (const FormatInfo& info : kFormats)
      if (static_cast<std::int64_t>(info.format) == value && info.elems_per_stick > 0)
        return info.format;
    refuse(field, std::to_string(value) + " is not a format of device memory");
  }

  void finish() const {
    if (!payload_.empty()) refuse("payload size", std::to_string(words_left()) + " words too many");
  }

 private:
  std::size_t words_left() const { return payload_.size() / sizeof(std::int64_t); }

  const std::string step_;
  std::span<const std::byte> payload_;
};

struct ByteRange {
  std::uint64_t begin = 0, end = 0;
  bool meets(const ByteRange& other) const { return begin < other.end && other.begin < end; }
};

/// Which part of an operand the loop nests of one side touch.
class Reach {
 public:
  Reach(const PayloadReader& reader, std::string field)
      : reader_(reader), field_(std::move(field)) {}

  void add(std::span<const std::int64_t> size, std::span<const std::int64_t> stride,
           std::int64_t offset) {
    if (std::find(size.begin(), size.end(), 0) != size.end()) return;  // visits nothing
    std::int64_t first = offset, last = offset;
    for (std::size_t d = 0; d < size.size(); ++d) {
      std::int64_t span;
      std::int64_t& end = stride[d] < 0 ? first : last;
      if (__builtin_mul_overflow(size[d] - 1, stride[d], &span) ||
          __builtin_add_overflow(end, span, &end))
        reader_.refuse(field_, "reaches beyond 64 bits");
    }
    if (first < 0)
      reader_.refuse(field_, "element " + std::to_string(first) + " lies before the operand");
    if (last >= kDefaultCardBytes)
      reader_.refuse(field_, "element " + std::to_string(last) + " lies beyond any card's memory");
    first_ = std::min(first_, first);
    end_ = std::max(end_, last + 1);
  }

  /// Bytes from the start of the operand to the first element visited, and to behind the last.
  ByteRange bytes(DataFormat format) const {
    const std::int64_t width = format_info(format).bits / 8;
    return {static_cast<std::uint64_t>(std::min(first_, end_) * width),
            static_cast<std::uint64_t>(end_ * width)};
  }

 private:
  const PayloadReader& reader_;
  const std::string field_;
  std::int64_t first_ = kDefaultCardBytes, end_ = 0;  // elements
};

void add_visits(const PayloadReader& reader, const std::string& field,
                std::span<const std::int64_t> size, std::int64_t& visits) {
  std::int64_t product = 1;
  for (const std::int64_t extent : size) {
    if (extent == 0) return;
    if (__builtin_mul_overflow(product, extent, &product) || product > kMaxElements)
      reader.refuse(field, "visits more elements than a card has bytes");
  }
  visits += product;
  if (visits > kMaxElements) reader.refuse(field, "visits more elements than a card has bytes");
}

std::string loop_field(std::int64_t loop, const char* field) {
  return "loop " + std::to_string(loop) + ", " + field;
}

/// Both kinds of step write loops alike; a fill has no source side.
struct Loops {
  std::vector<StrideInfo> nests;
  std::int64_t visits = 0;
};

Loops read_loops(PayloadReader& reader, bool with_source) {
  Loops loops;
  const std::int64_t nests = reader.count("loop count");
  for (std::int64_t n = 0; n < nests; ++n) {
    StrideInfo nest;
    const std::int64_t dims = reader.count(loop_field(n, "dimensions"));
    if (with_source) nest.offset_src = reader.word(loop_field(n, "source offset"));
    nest.offset_dst = reader.word(loop_field(n, "destination offset"));
    for (std::int64_t d = 0; d < dims; ++d) {
      nest.size.push_back(reader.within(loop_field(n, "size"), 0, kMaxElements));
      if (with_source) nest.stride_src.push_back(reader.word(loop_field(n, "source stride")));
      nest.stride_dst.push_back(reader.word(loop_field(n, "destination stride")));
    }
    add_visits(reader, "loop " + std::to_string(n), nest.size, loops.visits);
    loops.nests.push_back(std::move(nest));
  }
  reader.finish();
  return loops;
}

std::uint64_t traffic_bytes(std::int64_t visits, DataFormat format) {
  return static_cast<std::uint64_t>(visits) * (format_info(format).bits / 8);
}

// ------------------------------------------------------------------------------------------- move

class MoveStep : public Step {
 public:
  explicit MoveStep(PayloadReader& reader) {
    src_ = reader.operand("source operand");
    dst_ = reader.operand("destination operand");
    conversion_.src = reader.format("source format");
    conversion_.dst = reader.format("destination format");
    conversion_.narrow =
        static_cast<Narrow>(reader.within("narrow", 0, static_cast<std::int64_t>(Narrow::uint8)));
    Loops loops = read_loops(reader, true);
    Reach from(reader, "source side of the loops"), to(reader, "destination side of the loops");
    for (const StrideInfo& nest : loops.nests) {
      from.add(nest.size, nest.stride_src, nest.offset_src);
      to.add(nest.size, nest.stride_dst, nest.offset_dst);
    }
    conversion_.name = "move";
    conversion_.loops = std::move(loops.nests);
    src_range_ = from.bytes(conversion_.src);
    dst_range_ = to.bytes(conversion_.dst);
    visits_ = loops.visits;
    // What runs the step has the last word on what it can run.
    check_bounds(conversion_, src_range_.end, dst_range_.end);
  }

  const char* name() const override { return "move"; }
  std::vector<Need> needs() const override {
    return {{src_, src_range_.end}, {dst_, dst_range_.end}};
  }
  Traffic traffic() const override {
    return {traffic_bytes(visits_, conversion_.src), traffic_bytes(visits_, conversion_.dst)};
  }
  void run(std::span<const Extent> operands) const override {
    const std::byte* const src = operands[static_cast<std::size_t>(src_)].data;
    std::byte* const dst = operands[static_cast<std::size_t>(dst_)].data;
    if (src == dst && src_range_.meets(dst_range_)) {
      run_overlapping(src, dst);
    } else {
      move(conversion_, src, dst);
    }
  }

 private:
  /// Within one tensor all is read before anything is written; else the result would depend on the
  /// order in which host threads come along.
  void run_overlapping(const std::byte* src, std::byte* dst) const {
    const std::vector<std::byte> before(src + src_range_.begin, src + src_range_.end);
    DataConversion from_copy = conversion_;
    const auto shift =
        static_cast<std::int64_t>(src_range_.begin) / (format_info(conversion_.src).bits / 8);
    for (StrideInfo& nest : from_copy.loops) nest.offset_src -= shift;
    move(from_copy, before.data(), dst);
  }

  std::int64_t src_, dst_, visits_;
  ByteRange src_range_, dst_range_;
  DataConversion conversion_;
};

// ------------------------------------------------------------------------------------------- fill

class FillStep : public Step {
 public:
  explicit FillStep(PayloadReader& reader) {
    dst_ = reader.operand("destination operand");
    format_ = reader.format("format");
    bits_ = static_cast<std::uint64_t>(reader.word("element bits"));
    Loops loops = read_loops(reader, false);
    Reach to(reader, "loops");
    for (const StrideInfo& nest : loops.nests) to.add(nest.size, nest.stride_dst, nest.offset_dst);
    loops_ = std::move(loops.nests);
    bytes_ = to.bytes(format_).end;
    visits_ = loops.visits;
    check_fill_bounds(loops_, format_, bytes_);
  }

  const char* name() const override { return "fill"; }
  std::vector<Need> needs() const override { return {{dst_, bytes_}}; }
  Traffic traffic() const override { return {0, traffic_bytes(visits_, format_)}; }
  void run(std::span<const Extent> operands) const override {
    fill(loops_, format_, bits_, operands[static_cast<std::size_t>(dst_)].data);
  }

 private:
  std::int64_t dst_, visits_;
  DataFormat format_;
  std::uint64_t bits_, bytes_;
  std::vector<StrideInfo> loops_;
};

// ------------------------------------------------------------------------------------- the opcodes

template <class StepType>
std::unique_ptr<const Step> decode_as(PayloadReader& reader) {
  return std::make_unique<const StepType>(reader);
}

struct Decoder {
  Opcode opcode;
  const char* name;
  std::unique_ptr<const Step> (*decode)(PayloadReader& reader);
};

constexpr Decoder kDecoders[] = {
    {Opcode::move, "move", decode_as<MoveStep>},
    {Opcode::fill, "fill", decode_as<FillStep>},
};

}  // namespace

std::unique_ptr<const Step> decode_step(std::size_t index, std::uint32_t opcode,
                                        std::span<const std::byte> payload) {
  const std::string step = "step " + std::to_string(index);
  for (const Decoder& decoder : kDecoders) {
    if (static_cast<std::uint32_t>(decoder.opcode) != opcode) continue;
    PayloadReader reader(step + " (" + decoder.name + ")", payload);
    return decoder.decode(reader);
  }
  throw Error(ErrorCode::invalid_argument,
              "program: " + step + ", opcode: " + std::to_string(opcode) + " is unknown");
}

}  // namespace spyre::card
