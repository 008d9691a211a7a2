// The step that reads or writes where integers in device memory say.
//
// All coordinates are checked before anything is written, and each again when it is used: what
// another stream does to them meanwhile cannot lead outside the operand.
//
// Places are found for a piece of the positions at a time; then everything that lies at a position
// moves, for all of them. Threads share a dimension whose iterations never write the same place, so
// several writes to one place always happen in the order of the loops.
#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "host/thread_pool.h"
#include "kernels/index_kernels.h"
#include "nests/index_nest.h"
#include "nests/lines.h"
#include "spyre/program.h"
#include "steps/steps.h"

namespace spyre::card {
namespace {

constexpr std::int64_t kPositions = 2048;          // whose places are found at once
constexpr std::int64_t kParallelBytes = 64 << 10;  // worth waking a thread for
constexpr std::int64_t kLongRun = 1024;            // elements: worth cutting

bool is_gather(OpFunc op) {
  return op == OpFunc::gather || op == OpFunc::indexselect || op == OpFunc::embedding;
}
bool is_replacement(OpFunc op) { return op == OpFunc::scatter || op == OpFunc::indexput; }

class IndexStep : public Step {
 public:
  explicit IndexStep(PayloadReader& reader) {
    op_ = &reader.op(OpKind::index, "does not index");
    gather_ = is_gather(op_->op);
    dense_ = reader.tensor("dense");
    indexed_ = reader.tensor("indexed");
    const Narrow narrow = reader.narrow("narrow");
    const auto compute = static_cast<Compute>(reader.within("compute type", 0, 1));
    wrap_ = reader.within("wrap", 0, 1) == 1;
    if (!gather_ && !is_replacement(op_->op)) {
      combination_.emplace(op_->op, compute, dense_.format, indexed_.format, narrow);
    } else if (dense_.format != indexed_.format) {
      reader.refuse("dense format", std::string(op_->name) + " does not convert, but the indexed " +
                                        "tensor has another format");
    }
    read_coordinates(reader);
    std::vector<const char*> names(2 + coordinates_.size(), "index");
    names[0] = "dense";
    names[1] = "indexed";
    LoopNests loops = read_nests(reader, names);
    reader.finish();
    visits_ = loops.visits;
    dense_range_ = loops.range(IndexNest::kDense, dense_.format);
    indexed_range_ = loops.range(IndexNest::kIndexed, indexed_.format);
    for (std::size_t j = 0; j < coordinates_.size(); ++j) {
      indexed_range_.end += static_cast<std::uint64_t>(coordinates_[j].reach);
      coordinate_range_.push_back(loops.range(IndexNest::kCoordinates + j, DataFormat::IEEE_INT32));
    }
    if (!visits_) indexed_range_ = {};  // where nothing is visited, indices lead nowhere
    if (indexed_range_.end > static_cast<std::uint64_t>(kDefaultCardBytes))
      reader.refuse("indexed", "reaches beyond any card's memory");
    nests_ = index_nests(std::move(loops.nests), coordinates_, element_bytes(dense_.format),
                         element_bytes(indexed_.format), gather_);
  }

  const char* name() const override { return "index"; }

  std::vector<Need> needs() const override {
    std::vector<Need> needs{{dense_.operand, dense_range_.end},
                            {indexed_.operand, indexed_range_.end}};
    for (std::size_t j = 0; j < coordinates_.size(); ++j)
      needs.push_back({coordinates_[j].operand, coordinate_range_[j].end});
    return needs;
  }

  Traffic traffic() const override {
    const std::uint64_t dense = traffic_bytes(visits_, dense_.format),
                        indexed = traffic_bytes(visits_, indexed_.format);
    Traffic traffic{gather_ ? indexed : dense, gather_ ? dense : indexed};
    if (combination_) traffic.read += indexed;
    for (const IndexNest& nest : nests_)
      traffic.read +=
          coordinates_.size() * traffic_bytes(nest.positions.count(), DataFormat::IEEE_INT32);
    return traffic;
  }

  void run(std::span<const Extent> operands) const override {
    Memory memory;
    memory.dense = data_of(dense_.operand, operands);
    memory.indexed = data_of(indexed_.operand, operands);
    for (const IndexCoordinates& tensor : coordinates_)
      memory.coordinates.push_back(data_of(tensor.operand, operands));
    // What overlaps with the tensor that is written is read before.
    ReadBefore before;
    const std::byte* const written = gather_ ? memory.dense : memory.indexed;
    const ByteRange& written_range = gather_ ? dense_range_ : indexed_range_;
    const auto keep = [&](std::byte*& bytes, const ByteRange& range) {
      if (overlap(bytes, range, written, written_range)) bytes = before.keep(bytes, range);
    };
    gather_ ? keep(memory.indexed, indexed_range_) : keep(memory.dense, dense_range_);
    for (std::size_t j = 0; j < coordinates_.size(); ++j)
      keep(memory.coordinates[j], coordinate_range_[j]);

    for (const IndexNest& nest : nests_) check(nest, memory);
    for (const IndexNest& nest : nests_) run_nest(nest, memory);
  }

 private:
  struct Memory {
    std::byte *dense, *indexed;
    std::vector<std::byte*> coordinates;
  };

  void read_coordinates(PayloadReader& reader) {
    const std::int64_t width = element_bytes(indexed_.format);
    const std::int64_t tensors = reader.count("index tensors");
    for (std::int64_t j = 0; j < tensors; ++j) {
      IndexCoordinates& tensor = coordinates_.emplace_back();
      tensor.operand = reader.operand("index operand");
      tensor.size = reader.within("index size", 0, kMaxElements);
      tensor.dimension = reader.word("index dimension");
      const std::int64_t digits = reader.count("digits");
      std::int64_t highest = std::max<std::int64_t>(tensor.size - 1, 0);
      for (std::int64_t k = 0; k < digits; ++k) {
        const std::int64_t divisor = reader.within("divisor", 1, kMaxElements);
        const std::int64_t stride = reader.within("digit stride", 0, kMaxElements);
        const auto bits = static_cast<std::uint64_t>(divisor);
        tensor.digits.push_back(
            {divisor, stride * width, std::has_single_bit(bits) ? std::countr_zero(bits) : -1});
        std::int64_t reach;
        if (__builtin_mul_overflow(highest / divisor, stride * width, &reach) ||
            __builtin_add_overflow(tensor.reach, reach, &tensor.reach) ||
            tensor.reach > kDefaultCardBytes)
          reader.refuse("digit stride", "reaches beyond any card's memory");
        highest = std::min(highest, divisor - 1);
      }
    }
  }

  [[noreturn]] void refuse(const IndexCoordinates& tensor, std::int64_t value) const {
    throw Error(ErrorCode::bad_index, std::string(op_->name) + ": index " + std::to_string(value) +
                                          " is out of bounds for dimension " +
                                          std::to_string(tensor.dimension) + " with size " +
                                          std::to_string(tensor.size));
  }

  std::int64_t lowest(const IndexCoordinates& tensor) const { return wrap_ ? -tensor.size : 0; }

  static std::int64_t load(const std::byte* at) {
    std::int32_t value;
    std::memcpy(&value, at, sizeof value);
    return value;
  }

  /// Calls body(index tensor, first coordinate, its stride, count) for runs of coordinates that
  /// cover positions [first, first + count).
  template <class Body>
  void each_run(const IndexNest& nest, const Memory& memory, std::int64_t first, std::int64_t count,
                Body&& body) const {
    each_row(nest.positions, 0, first, count, places_of(nest.positions),
             [&](std::span<const std::int64_t> at, std::int64_t run) {
               for (std::size_t j = 0; j < coordinates_.size(); ++j) {
                 const std::size_t tensor = IndexNest::kCoordinates + j;
                 body(coordinates_[j], memory.coordinates[j] + at[tensor],
                      nest.positions.stride_or_0(0, tensor), run);
               }
             });
  }

  /// Throws for the first coordinate that is out of bounds.
  void check(const IndexNest& nest, const Memory& memory) const {
    const std::int64_t positions = nest.positions.count();
    constexpr std::int64_t kTask = 64 << 10;
    std::atomic<bool> bad = false;
    ThreadPool::shared().parallel_for((positions + kTask - 1) / kTask, [&](std::int64_t task) {
      each_run(nest, memory, task * kTask, std::min(kTask, positions - task * kTask),
               [&](const IndexCoordinates& tensor, const std::byte* at, std::int64_t stride,
                   std::int64_t run) {
                 std::int64_t least = 0, most = -1;
                 for (std::int64_t i = 0; i < run; ++i, at += stride) {
                   const std::int64_t value = load(at);
                   least = std::min(least, value);
                   most = std::max(most, value);
                 }
                 if (least < lowest(tensor) || most >= tensor.size) bad = true;
               });
    });
    if (!bad) return;
    each_run(nest, memory, 0, positions,
             [&](const IndexCoordinates& tensor, const std::byte* at, std::int64_t stride,
                 std::int64_t run) {
               for (std::int64_t i = 0; i < run; ++i, at += stride)
                 if (load(at) < lowest(tensor) || load(at) >= tensor.size) refuse(tensor, load(at));
             });
  }

  /// Where the dense and the indexed run of each position begin.
  void find_places(const IndexNest& nest, const Memory& memory, std::int64_t first,
                   std::int64_t count, std::int64_t* dense, std::int64_t* indexed) const {
    constexpr std::size_t kDense = IndexNest::kDense, kIndexed = IndexNest::kIndexed;
    const std::int64_t dense_stride = nest.positions.stride_or_0(0, kDense);
    const std::int64_t indexed_stride = nest.positions.stride_or_0(0, kIndexed);
    each_row(nest.positions, 0, first, count, places_of(nest.positions),
             [&](std::span<const std::int64_t> at, std::int64_t run) {
               for (std::int64_t i = 0; i < run; ++i) {
                 dense[i] = at[kDense] + i * dense_stride;
                 indexed[i] = at[kIndexed] + i * indexed_stride;
               }
               for (std::size_t j = 0; j < coordinates_.size(); ++j) {
                 const std::size_t tensor = IndexNest::kCoordinates + j;
                 add_places(coordinates_[j], memory.coordinates[j] + at[tensor],
                            nest.positions.stride_or_0(0, tensor), run, indexed);
               }
               dense += run;
               indexed += run;
             });
  }

  /// Adds where coordinates point to. The common ways to split them are written out.
  void add_places(const IndexCoordinates& tensor, const std::byte* at, std::int64_t stride,
                  std::int64_t run, std::int64_t* places) const {
    const auto& digits = tensor.digits;
    if (digits.size() == 1 && digits[0].shift == 0) {
      const std::int64_t step = digits[0].stride;
      add_places(tensor, at, stride, run, places, [=](std::int64_t value) { return value * step; });
    } else if (digits.size() == 2 && digits[0].shift >= 0 && digits[1].shift == 0) {
      const int shift = digits[0].shift;
      const std::int64_t mask = digits[0].divisor - 1, high = digits[0].stride,
                         low = digits[1].stride;
      add_places(tensor, at, stride, run, places, [=](std::int64_t value) {
        return (value >> shift) * high + (value & mask) * low;
      });
    } else {
      add_places(tensor, at, stride, run, places, [&](std::int64_t value) {
        std::int64_t sum = 0;
        for (const IndexCoordinates::Digit& digit : digits) {
          const std::int64_t times =
              digit.shift >= 0 ? value >> digit.shift : value / digit.divisor;
          sum += times * digit.stride;
          value -= times * digit.divisor;
        }
        return sum;
      });
    }
  }

  template <class Place>
  void add_places(const IndexCoordinates& tensor, const std::byte* at, std::int64_t stride,
                  std::int64_t run, std::int64_t* places, Place&& place) const {
    const std::int64_t least = lowest(tensor), size = tensor.size;
    for (std::int64_t i = 0; i < run; ++i, at += stride) {
      const std::int64_t value = load(at);
      if (value < least || value >= size) [[unlikely]]
        refuse(tensor, value);
      places[i] += place(value + (value < 0 ? size : 0));
    }
  }

  void run_nest(const IndexNest& nest, const Memory& memory) const {
    const std::int64_t bytes = nest.elements * element_bytes(indexed_.format);
    const std::int64_t wanted =
        std::min<std::int64_t>(bytes / kParallelBytes + 1, 4 * ThreadPool::shared().size());
    if (wanted == 1 || ThreadPool::shared().size() == 1) return run_part(nest, memory);
    // The longest loop that may be shared is cut; the run only if there is no other.
    const std::size_t written = gather_ ? IndexNest::kDense : IndexNest::kIndexed;
    LoopNest IndexNest::* cut_in = nullptr;
    std::size_t longest = 0;
    for (const auto loops : {&IndexNest::positions, &IndexNest::blocks})
      for (std::size_t loop = 0; loop < (nest.*loops).rank(); ++loop)
        if ((nest.*loops).stride(loop, written) != 0 &&
            (!cut_in || (nest.*loops).size(loop) > (nest.*cut_in).size(longest)))
          cut_in = loops, longest = loop;
    if (!cut_in && nest.run.size(0) >= kLongRun && nest.run.stride(0, written) != 0)
      cut_in = &IndexNest::run;
    if (!nest.apart || !cut_in) return run_part(nest, memory);
    const LoopNest& whole = nest.*cut_in;
    const std::int64_t grain = cut_in == &IndexNest::run ? 128 : 1;  // between cache lines
    const LoopNest::Cut cut = whole.cut_loop(longest, wanted, grain);
    ThreadPool::shared().parallel_for(cut.parts, [&](std::int64_t index) {
      IndexNest part = nest;
      part.*cut_in = whole.part(cut, index);
      run_part(part, memory);
    });
  }

  void run_part(const IndexNest& nest, const Memory& memory) const {
    constexpr std::size_t kDense = IndexNest::kDense, kIndexed = IndexNest::kIndexed;
    const std::int64_t positions = nest.positions.count();
    const std::int64_t step = std::min(positions, kPositions);
    const Scratch<std::int64_t> dense(ScratchSlot::block, step), indexed(ScratchSlot::work, step);
    const auto run_block = [&](std::int64_t dense_at, std::int64_t indexed_at, std::int64_t count) {
      const IndexRuns dense_runs{memory.dense + dense_at + nest.run.offset(kDense), dense.data(),
                                 nest.run.stride(0, kDense)};
      const IndexRuns indexed_runs{memory.indexed + indexed_at + nest.run.offset(kIndexed),
                                   indexed.data(), nest.run.stride(0, kIndexed)};
      if (combination_) {
        combine_runs(*combination_, indexed_runs, dense_runs, count, nest.run.size(0));
      } else {
        move_runs(gather_ ? dense_runs : indexed_runs, gather_ ? indexed_runs : dense_runs, count,
                  nest.run.size(0), element_bytes(indexed_.format));
      }
    };
    for (std::int64_t first = 0; first < positions; first += step) {
      const std::int64_t count = std::min(step, positions - first);
      find_places(nest, memory, first, count, dense.data(), indexed.data());
      each_row(nest.blocks, 0, std::array{nest.blocks.offset(kDense), nest.blocks.offset(kIndexed)},
               [&](const std::array<std::int64_t, 2>& at, std::int64_t blocks) {
                 for (std::int64_t i = 0; i < blocks; ++i)
                   run_block(at[kDense] + i * nest.blocks.stride_or_0(0, kDense),
                             at[kIndexed] + i * nest.blocks.stride_or_0(0, kIndexed), count);
               });
    }
  }

  static std::vector<std::int64_t> places_of(const LoopNest& loops) {
    return {loops.offsets().begin(), loops.offsets().end()};
  }

  const OpInfo* op_;
  bool gather_, wrap_;
  PayloadReader::Tensor dense_, indexed_;
  std::optional<IndexCombination> combination_;
  std::vector<IndexCoordinates> coordinates_;
  std::vector<ByteRange> coordinate_range_;
  ByteRange dense_range_, indexed_range_;
  std::vector<IndexNest> nests_;
  std::int64_t visits_ = 0;
};

}  // namespace

std::unique_ptr<const Step> decode_index(PayloadReader& reader) {
  return std::make_unique<const IndexStep>(reader);
}

}  // namespace spyre::card
