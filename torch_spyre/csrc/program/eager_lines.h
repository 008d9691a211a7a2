// A tensor as lines: what reductions, row ops and scans work on. A line has one element for each
// index of some of the dimensions, its positions; there is one line for each index of the others.
#pragma once

#include <bitset>
#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/WrapDimMinimal.h>

#include "program/eager_plan.h"
#include "spyre/program.h"

namespace spyre::eager {

using DimSet = std::bitset<64>;
using Strides = c10::SmallVector<std::int64_t, 6>;

/// How lines and positions advance with each dimension; both are counted in index order.
struct LinePlan {
  Strides line, position;
  std::int64_t lines = 1, length = 1;

  LinePlan(c10::IntArrayRef size, DimSet along) : line(size.size()), position(size.size()) {
    for (std::size_t d = size.size(); d-- > 0;) {
      std::int64_t& count = along[d] ? length : lines;
      (along[d] ? position : line)[d] = count;
      count *= size[d];
    }
  }
};

inline DimSet single_dim(std::int64_t dim, std::int64_t rank) {
  return rank == 0 ? DimSet() : DimSet().set(c10::maybe_wrap_dim(dim, rank));
}

/// Dimensions `first` to `end`, without that.
inline DimSet dim_range(std::int64_t first, std::int64_t end) {
  DimSet dims;
  for (std::int64_t d = first; d < end; ++d) dims.set(d);
  return dims;
}

inline std::vector<card::LineLoops> line_loops(c10::IntArrayRef size, const Operand& tensor,
                                               c10::IntArrayRef line, c10::IntArrayRef position) {
  std::vector<card::LineLoops> loops;
  const JointOperand operands[] = {JointOperand::of(tensor, size), JointOperand::counting(line),
                                   JointOperand::counting(position)};
  for (const JointNest& nest : joint_loops(size, operands)) {
    card::LineLoops& loop = loops.emplace_back();
    for (const JointNest::Dim& dim : nest.dims) {
      loop.size.push_back(dim.size);
      loop.tensor.push_back(dim.stride[0]);
      loop.line.push_back(dim.stride[1]);
      loop.position.push_back(dim.stride[2]);
    }
    loop.tensor_offset = nest.offset[0];
    loop.line_offset = nest.offset[1];
    loop.position_offset = nest.offset[2];
  }
  return loops;
}

/// A tensor of the plan's size, as operand number `operand` of a program.
inline card::LineTensor line_tensor(std::int64_t operand, const Operand& tensor,
                                    const LinePlan& plan) {
  return {operand, tensor.format(), line_loops(tensor.sizes(), tensor, plan.line, plan.position)};
}

/// Loops of a pointwise step over operands in their order.
inline std::vector<card::Pointwise::Nest> pointwise_nests(c10::IntArrayRef size,
                                                          c10::ArrayRef<JointOperand> operands) {
  std::vector<card::Pointwise::Nest> nests;
  for (const JointNest& joint : joint_loops(size, operands)) {
    card::Pointwise::Nest& nest = nests.emplace_back();
    nest.offset.assign(joint.offset.begin(), joint.offset.end());
    for (const JointNest::Dim& dim : joint.dims)
      nest.dims.push_back({dim.size, {dim.stride.begin(), dim.stride.end()}});
  }
  return nests;
}

/// An input of a pointwise step that is part of a larger program: a tensor or a number.
struct StepInput {
  std::int64_t operand = card::Pointwise::Input::kScalar;
  double value = 0;
};

/// output = op(inputs), in fp32; inputs are broadcast to the output's size. Both are named by the
/// numbers of operands.
inline void add_pointwise(card::ProgramBuilder& builder, Operands operands, OpFunc op,
                          std::initializer_list<StepInput> inputs, std::int64_t output_operand) {
  const Operand& output = operands[output_operand];
  card::Pointwise step;
  step.op = op;
  std::vector<JointOperand> sides;
  for (const StepInput& input : inputs) {
    if (input.operand == card::Pointwise::Input::kScalar) {
      step.inputs.push_back(card::Pointwise::Input::scalar(input.value));
      continue;
    }
    const Operand& tensor = operands[input.operand];
    step.inputs.push_back({input.operand, tensor.format()});
    sides.push_back(JointOperand::of(tensor, output.sizes()));
  }
  sides.push_back(JointOperand::of(output, output.sizes()));
  step.output = {output_operand, output.format(), output.narrow()};
  step.nests = pointwise_nests(output.sizes(), sides);
  builder.pointwise(step);
}

/// Integers are computed in 64 bits, all else in fp32.
inline card::Compute compute_in(c10::ScalarType dtype) {
  return c10::isIntegralType(dtype, true) ? card::Compute::int64 : card::Compute::fp32;
}

}  // namespace spyre::eager
