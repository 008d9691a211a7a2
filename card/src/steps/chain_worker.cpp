#include "steps/chain_worker.h"

#include <algorithm>

namespace spyre::card {
namespace {

InPlace dl16_rounding() {
  const PointwiseKernels& kernels = pointwise_kernels_here();
  return dl16_specials() == Dl16Specials::merged ? kernels.dl16_merged : kernels.dl16_ieee;
}

/// NaNs come out of memory without sign and payload.
void drop_payloads(float* values, std::int64_t count) {
  pointwise_kernels_here().quiet_fp32(values, static_cast<std::size_t>(count));
}

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

}  // namespace

void ChainWorker::run(std::span<const ChainInstruction> instructions, const ChainPart& part) const {
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

void ChainWorker::write(std::span<const ChainWrite> writes, const ChainPart& part) const {
  for (const ChainWrite& each : writes) {
    float* const values = at(each.from, part);
    const LineView& view = each.tensor->view;
    if (view.format() == DataFormat::IEEE_FP32) drop_payloads(values, part.count(each.value->dims));
    view.scatter(values, part.window(each.value->dims), to_[index(*each.tensor)],
                 narrow_of(*each.value, *each.tensor));
  }
}

float* ChainWorker::at(const ChainPlace& place, const ChainPart& part) const {
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
      return reinterpret_cast<float*>(tensor + first_tensor_[place.tensor].view.plain()->offset()) +
             line * line_length_ + part.position;
    }
  }
}

std::size_t ChainWorker::index(const ChainTensor& tensor) const {
  return static_cast<std::size_t>(&tensor - first_tensor_);
}

void ChainWorker::load(const ChainInstruction& instruction, const ChainPart& part,
                       float* out) const {
  const LineView& view = instruction.tensor->view;
  const std::byte* const from = from_[index(*instruction.tensor)];
  if (instruction.with_part)
    return view.plain()->gather(from, part.packed(), instruction.convert, out);
  if (!view.complete() || (instruction.dims.lines && part.lines < part.computed_lines))
    std::fill_n(out, part.count(instruction.dims), 0.0f);
  view.gather(from, part.window(instruction.dims), out);
}

void ChainWorker::store(const ChainInstruction& instruction, const ChainPart& part) const {
  float* const values = at(instruction.in[0].place, part);
  const LineView& view = instruction.tensor->view;
  if (view.format() == DataFormat::IEEE_FP32) drop_payloads(values, part.count(instruction.dims));
  view.plain()->scatter(values, part.packed(), instruction.convert,
                        to_[index(*instruction.tensor)]);
}

void ChainWorker::compute(const ChainInstruction& instruction, const ChainPart& part,
                          float* out) const {
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

void ChainWorker::sweep(const ChainInstruction& instruction, const ChainPart& part,
                        float* out) const {
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
  float* const x =
      instruction.source && !instruction.keeps_source ? nullptr : at(instruction.in[0].place, part);
  static const bool merged = dl16_specials() == Dl16Specials::merged;
  Sweep sweep{lines, part.length, {}, x, stages, count, out, {}, work_, lines, merged};
  // All lines at once, if they lie in memory at one distance.
  for (std::int64_t done = 0; done < lines; done += sweep.lines) {
    sweep.lines = lines - done;
    if (instruction.source)
      sweep.from = sticks<const char>(*instruction.source, from_, part, done, sweep.lines);
    if (instruction.sink) sweep.to = sticks<char>(*instruction.sink, to_, part, done, sweep.lines);
    run(sweep);
    move_on(sweep, stages);
  }
  if (out) settle(*instruction.value, out, lines * part.length);
  if (reduction) finish_reduction(*reduction, lines, part.across, at(instruction.reduced, part));
}

template <typename Byte>
StickLines<Byte> ChainWorker::sticks(const ChainTensor& tensor, std::span<std::byte* const> data,
                                     const ChainPart& part, std::int64_t done,
                                     std::int64_t& lines) const {
  const PlainLines& plain = *tensor.view.plain();
  const auto strip = plain.strip(part.line + part.line_of_block + done, lines);
  lines = strip.lines;
  std::byte* const first = data[index(tensor)] + strip.offset + plain.offset_of(part.position);
  return {reinterpret_cast<Byte*>(first), strip.line_step, *plain.step_of(kStickElements)};
}

void ChainWorker::move_on(Sweep& sweep, SweepStage* stages) {
  const std::int64_t elements = sweep.lines * sweep.length;
  if (sweep.x) sweep.x += elements;
  if (sweep.out) sweep.out += elements;
  sweep.partials += sweep.lines;
  for (int i = 0; i < sweep.stage_count; ++i) {
    if (stages[i].elements) stages[i].elements += sweep.lines * stages[i].line_step;
    if (stages[i].numbers) stages[i].numbers += sweep.lines * stages[i].number_step;
  }
}

void ChainWorker::settle(const ChainValue& value, float* values, std::int64_t n) {
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

void ChainWorker::reduce(const ChainValue& value, const float* x, const ChainPart& part,
                         float* out) const {
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

void ChainWorker::finish_reduction(const ChainValue& value, std::int64_t lines, bool across,
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

void ChainWorker::spread(const ChainInstruction& instruction, const ChainPart& part,
                         float* out) const {
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

}  // namespace spyre::card
