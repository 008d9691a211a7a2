// Runs the instructions of a chain's plan on parts of its lines.
#pragma once

#include <cstdint>
#include <span>

#include "steps/chain_plan.h"
#include "steps/chain_values.h"

namespace spyre::card {

/// Some of the lines and positions, and how they are arranged.
struct ChainPart {
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

/// Runs instructions on one part of a core.
class ChainWorker {
 public:
  ChainWorker(std::span<std::byte* const> from, std::span<std::byte* const> to, float* run_memory,
              float* memory, float* work, const ChainValues& values)
      : from_(from),
        to_(to),
        run_memory_(run_memory),
        memory_(memory),
        work_(work),
        first_tensor_(values.tensors.data()),
        line_length_(values.shape.length) {}
  void run(std::span<const ChainInstruction> instructions, const ChainPart& part) const;
  void write(std::span<const ChainWrite> writes, const ChainPart& part) const;

 private:
  float* at(const ChainPlace& place, const ChainPart& part) const;
  std::size_t index(const ChainTensor& tensor) const;
  void load(const ChainInstruction& instruction, const ChainPart& part, float* out) const;
  void store(const ChainInstruction& instruction, const ChainPart& part) const;
  void compute(const ChainInstruction& instruction, const ChainPart& part, float* out) const;
  void sweep(const ChainInstruction& instruction, const ChainPart& part, float* out) const;
  /// Lines of the part from `done` on; `lines` becomes how many lie at one distance.
  template <typename Byte>
  StickLines<Byte> sticks(const ChainTensor& tensor, std::span<std::byte* const> data,
                          const ChainPart& part, std::int64_t done, std::int64_t& lines) const;
  /// To the lines after those that were swept.
  static void move_on(Sweep& sweep, SweepStage* stages);
  /// What the value would be if it came back from memory.
  static void settle(const ChainValue& value, float* values, std::int64_t n);
  void reduce(const ChainValue& value, const float* x, const ChainPart& part, float* out) const;
  /// From what pieces were folded into to the value.
  void finish_reduction(const ChainValue& value, std::int64_t lines, bool across, float* out) const;
  void spread(const ChainInstruction& instruction, const ChainPart& part, float* out) const;

  const std::span<std::byte* const> from_, to_;
  float *const run_memory_, *const memory_, *const work_;
  const ChainTensor* const first_tensor_;
  const std::int64_t line_length_;
};

}  // namespace spyre::card
