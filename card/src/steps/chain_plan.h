// How a chain is executed, worked out when a program is loaded: in which blocks, by which
// instructions, in which buffers.
//
// A block is a rectangle of lines and positions that is computed part by part, a few lines each, in
// buffers that stay in the nearest cache. Plain lines are loaded and stored with their part. All
// else is loaded and stored with the block: enough that pieces of memory are not too short, and no
// more than a core's own cache holds. Values that lines share are computed once a run, before the
// blocks.
#pragma once

#include <cstdint>
#include <vector>

#include "steps/chain_groups.h"
#include "steps/chain_values.h"

namespace spyre::card {

/// Where floats are.
struct ChainPlace {
  enum class Home : std::uint8_t {
    run,     ///< a buffer of the run
    block,   ///< a buffer with all lines of a block
    part,    ///< a buffer with the lines of a part
    loaded,  ///< the tensor itself, which is packed fp32: neither loaded
    stored   ///< nor stored
  };
  Home home = Home::run;
  bool moves = false;       ///< on with the block's position
  bool positions = false;   ///< what is there has positions
  std::int64_t offset = 0;  ///< floats
  std::size_t tensor = 0;   ///< if it is in one
};

/// An input of a pointwise op. A part is stripes, one after the other: lines or, across,
/// positions.
struct ChainInput {
  enum class Kind : std::uint8_t {
    same,    ///< it has the dims of the result
    repeat,  ///< it is the same for every stripe
    number,  ///< one number is for all
    numbers  ///< one number a stripe
  };
  Kind kind = Kind::same;
  ChainPlace place = {};
};

/// A member of a group, with the places of its inputs: see SweepStage.
struct ChainStage {
  SweepOp op;
  bool has_elements = false, has_number = false;
  bool elements_repeat = false, number_repeats = false;  ///< for every line
  ChainPlace elements = {}, number = {};
};

struct ChainInstruction {
  enum class Kind : std::uint8_t {
    scalar,  ///< sets one float
    load,
    store,   ///< of a part
    settle,  ///< what is in its tensor already, as storing would
    pointwise,
    sweep,  ///< a group, or the fold of what is loaded
    reduce,
    spread  ///< from fewer dims to more
  };
  Kind kind;
  ChainDims dims;                       ///< of the result
  ChainDims from = {};                  ///< of what is spread
  const ChainValue* value = nullptr;    ///< what is computed, loaded or stored
  const ChainTensor* tensor = nullptr;  ///< of a load or a store
  bool with_part = false;               ///< of a load: with the part that is computed
  Converters convert = {};              ///< then, and of a store
  float scalar = 0;
  ChainInput in[kMaxInputs] = {};
  int number_input = -1;                  ///< of a pointwise op: which one is a number, if any
  bool by_stripe = false;                 ///< of a pointwise op: stripe after stripe
  std::vector<ChainStage> stages = {};    ///< of a sweep, whose in[0] is what goes through them
  const ChainValue* reduction = nullptr;  ///< of a sweep: what its result is folded into
  const ChainTensor* source = nullptr;    ///< of a sweep: from where it loads what is in[0] then,
  bool keeps_source = false;              ///< which has a place only if something else needs it
  const ChainTensor* sink = nullptr;      ///< of a sweep: where it stores its result,
  bool stored = true;                     ///< which else has a place, or is only folded
  ChainPlace out = {}, reduced = {};
};

struct ChainWrite {
  ChainPlace from;
  const ChainValue* value;
  const ChainTensor* tensor;
};

struct ChainPlan {
  explicit ChainPlan(const ChainValues& values);

  bool across = false;  ///< blocks are arranged across lines, see reduce_kernels.h
  std::int64_t block_lines = 1, block_length = 1;
  std::int64_t part_lines = 1;  ///< that are computed at once; across, all of a block's
  std::int64_t line_blocks = 0, position_blocks = 0;
  std::int64_t work = 0;  ///< all of the blocks, in elements of a cheap op

  std::vector<ChainInstruction> once, loads, block;  ///< of the run; of a block; of its parts
  std::vector<ChainWrite> once_writes, block_writes;
  std::int64_t once_floats = 0, block_floats = 0;  ///< of all buffers
  std::int64_t once_work = 0, block_work = 0;      ///< where the work space of reductions begins
  std::vector<std::size_t> computed_in;            ///< tensors that are the home of a value

  /// Floats of a value with these dims: of the run, or of so many lines.
  std::int64_t floats(const ChainDims& dims, std::int64_t lines) const {
    const std::int64_t length = dims.lines ? block_length : line_length;
    return (dims.lines ? lines : 1) * (dims.positions ? length : 1);
  }

 private:
  void choose_blocks(const ChainValues& values);

  std::int64_t line_length = 0;
};

/// Floats that a reduction of so many lines works in beside its input and result.
std::int64_t reduce_work_floats(const ReducePieces& fold, std::int64_t lines, bool across);

}  // namespace spyre::card
