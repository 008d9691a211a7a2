#include "steps/line_step.h"

namespace spyre::card {

void LineStep::Tensor::read_view(PayloadReader& reader, const char* name, const LineShape& shape) {
  if (!present()) return;
  view.emplace(reader, name, format, shape);
  range = view->range();
}

std::vector<Step::Need> LineStep::needs() const {
  std::vector<Need> needs;
  for (const auto* tensors : {&inputs_, &outputs_})
    for (const Tensor& tensor : *tensors)
      if (tensor.present()) needs.push_back({tensor.operand, tensor.range.end});
  return needs;
}

Traffic LineStep::traffic() const {
  Traffic traffic;
  for (const Tensor& tensor : inputs_) traffic.read += tensor.range.touched;
  for (const Tensor& tensor : outputs_) traffic.written += tensor.range.touched;
  return traffic;
}

OpCost LineStep::cost() const {
  return shared_cost(traffic(), inputs_[0].view->visits(), inputs_[0].format, sfp_passes(*op_));
}

LineStep::Memory LineStep::memory(std::span<const Extent> operands) const {
  Memory memory;
  for (const Tensor& output : outputs_) {
    memory.outputs.push_back(output.data(operands));
    if (!output.present()) continue;
    memory.in_order |= !output.view->distinct();
    for (const Tensor& other : outputs_)
      memory.in_order |=
          &other != &output && other.present() &&
          overlap(other.data(operands), other.range, output.data(operands), output.range);
  }
  for (const Tensor& input : inputs_) {
    const std::byte* data = input.data(operands);
    const auto disturbed_by = [&](const Tensor& output) {
      return output.present() && disturbs(data, *input.view, output.data(operands), *output.view);
    };
    if (input.present() && !input.serves_all &&
        std::any_of(outputs_.begin(), outputs_.end(), disturbed_by))
      data = memory.before.keep(data, input.range);
    memory.inputs.push_back(data);
  }
  return memory;
}

}  // namespace spyre::card
