// The step that computes a chain of pointwise ops and reductions: one pass over device memory,
// block by block, all that is in between in the host's caches.
#include <algorithm>
#include <utility>

#include "chain_plan.h"
#include "chain_values.h"
#include "steps.h"
#include "thread_pool.h"

namespace spyre::card {
namespace {

constexpr std::int64_t kParallelWork = 48 << 10;  // elements of a cheap op: worth waking a thread

InPlace dl16_rounding() {
  const PointwiseKernels& kernels = pointwise_kernels_here();
  return dl16_specials() == Dl16Specials::merged ? kernels.dl16_merged : kernels.dl16_ieee;
}

/// NaNs come out of memory without sign and payload.
void drop_payloads(float* values, std::int64_t count) {
  pointwise_kernels_here().quiet_fp32(values, static_cast<std::size_t>(count));
}

/// Some of the lines and positions, and how they are arranged.
struct Part {
  std::int64_t line, lines, position, length;
  std::int64_t computed_lines;  // across, blocks are all equally wide: the last lines may be spare
  bool across;
  std::int64_t line_of_block = 0;  // what the first line is in the block that the part is of

  std::int64_t count(const ChainDims& dims) const {
    return (dims.lines ? computed_lines : 1) * (dims.positions ? length : 1);
  }
  LineWindow window(const ChainDims& dims) const {
    if (!dims.positions) return {line, lines, 0, 1, 1, computed_lines};
    if (across) return {line, lines, position, length, 1, computed_lines};
    return {line, lines, position, length, length, 1};
  }
  PackedLines packed() const { return {line + line_of_block, computed_lines, position, length}; }
};

/// Where a reduction has what it works with, see reduce_work_floats().
struct ReduceWork {
  ReduceWork(const ReducePieces& fold, std::int64_t lines, bool across, float* memory)
      : first(memory),
        second(first + fold.pieces * lines),
        parameters(next(first, fold.pieces * lines * (fold.recipe.second ? 2 : 1))),
        lanes(next(parameters, lines)),
        integers(reinterpret_cast<std::int64_t*>(next(lanes, across ? lines * kFoldLanes : 0))) {}

  float *const first, *const second;  ///< [piece * lines + line]
  float *const parameters, *const lanes;
  std::int64_t* const integers;

 private:
  static float* next(float* from, std::int64_t floats) { return from + (floats + 15) / 16 * 16; }
};

/// Runs instructions on one part.
class Worker {
 public:
  Worker(std::span<std::byte* const> from, std::span<std::byte* const> to, float* run_memory,
         float* memory, float* work, const ChainValues& values)
      : from_(from),
        to_(to),
        run_memory_(run_memory),
        memory_(memory),
        work_(work),
        first_tensor_(values.tensors.data()),
        line_length_(values.shape.length) {}

  void run(std::span<const ChainInstruction> instructions, const Part& part) const {
    for (const ChainInstruction& each : instructions) {
      float* const out = at(each.out, part);
      switch (each.kind) {
        case ChainInstruction::Kind::scalar:
          *out = each.scalar;
          break;
        case ChainInstruction::Kind::load:
          load(each, part, out);
          break;
        case ChainInstruction::Kind::store:
          store(each, part);
          break;
        case ChainInstruction::Kind::settle:
          drop_payloads(at(each.in[0].place, part), part.count(each.dims));
          break;
        case ChainInstruction::Kind::pointwise:
          compute(each, part, out);
          break;
        case ChainInstruction::Kind::sweep:
          sweep(each, part, each.stored ? out : nullptr);
          break;
        case ChainInstruction::Kind::reduce:
          reduce(*each.value, at(each.in[0].place, part), part, out);
          break;
        case ChainInstruction::Kind::spread:
          spread(each, part, out);
          break;
      }
    }
  }

  void write(std::span<const ChainWrite> writes, const Part& part) const {
    for (const ChainWrite& each : writes) {
      float* const values = at(each.from, part);
      const LineView& view = each.tensor->view;
      if (view.format() == DataFormat::IEEE_FP32)
        drop_payloads(values, part.count(each.value->dims));
      view.scatter(values, part.window(each.value->dims), to_[index(*each.tensor)],
                   narrow_of(*each.value, *each.tensor));
    }
  }

 private:
  float* at(const ChainPlace& place, const Part& part) const {
    using Home = ChainPlace::Home;
    switch (place.home) {
      case Home::run:
        return run_memory_ + place.offset + (place.moves ? part.position : 0);
      case Home::part:
        return memory_ + place.offset;
      case Home::block:
        return memory_ + place.offset + part.line_of_block * (place.positions ? part.length : 1);
      default: {
        std::byte* const tensor = (place.home == Home::loaded ? from_ : to_)[place.tensor];
        const std::int64_t line = part.line + part.line_of_block;
        return reinterpret_cast<float*>(tensor +
                                        first_tensor_[place.tensor].view.plain()->offset()) +
               line * line_length_ + part.position;
      }
    }
  }
  std::size_t index(const ChainTensor& tensor) const {
    return static_cast<std::size_t>(&tensor - first_tensor_);
  }

  void load(const ChainInstruction& instruction, const Part& part, float* out) const {
    const LineView& view = instruction.tensor->view;
    const std::byte* const from = from_[index(*instruction.tensor)];
    if (instruction.with_part)
      return view.plain()->gather(from, part.packed(), instruction.convert, out);
    if (!view.complete() || (instruction.dims.lines && part.lines < part.computed_lines))
      std::fill_n(out, part.count(instruction.dims), 0.0f);
    view.gather(from, part.window(instruction.dims), out);
  }

  void store(const ChainInstruction& instruction, const Part& part) const {
    float* const values = at(instruction.in[0].place, part);
    const LineView& view = instruction.tensor->view;
    if (view.format() == DataFormat::IEEE_FP32) drop_payloads(values, part.count(instruction.dims));
    view.plain()->scatter(values, part.packed(), instruction.convert,
                          to_[index(*instruction.tensor)]);
  }

  void compute(const ChainInstruction& instruction, const Part& part, float* out) const {
    const ChainValue& value = *instruction.value;
    const std::int64_t n = part.count(instruction.dims);
    const std::int64_t stripes = !instruction.by_stripe ? 1
                                 : part.across          ? part.length
                                                        : part.computed_lines;
    const std::int64_t stripe = stripes > 0 ? n / stripes : 0;
    const float* in[kMaxInputs];
    std::int64_t step[kMaxInputs];
    for (std::size_t i = 0; i < value.inputs.size(); ++i) {
      const ChainInput& input = instruction.in[i];
      in[i] = at(input.place, part);
      step[i] = input.kind == ChainInput::Kind::same      ? stripe
                : input.kind == ChainInput::Kind::numbers ? 1
                                                          : 0;
    }
    const int number = instruction.number_input;
    for (std::int64_t i = 0; i < stripes; ++i) {
      const auto count = static_cast<std::size_t>(stripe);
      if (number >= 0) {
        value.number_run[number](in[1 - number], *in[number], out + i * stripe, count);
      } else {
        const void* inputs[kMaxInputs];
        std::copy_n(in, value.inputs.size(), inputs);
        value.run(inputs, out + i * stripe, value.constants, count);
      }
      for (std::size_t k = 0; k < value.inputs.size(); ++k) in[k] += step[k];
    }
    settle(value, out, n);
  }

  void sweep(const ChainInstruction& instruction, const Part& part, float* out) const {
    SweepStage stages[kMaxSweepStages];
    int count = 0;
    for (const ChainStage& stage : instruction.stages)
      stages[count++] = {stage.op, stage.has_elements ? at(stage.elements, part) : nullptr,
                         stage.elements_repeat ? 0 : part.length,
                         stage.has_number ? at(stage.number, part) : nullptr,
                         stage.number_repeats ? 0 : 1};
    const std::int64_t lines = part.computed_lines;
    const ChainValue* const reduction = instruction.reduction;
    const SweepKernels& kernels = line_kernels().sweeps;
    const auto run = !reduction                                   ? kernels.plain
                     : reduction->fold->recipe.first == Fold::sum ? kernels.sum
                                                                  : kernels.largest;
    run({lines, part.length, at(instruction.in[0].place, part), stages, count, out, work_});
    if (out) settle(*instruction.value, out, lines * part.length);
    if (reduction) finish_reduction(*reduction, lines, part.across, at(instruction.reduced, part));
  }

  /// What the value would be if it came back from memory.
  static void settle(const ChainValue& value, float* values, std::int64_t n) {
    const auto count = static_cast<std::size_t>(n);
    if (value.narrow == Narrow::boolean) {
      pointwise_kernels_here().boolean_fp32(values, count);
    } else if (value.format == DataFormat::SEN169_FP16) {
      if (value.only_stored) return;
      static const InPlace round = dl16_rounding();
      round(values, count);
    } else if (value.clean_nan) {
      drop_payloads(values, n);
    }
  }

  void reduce(const ChainValue& value, const float* x, const Part& part, float* out) const {
    const ReducePieces& fold = *value.fold;
    const std::int64_t lines = value.dims.lines ? part.computed_lines : 1;
    const bool across = value.dims.lines && part.across;
    const ReduceWork work(fold, lines, across, work_);
    const std::int64_t pitch = across ? lines : fold.length;
    for (std::int64_t piece = 0; piece < fold.pieces; ++piece)
      fold.fold(x + piece * fold.piece_length * (across ? pitch : 1),
                {lines, fold.length_of(piece), pitch, across}, work.parameters,
                work.first + piece * lines, work.second + piece * lines, work.lanes);
    finish_reduction(value, lines, across, out);
  }

  /// From what pieces were folded into to the value.
  void finish_reduction(const ChainValue& value, std::int64_t lines, bool across,
                        float* out) const {
    const ReducePieces& fold = *value.fold;
    const ReduceWork work(fold, lines, across, work_);
    fold.finish(work.first, work.second, work.integers, lines, lines);
    if (fold.counts_or_indices()) {
      const auto count = static_cast<std::size_t>(lines);
      convert(DataFormat::IEEE_INT64, work.integers, value.format, work.first, count, value.narrow);
      convert(value.format, work.first, DataFormat::IEEE_FP32, out, count);
    } else {
      std::copy_n(work.first, lines, out);
      settle(value, out, lines);
    }
  }

  void spread(const ChainInstruction& instruction, const Part& part, float* out) const {
    const float* const values = at(instruction.in[0].place, part);
    const ChainDims &from = instruction.from, &to = instruction.dims;
    if (from == ChainDims{}) {
      std::fill_n(out, part.count(to), *values);
      return;
    }
    // One line after the other or, across, one position after the other: all of it the same
    // number, or one after the other as they are.
    const std::int64_t outer = part.across ? part.length : part.computed_lines;
    const std::int64_t inner = part.across ? part.computed_lines : part.length;
    const bool same = part.across ? !from.lines : !from.positions;
    for (std::int64_t i = 0; i < outer; ++i, out += inner) {
      if (same) {
        std::fill_n(out, inner, values[i]);
      } else {
        std::copy_n(values, inner, out);
      }
    }
  }

  const std::span<std::byte* const> from_, to_;
  float *const run_memory_, *const memory_, *const work_;
  const ChainTensor* const first_tensor_;
  const std::int64_t line_length_;
};

class ChainStep : public Step {
 public:
  explicit ChainStep(PayloadReader& reader) : values_(reader), plan_(values_) {}

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
      if (values_.loaded(i)) traffic.read += values_.tensors[i].view.read().read;
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

  void run(std::span<const Extent> operands) const override {
    std::vector<std::byte*> to;
    for (const ChainTensor& tensor : values_.tensors)
      to.push_back(operands[static_cast<std::size_t>(tensor.operand)].data);
    std::vector<std::byte*> from = to;
    std::vector<std::vector<std::byte>> copies;
    const std::vector<Aside> aside = compute_aside(to, copies);
    copy_disturbed(to, from, copies);

    const Scratch<float> run_memory(ScratchSlot::results, plan_.once_floats);
    const Part whole{0, 1, 0, values_.shape.length, 1, false};
    const Worker once(from, to, run_memory.data(), run_memory.data(),
                      run_memory.data() + plan_.once_work, values_);
    run_once(once, whole);
    run_blocks(to, from, run_memory.data());
    once.write(plan_.once_writes, whole);
    for (const Aside& each : aside) std::copy(each.computed.begin(), each.computed.end(), each.to);
  }

 private:
  void run_once(const Worker& worker, const Part& whole) const {
    // Spreading for blocks goes over a whole block, everything else over the shared line.
    const Part block{0, plan_.part_lines, 0, plan_.block_length, plan_.part_lines, plan_.across};
    for (const ChainInstruction& each : plan_.once)
      worker.run({&each, 1}, each.dims.lines ? block : whole);
  }

  /// Elements that are computed beside the tensor that they are stored in.
  struct Aside {
    std::span<const std::byte> computed;
    std::byte* to;
  };

  /// A value that has its home in a tensor is there before it is complete. So its memory must be no
  /// other tensor's.
  std::vector<Aside> compute_aside(std::vector<std::byte*>& to,
                                   std::vector<std::vector<std::byte>>& copies) const {
    std::vector<Aside> aside;
    const std::vector<std::byte*> data = to;
    for (const std::size_t home : plan_.computed_in) {
      const LineView& view = values_.tensors[home].view;
      bool shared = false;
      for (std::size_t i = 0; i < data.size(); ++i)
        shared |= i != home && overlap(data[home], view, data[i], values_.tensors[i].view);
      if (!shared) continue;
      const auto begin = view.range().begin, end = view.range().end;
      copies.emplace_back(end);
      to[home] = copies.back().data();
      aside.push_back({std::span(copies.back()).subspan(begin), data[home] + begin});
    }
    return aside;
  }

  /// Tensors whose elements are overwritten before they are read are read first.
  void copy_disturbed(const std::vector<std::byte*>& to, std::vector<std::byte*>& from,
                      std::vector<std::vector<std::byte>>& copies) const {
    for (std::size_t load = 0; load < values_.tensors.size(); ++load) {
      const LineView& view = values_.tensors[load].view;
      const auto disturbed = [&](const ChainStore& store) {
        return in_blocks(store) && disturbs(from[load], view, to[store.tensor], view_of(store));
      };
      if (!values_.loaded(load) || !values_.tensors[load].dims.lines ||
          std::none_of(values_.stores.begin(), values_.stores.end(), disturbed))
        continue;
      copies.emplace_back(from[load], from[load] + view.range().end);
      from[load] = copies.back().data();
    }
  }

  void run_blocks(const std::vector<std::byte*>& to, const std::vector<std::byte*>& from,
                  float* run_memory) const {
    const std::int64_t blocks = plan_.line_blocks * plan_.position_blocks;
    const auto run_block = [&](std::int64_t block) {
      const Scratch<float> memory(ScratchSlot::block, plan_.block_floats);
      float* const work = memory.data() + plan_.block_work;
      const Part whole = block_at(block);
      const Worker worker(from, to, run_memory, memory.data(), work, values_);
      worker.run(plan_.loads, whole);
      run_parts(worker, whole);
      worker.write(plan_.block_writes, whole);
    };
    if (plan_.work > kParallelWork && !in_order(to)) {
      ThreadPool::shared().parallel_for(blocks, run_block);
    } else {
      for (std::int64_t block = 0; block < blocks; ++block) run_block(block);
    }
  }

  void run_parts(const Worker& worker, const Part& whole) const {
    if (whole.across) return worker.run(plan_.block, whole);
    Part part = whole;
    for (std::int64_t line = 0; line < whole.lines; line += plan_.part_lines) {
      part.line_of_block = line;
      part.computed_lines = std::min(plan_.part_lines, whole.lines - line);
      worker.run(plan_.block, part);
    }
  }

  /// Blocks follow each other as they most likely do in memory.
  Part block_at(std::int64_t block) const {
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
  bool in_order(const std::vector<std::byte*>& to) const {
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
};

}  // namespace

std::unique_ptr<const Step> decode_chain(PayloadReader& reader) {
  return std::make_unique<const ChainStep>(reader);
}

}  // namespace spyre::card
