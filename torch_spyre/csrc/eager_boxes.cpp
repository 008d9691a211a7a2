#include "eager_boxes.h"

#include "spyre_dtypes.h"
#include "spyre_tensor_impl.h"

namespace spyre::eager {
namespace {

void add_move(card::ProgramBuilder& builder, const at::Tensor& source, std::int64_t operand,
              const at::Tensor& target, std::int64_t target_operand, c10::ArrayRef<Box> boxes) {
  card::DataConversion move;
  move.src = layout_of(source).device_dtype;
  move.dst = layout_of(target).device_dtype;
  if (source.scalar_type() != target.scalar_type())
    move.narrow = dtype_info(target.scalar_type()).narrow;
  for (const Box& box : boxes) {
    const JointOperand sides[] = {{&source, box.from, box.from_offset},
                                  {&target, box.to, box.to_offset}};
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
  builder.move(operand, target_operand, move);
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

void copy_boxes(Tensors sources, const at::Tensor& target, const std::vector<Box>& boxes) {
  if (boxes.empty()) return;
  Key key;
  key.add(static_cast<std::int64_t>(card::Opcode::move)).add(target);
  for (const at::Tensor& source : sources) key.add(source);
  for (const Box& box : boxes)
    key.add(box.source)
        .add(box.size)
        .add(box.from)
        .add(box.to)
        .add(box.from_offset)
        .add(box.to_offset);
  c10::SmallVector<at::Tensor, 8> operands(sources.begin(), sources.end());
  operands.push_back(target);
  run(key, operands, [&](card::ProgramBuilder& builder) {
    const auto target_operand = static_cast<std::int64_t>(sources.size());
    // One step for the boxes of a source.
    for (std::size_t first = 0, end; first < boxes.size(); first = end) {
      end = first + 1;
      while (end < boxes.size() && boxes[end].source == boxes[first].source) ++end;
      add_move(builder, sources[boxes[first].source], boxes[first].source, target, target_operand,
               c10::ArrayRef<Box>(boxes).slice(first, end - first));
    }
  });
}

}  // namespace spyre::eager
