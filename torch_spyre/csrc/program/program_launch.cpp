#include "program/program_launch.h"

#include "tensor/spyre_tensor_impl.h"

namespace spyre {

namespace {

using Handles = c10::SmallVector<card::Handle, 8>;

Handles handles_of(const OperandMemory& memory) {
  Handles handles;
  for (const auto& allocation : memory) handles.push_back(allocation->handle);
  return handles;
}

}  // namespace

const std::shared_ptr<const Allocation>& memory_of(const at::Tensor& operand) {
  const StorageContext& context = storage_context(operand);
  TORCH_CHECK(context.allocation, "a tensor of size ", operand.sizes(),
              " has no memory: its storage was resized under it.");
  return context.allocation;
}

void launch_program(const std::shared_ptr<const card::Program>& program, c10::DeviceIndex device,
                    std::shared_ptr<const OperandMemory> operands, card::Submit submit) {
  const Handles handles = handles_of(*operands);
  streams::current_card_stream(device).launch(
      program, std::span<const card::Handle>(handles.data(), handles.size()), submit,
      std::move(operands));
}

void launch_program(const std::shared_ptr<const card::Program>& program,
                    c10::ArrayRef<at::Tensor> operands, card::Submit submit) {
  const c10::DeviceIndex device = operands.back().device().index();
  if (is_checked(device)) [[unlikely]]
    return launch_together(device, {{program, operands.vec(), nullptr}}, submit);
  auto memory = std::make_shared<OperandMemory>();
  for (const at::Tensor& operand : operands) memory->push_back(memory_of(operand));
  launch_program(program, device, std::move(memory), submit);
}

void launch_together(c10::DeviceIndex device, c10::ArrayRef<BoundProgram> launches,
                     card::Submit submit) {
  struct Kept {
    OperandMemory memory;
    std::vector<card::LaunchDescription> descriptions;  // for streams that check
  };
  const bool described = is_checked(device);
  auto kept = std::make_shared<Kept>();
  for (const BoundProgram& each : launches) {
    for (const at::Tensor& operand : each.operands) kept->memory.push_back(memory_of(operand));
    if (described) [[unlikely]]
      kept->descriptions.push_back(
          checks::describe(each.operands, each.origin.get(), each.intermediates));
  }
  const Handles handles = handles_of(kept->memory);
  std::vector<card::Launch> together;
  const card::Handle* next = handles.data();
  for (std::size_t i = 0; i < launches.size(); ++i) {
    const std::size_t count = launches[i].operands.size();
    together.push_back({launches[i].program, {next, count}});
    if (described) together.back().description = &kept->descriptions[i];
    next += count;
  }
  streams::current_card_stream(device).launch(together, submit, std::move(kept));
}

}  // namespace spyre
