// Which blocks and parts a chain is computed in.
#include <algorithm>

#include "steps/chain_plan.h"

namespace spyre::card {
namespace {

constexpr std::int64_t kPart = 8192;       // elements that are computed at once
constexpr std::int64_t kBlock = 32768;     // elements of a block, at most
constexpr std::int64_t kLoaded = 1 << 17;  // elements of all that a block loads and stores
constexpr std::int64_t kShortLine = 16;    // lines shorter than that are reduced side by side
constexpr std::int64_t kStick = 64;

constexpr ChainDims kFull{true, true}, kColumn{true, false};

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

/// The tensor with most elements that has lines and positions; null if there is none.
const LineView* largest_view(const ChainValues& values) {
  const LineView* largest = nullptr;
  const auto consider = [&](std::size_t tensor) {
    const ChainTensor& each = values.tensors[tensor];
    if (each.dims == kFull && (!largest || each.view.visits() > largest->visits()))
      largest = &each.view;
  };
  for (const ChainValue& value : values.values)
    if (value.needed && value.kind == Chain::Kind::load) consider(value.tensor);
  for (const ChainStore& store : values.stores) consider(store.tensor);
  return largest;
}

}  // namespace

/// Blocks decide about nothing but speed. Yet they must not depend on the host's threads: where
/// stores overlap, the last block stays.
void ChainPlan::choose_blocks(const ChainValues& values) {
  const std::int64_t lines = values.shape.lines, length = values.shape.length;
  bool full = false, columns = false, reduced = false;
  std::int64_t cost = 0;
  for (const ChainValue& value : values.values) {
    if (!value.needed || !value.dims.lines) continue;
    full |= value.dims == kFull;
    columns |= value.dims == kColumn;
    reduced |= value.kind == Chain::Kind::reduce;
    if (value.dims == kFull) cost += value.cost;
  }
  const std::int64_t some_lines = std::max<std::int64_t>(1, lines);
  position_blocks = 1;
  if (!full) {
    part_lines = block_lines = std::min(some_lines, kPart);
    line_blocks = columns ? ceil_div(lines, block_lines) : 0;
    work = lines;
    return;
  }
  const std::int64_t some_length = std::max<std::int64_t>(1, length);
  work = lines * some_length * cost;
  bool whole_lines = reduced;
  for (const ChainStore& store : values.stores)
    whole_lines |= values.tensors[store.tensor].dims == kColumn;
  const LineView* const largest = largest_view(values);
  across = (largest && !largest->runs_along()) || (reduced && length < kShortLine);
  // What lies side by side in memory is best read in one go.
  const std::int64_t run = largest ? std::max(largest->run_length(), kStick) : kPart;
  if (across) {
    block_lines = whole_lines ? 2 * kPart / some_length : std::min(run, 2 * kPart);
    block_lines = std::clamp(block_lines / kStick * kStick, kStick, std::max(kStick, some_lines));
    block_lines = std::min(block_lines, some_lines);
    block_length = whole_lines ? some_length
                               : std::clamp(2 * kPart / block_lines, std::int64_t{1}, some_length);
    part_lines = block_lines;
  } else {
    const auto tensors = static_cast<std::int64_t>(values.tensors.size());
    const std::int64_t budget = std::clamp(kLoaded / tensors, kPart, kBlock);
    // Of several lines, the next ones lie beside a piece; of one, the next pieces do not.
    const std::int64_t piece = std::min(run, kPart), pieces = lines == 1 ? kPart / piece : 1;
    block_length = whole_lines ? some_length : std::min(pieces * piece, some_length);
    block_lines = std::clamp(budget / block_length, std::int64_t{1}, some_lines);
    const bool scattered = largest && largest->plain() && largest->plain()->scattered();
    // What is computed of a line's reductions takes as long for one line as for several.
    const std::int64_t part = scattered ? kBlock : reduced ? 2 * kPart : kPart;
    part_lines = std::clamp(part / block_length, std::int64_t{1}, block_lines);
  }
  line_blocks = ceil_div(lines, block_lines);
  position_blocks = ceil_div(some_length, block_length);
}

}  // namespace spyre::card
