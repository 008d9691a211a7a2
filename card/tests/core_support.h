// Programs of cores for tests: one step of integers, the parts of an operand.
#pragma once

#include <utility>
#include <vector>

#include "line_support.h"

namespace spyre::card::test {

inline constexpr std::int64_t kLanes = 32;  // 32-bit integers in a stick
inline constexpr std::int64_t kStick = 128;
inline constexpr std::int64_t kPad = CoreProgram::Operand::kScratchpad;

/// Operand `to` = operand `a` + operand `b`, so many sticks of integers.
inline std::vector<std::byte> add_step(std::int64_t a, std::int64_t b, std::int64_t to,
                                       std::int64_t sticks = 1) {
  Pointwise step;
  step.op = OpFunc::add;
  step.compute = Compute::int64;
  step.inputs = {{a, kInt32}, {b, kInt32}};
  step.output = {to, kInt32};
  step.nests = {{{{sticks * kLanes, {1, 1, 1}}}, {0, 0, 0}}};
  ProgramBuilder builder;
  builder.pointwise(step);
  return builder.finish();
}

inline CoreProgram::Node step_node(std::vector<std::byte> step, std::int64_t first,
                                   std::int64_t end) {
  CoreProgram::Node node;
  node.step = std::move(step);
  node.first_core = first;
  node.end_core = end;
  return node;
}

inline CoreProgram::Node loop_node(std::int64_t count, std::vector<CoreProgram::Advance> advances,
                                   std::vector<CoreProgram::Node> body) {
  CoreProgram::Node node;
  node.count = count;
  node.advances = std::move(advances);
  node.body = std::move(body);
  return node;
}

/// So many bytes of an operand for each core, one after the other.
inline CoreProgram::Operand part(std::int64_t operand, std::int64_t cores, std::int64_t bytes,
                                 std::int64_t start = 0) {
  CoreProgram::Operand result{operand, {}};
  for (std::int64_t core = 0; core < cores; ++core) result.offset.push_back(start + core * bytes);
  return result;
}

}  // namespace spyre::card::test
