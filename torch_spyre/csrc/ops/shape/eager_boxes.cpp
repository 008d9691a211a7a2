#include "ops/shape/eager_boxes.h"

namespace spyre::eager {
namespace {

/// Of boxes with the same source. The target is the last operand.
void add_move(card::ProgramBuilder& builder, Operands operands, c10::ArrayRef<Box> boxes) {
  const std::int64_t from = boxes[0].source;
  const Operand &source = operands[from], &target = operands.back();
  card::DataConversion move;
  move.src = source.format();
  move.dst = target.format();
  if (source.scalar_type() != target.scalar_type()) move.narrow = target.narrow();
  for (const Box& box : boxes) {
    const JointOperand sides[] = {{source, box.from, box.from_offset},
                                  {target, box.to, box.to_offset}};
    for (const JointNest& nest : joint_loops(box.size, sides)) {
      card::StrideInfo& loop = move.loops.emplace_back();
      loop.offset_src = nest.offset[0];
      loop.offset_dst = nest.offset[1];
      for (const JointNest::Dim& dim : nest.dims) {
        loop.size.push_back(dim.size);
        loop.stride_src.push_back(dim.stride[0]);
        loop.stride_dst.push_back(dim.stride[1]);
      }
    }
  }
  builder.move(from, static_cast<std::int64_t>(operands.size()) - 1, move);
}

void build_moves(card::ProgramBuilder& builder, Operands operands, const std::vector<Box>& boxes) {
  for (std::size_t first = 0, end; first < boxes.size(); first = end) {
    end = first + 1;
    while (end < boxes.size() && boxes[end].source == boxes[first].source) ++end;
    add_move(builder, operands, c10::ArrayRef<Box>(boxes).slice(first, end - first));
  }
}

}  // namespace

std::vector<Box> boxes_of(const at::Tensor& source, const at::Tensor& target,
                          c10::ArrayRef<std::vector<Stretch>> stretches) {
  Box start;
  start.from_offset = source.storage_offset();
  start.to_offset = target.storage_offset();
  std::vector<Box> boxes{start};
  for (std::size_t d = 0; d < stretches.size(); ++d) {
    std::vector<Box> wider;
    for (const Box& box : boxes)
      for (const Stretch& stretch : stretches[d]) {
        if (stretch.size <= 0) continue;
        Box& next = wider.emplace_back(box);
        next.size.push_back(stretch.size);
        next.from.push_back(stretch.step * source.stride(d));
        next.to.push_back(target.stride(d));
        next.from_offset += stretch.from * source.stride(d);
        next.to_offset += stretch.to * target.stride(d);
      }
    boxes = std::move(wider);
  }
  return boxes;
}

void copy_boxes(Tensors sources, const at::Tensor& target, std::vector<Box> boxes) {
  if (boxes.empty()) return;
  c10::SmallVector<at::Tensor, 8> operands(sources.begin(), sources.end());
  operands.push_back(target);
  Call(operands, std::move(boxes)).run(build_moves);
}

}  // namespace spyre::eager
