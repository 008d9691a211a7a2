// Steps that move and fill elements: what the DMA engine does, inside device memory.
#include <optional>

#include "nests/move.h"
#include "steps/steps.h"

namespace spyre::card {
namespace {

class MoveStep : public Step {
 public:
  explicit MoveStep(PayloadReader& reader) {
    src_ = reader.operand("source operand");
    dst_ = reader.operand("destination operand");
    src_format_ = reader.format("source format");
    const DataFormat dst_format = reader.format("destination format");
    const Narrow narrow = reader.narrow("narrow");
    constexpr const char* names[] = {"source", "destination"};
    LoopNests loops = read_nests(reader, names);
    reader.finish();
    src_range_ = loops.range(0, src_format_);
    dst_range_ = loops.range(1, dst_format);
    visits_ = loops.visits;
    mover_.emplace(src_format_, dst_format, narrow);
    for (LoopNest& nest : loops.nests) mover_->add(std::move(nest));
  }

  const char* name() const override { return "move"; }
  std::vector<Need> needs() const override {
    return {{src_, src_range_.end}, {dst_, dst_range_.end}};
  }
  Traffic traffic() const override { return {src_range_.touched, dst_range_.touched}; }
  OpCost cost() const override { return shared_cost(traffic(), visits_, src_format_, kPassesMove); }
  void run(std::span<const Extent> operands) const override {
    const std::byte* src = data_of(src_, operands);
    std::byte* const dst = data_of(dst_, operands);
    ReadBefore before;
    if (overlap(src, src_range_, dst, dst_range_)) src = before.keep(src, src_range_);
    mover_->run(src, dst);
  }

 private:
  std::int64_t src_, dst_, visits_;
  DataFormat src_format_;
  ByteRange src_range_, dst_range_;
  std::optional<Mover> mover_;
};

class FillStep : public Step {
 public:
  explicit FillStep(PayloadReader& reader) {
    dst_ = reader.operand("destination operand");
    format_ = reader.format("format");
    const auto bits = static_cast<std::uint64_t>(reader.word("element bits"));
    constexpr const char* names[] = {"destination"};
    LoopNests loops = read_nests(reader, names);
    reader.finish();
    range_ = loops.range(0, format_);
    visits_ = loops.visits;
    mover_.emplace(format_, bits);
    for (LoopNest& nest : loops.nests) mover_->add(std::move(nest));
  }

  const char* name() const override { return "fill"; }
  std::vector<Need> needs() const override { return {{dst_, range_.end}}; }
  Traffic traffic() const override { return {0, range_.touched}; }
  OpCost cost() const override { return shared_cost(traffic(), visits_, format_, kPassesMove); }
  void run(std::span<const Extent> operands) const override {
    mover_->run(nullptr, data_of(dst_, operands));
  }

 private:
  std::int64_t dst_, visits_;
  DataFormat format_;
  ByteRange range_;
  std::optional<Mover> mover_;
};

}  // namespace

std::unique_ptr<const Step> decode_move(PayloadReader& reader) {
  return std::make_unique<const MoveStep>(reader);
}

std::unique_ptr<const Step> decode_fill(PayloadReader& reader) {
  return std::make_unique<const FillStep>(reader);
}

}  // namespace spyre::card
