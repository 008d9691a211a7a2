// Steps that move and fill elements: what the DMA engine does, inside device memory.
#include <utility>

#include "nests/move.h"
#include "steps/steps.h"

namespace spyre::card {
namespace {

class MoveStep : public Step {
 public:
  explicit MoveStep(PayloadReader& reader) {
    src_ = reader.operand("source operand");
    dst_ = reader.operand("destination operand");
    conversion_.src = reader.format("source format");
    conversion_.dst = reader.format("destination format");
    conversion_.narrow = reader.narrow("narrow");
    constexpr const char* names[] = {"source", "destination"};
    LoopNests loops = read_nests(reader, names);
    reader.finish();
    conversion_.name = "move";
    for (LoopNest& nest : loops.nests)
      conversion_.loops.push_back({std::move(nest.size), std::move(nest.stride[0]),
                                   std::move(nest.stride[1]), nest.offset[0], nest.offset[1]});
    src_range_ = loops.reach[0].bytes(conversion_.src);
    dst_range_ = loops.reach[1].bytes(conversion_.dst);
    visits_ = loops.visits;
    // What runs the step has the last word on what it can run.
    check_bounds(conversion_, src_range_.end, dst_range_.end);
  }

  const char* name() const override { return "move"; }
  std::vector<Need> needs() const override {
    return {{src_, src_range_.end}, {dst_, dst_range_.end}};
  }
  Traffic traffic() const override { return {src_range_.touched, dst_range_.touched}; }
  OpCost cost() const override {
    return shared_cost(traffic(), visits_, conversion_.src, kPassesMove);
  }
  void run(std::span<const Extent> operands) const override {
    const std::byte* const src = operands[static_cast<std::size_t>(src_)].data;
    std::byte* const dst = operands[static_cast<std::size_t>(dst_)].data;
    if (overlap(src, src_range_, dst, dst_range_)) {
      run_overlapping(src, dst);
    } else {
      move(conversion_, src, dst);
    }
  }

 private:
  /// All is read before anything is written; else the result would depend on the order in which
  /// host threads come along.
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

class FillStep : public Step {
 public:
  explicit FillStep(PayloadReader& reader) {
    dst_ = reader.operand("destination operand");
    format_ = reader.format("format");
    bits_ = static_cast<std::uint64_t>(reader.word("element bits"));
    constexpr const char* names[] = {"destination"};
    LoopNests loops = read_nests(reader, names);
    reader.finish();
    for (LoopNest& nest : loops.nests)
      loops_.push_back({std::move(nest.size), {}, std::move(nest.stride[0]), 0, nest.offset[0]});
    range_ = loops.reach[0].bytes(format_);
    visits_ = loops.visits;
    check_fill_bounds(loops_, format_, range_.end);
  }

  const char* name() const override { return "fill"; }
  std::vector<Need> needs() const override { return {{dst_, range_.end}}; }
  Traffic traffic() const override { return {0, range_.touched}; }
  OpCost cost() const override { return shared_cost(traffic(), visits_, format_, kPassesMove); }
  void run(std::span<const Extent> operands) const override {
    fill(loops_, format_, bits_, operands[static_cast<std::size_t>(dst_)].data);
  }

 private:
  std::int64_t dst_, visits_;
  DataFormat format_;
  std::uint64_t bits_;
  ByteRange range_;
  std::vector<StrideInfo> loops_;
};

}  // namespace

std::unique_ptr<const Step> decode_move(PayloadReader& reader) {
  return std::make_unique<const MoveStep>(reader);
}

std::unique_ptr<const Step> decode_fill(PayloadReader& reader) {
  return std::make_unique<const FillStep>(reader);
}

}  // namespace spyre::card
