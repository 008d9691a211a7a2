// The step that computes a chain of pointwise ops and reductions: one pass over device memory,
// block by block, all that is in between in the host's caches.
#include <algorithm>
#include <utility>

#include "host/thread_pool.h"
#include "steps/chain_worker.h"
#include "steps/steps.h"

namespace spyre::card {
namespace {

constexpr std::int64_t kParallelWork = 48 << 10;  // elements of a cheap op: worth waking a thread
constexpr std::size_t kFewTensors = 16;           // more cost an allocation a run

class ChainStep : public Step {
 public:
  explicit ChainStep(PayloadReader& reader) : values_(reader), plan_(values_) {
    for (std::size_t i = 0; i < values_.tensors.size(); ++i) loaded_.push_back(values_.loaded(i));
  }

  const char* name() const override { return "chain"; }

  std::vector<Need> needs() const override {
    std::vector<Need> needs;
    for (const ChainTensor& tensor : values_.tensors)
      needs.push_back({tensor.operand, tensor.view.range().end});
    return needs;
  }

  Traffic traffic() const override {
    Traffic traffic;
    for (std::size_t i = 0; i < values_.tensors.size(); ++i)
      if (loaded_[i]) traffic.read += values_.tensors[i].view.read().read;
    for (const ChainStore& store : values_.stores)
      traffic.written += values_.tensors[store.tensor].view.written().written;
    return traffic;
  }
  OpCost cost() const override {
    double passes = 0;
    for (const ChainValue& value : values_.values)
      if (value.kind == Chain::Kind::pointwise) {
        passes += sfp_passes(op_info(value.op));
      } else if (value.kind == Chain::Kind::reduce) {
        passes += kPassesReduce;
      }
    const std::int64_t elements = values_.shape.lines * values_.shape.length;
    return shared_cost(traffic(), elements, DataFormat::SEN169_FP16, passes);
  }

  void run(std::span<const Extent> operands) const override { run_cores(operands, {}, 1); }

  /// What lines share is then computed once, and not by every core.
  std::function<void(std::span<const Extent>)> at_once(const CorePlaces& places,
                                                       bool alone) const override {
    const auto elsewhere = [&](const ChainTensor& tensor) {
      const auto& cores = places[static_cast<std::size_t>(tensor.operand)];
      return !tensor.dims.lines &&
             std::any_of(cores.begin(), cores.end(), [](std::int64_t place) { return place != 0; });
    };
    if (!alone || values_.tensors.empty() || !plan_.once_writes.empty() ||
        std::any_of(values_.tensors.begin(), values_.tensors.end(), elsewhere))
      return {};
    return [this, places](std::span<const Extent> operands) {
      run_cores(operands, places, places[0].size());
    };
  }

 private:
  using Pointers = std::span<std::byte*>;

  /// Copies of what cannot be where it is while blocks run.
  struct Copies {
    /// Elements that are computed beside the tensor that they are stored in.
    struct Aside {
      std::span<const std::byte> computed;
      std::byte* to;
    };
    std::vector<std::vector<std::byte>> memory;
    std::vector<Aside> aside;
  };

  /// With no places, of one core.
  void run_cores(std::span<const Extent> operands, const CorePlaces& places,
                 std::size_t cores) const {
    const std::size_t tensors = values_.tensors.size(), count = cores * tensors;
    std::byte* few[2 * kFewTensors];
    std::vector<std::byte*> many(count > kFewTensors ? 2 * count : 0);
    std::byte** const memory = many.empty() ? few : many.data();
    const Pointers to(memory, count), from(memory + count, count);  // [core * tensors + tensor]
    for (std::size_t core = 0, i = 0; core < cores; ++core)
      for (const ChainTensor& tensor : values_.tensors) {
        const auto operand = static_cast<std::size_t>(tensor.operand);
        to[i] = from[i] = operands[operand].data + (places.empty() ? 0 : places[operand][core]);
        ++i;
      }
    Copies copies;
    bool in_order = false;
    for (std::size_t core = 0; core < cores; ++core) {
      const Pointers mine = to.subspan(core * tensors, tensors);
      compute_aside(mine, copies);
      copy_disturbed(mine, from.subspan(core * tensors, tensors), copies);
      in_order |= this->in_order(mine);
    }

    const Scratch<float> run_memory(ScratchSlot::results, plan_.once_floats);
    const ChainPart whole{0, 1, 0, values_.shape.length, 1, false};
    const ChainWorker once(from.first(tensors), to.first(tensors), run_memory.data(),
                           run_memory.data(), run_memory.data() + plan_.once_work, values_);
    run_once(once, whole);
    run_blocks(to, from, cores, in_order, run_memory.data());
    once.write(plan_.once_writes, whole);
    for (const Copies::Aside& each : copies.aside)
      std::copy(each.computed.begin(), each.computed.end(), each.to);
  }

  void run_once(const ChainWorker& worker, const ChainPart& whole) const {
    // Spreading for blocks goes over a whole block, everything else over the shared line.
    const ChainPart block{0,           plan_.part_lines, 0, plan_.block_length, plan_.part_lines,
                          plan_.across};
    for (const ChainInstruction& each : plan_.once)
      worker.run({&each, 1}, each.dims.lines ? block : whole);
  }

  /// A value that has its home in a tensor is there before it is complete. So its memory must be no
  /// other tensor's.
  void compute_aside(Pointers to, Copies& copies) const {
    if (plan_.computed_in.empty()) return;
    const std::vector<std::byte*> data(to.begin(), to.end());
    for (const std::size_t home : plan_.computed_in) {
      const LineView& view = values_.tensors[home].view;
      bool shared = false;
      for (std::size_t i = 0; i < data.size(); ++i)
        shared |= i != home && overlap(data[home], view, data[i], values_.tensors[i].view);
      if (!shared) continue;
      const auto begin = view.range().begin, end = view.range().end;
      to[home] = copies.memory.emplace_back(end).data();
      copies.aside.push_back({std::span(copies.memory.back()).subspan(begin), data[home] + begin});
    }
  }

  /// Tensors whose elements are overwritten before they are read are read first.
  void copy_disturbed(std::span<std::byte* const> to, Pointers from, Copies& copies) const {
    for (std::size_t load = 0; load < from.size(); ++load) {
      const LineView& view = values_.tensors[load].view;
      const auto disturbed = [&](const ChainStore& store) {
        return in_blocks(store) && disturbs(from[load], view, to[store.tensor], view_of(store));
      };
      if (!loaded_[load] || !values_.tensors[load].dims.lines ||
          std::none_of(values_.stores.begin(), values_.stores.end(), disturbed))
        continue;
      from[load] = copies.memory.emplace_back(from[load], from[load] + view.range().end).data();
    }
  }

  void run_blocks(std::span<std::byte* const> to, std::span<std::byte* const> from,
                  std::size_t cores, bool in_order, float* run_memory) const {
    const std::size_t tensors = values_.tensors.size();
    const std::int64_t blocks = plan_.line_blocks * plan_.position_blocks;
    const auto run_block = [&](std::int64_t core, std::int64_t block) {
      const Scratch<float> memory(ScratchSlot::block, plan_.block_floats);
      float* const work = memory.data() + plan_.block_work;
      const ChainPart whole = block_at(block);
      const std::size_t first = static_cast<std::size_t>(core) * tensors;
      const ChainWorker worker(from.subspan(first, tensors), to.subspan(first, tensors), run_memory,
                               memory.data(), work, values_);
      worker.run(plan_.loads, whole);
      run_parts(worker, whole);
      worker.write(plan_.block_writes, whole);
    };
    const auto all = static_cast<std::int64_t>(cores);
    const auto run_core = [&](std::int64_t core) {
      for (std::int64_t block = 0; block < blocks; ++block) run_block(core, block);
    };
    if (plan_.work * all <= kParallelWork) {
      for (std::int64_t core = 0; core < all; ++core) run_core(core);
    } else if (in_order) {
      ThreadPool::shared().parallel_for(all, run_core);
    } else {
      // As they most likely follow each other in memory.
      const bool core_by_core = values_.shape.lines > 1;
      ThreadPool::shared().parallel_for(all * blocks, [&](std::int64_t task) {
        core_by_core ? run_block(task / blocks, task % blocks) : run_block(task % all, task / all);
      });
    }
  }

  void run_parts(const ChainWorker& worker, const ChainPart& whole) const {
    if (whole.across) return worker.run(plan_.block, whole);
    ChainPart part = whole;
    for (std::int64_t line = 0; line < whole.lines; line += plan_.part_lines) {
      part.line_of_block = line;
      part.computed_lines = std::min(plan_.part_lines, whole.lines - line);
      worker.run(plan_.block, part);
    }
  }

  /// Blocks follow each other as they most likely do in memory.
  ChainPart block_at(std::int64_t block) const {
    const bool across = plan_.across;
    const std::int64_t line =
        (across ? block / plan_.position_blocks : block % plan_.line_blocks) * plan_.block_lines;
    const std::int64_t position =
        (across ? block % plan_.position_blocks : block / plan_.line_blocks) * plan_.block_length;
    const std::int64_t lines = std::min(plan_.block_lines, values_.shape.lines - line);
    const std::int64_t length =
        std::max<std::int64_t>(0, std::min(plan_.block_length, values_.shape.length - position));
    return {line, lines, position, length, across ? plan_.block_lines : lines, across};
  }

  /// Stores that have elements in common: the last block stays.
  bool in_order(std::span<std::byte* const> to) const {
    const auto& stores = values_.stores;
    for (auto one = stores.begin(); one != stores.end(); ++one) {
      if (!in_blocks(*one)) continue;
      if (!view_of(*one).distinct()) return true;
      for (auto other = stores.begin(); other != one; ++other)
        if (in_blocks(*other) &&
            overlap(to[one->tensor], view_of(*one), to[other->tensor], view_of(*other)))
          return true;
    }
    return false;
  }

  /// Whether blocks store it; what lines share is stored after all blocks.
  bool in_blocks(const ChainStore& store) const { return values_.values[store.value].dims.lines; }
  const LineView& view_of(const ChainStore& store) const {
    return values_.tensors[store.tensor].view;
  }

  ChainValues values_;
  ChainPlan plan_;
  std::vector<bool> loaded_;  // by tensor
};

}  // namespace

std::unique_ptr<const Step> decode_chain(PayloadReader& reader) {
  return std::make_unique<const ChainStep>(reader);
}

}  // namespace spyre::card
