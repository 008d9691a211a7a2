#include "program_launch.h"

#include "spyre_stream.h"
#include "spyre_tensor_impl.h"

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
  auto memory = std::make_shared<OperandMemory>();
  for (const at::Tensor& operand : operands) memory->push_back(memory_of(operand));
  launch_program(program, operands.back().device().index(), std::move(memory), submit);
}

void launch_together(c10::DeviceIndex device, c10::ArrayRef<BoundProgram> launches) {
  auto memory = std::make_shared<OperandMemory>();
  for (const auto& [program, operands] : launches)
    for (const at::Tensor& operand : operands) memory->push_back(memory_of(operand));
  const Handles handles = handles_of(*memory);
  std::vector<card::Launch> together;
  const card::Handle* next = handles.data();
  for (const auto& [program, operands] : launches) {
    together.push_back({program, {next, operands.size()}});
    next += operands.size();
  }
  streams::current_card_stream(device).launch(together, card::Submit::either, std::move(memory));
}

}  // namespace spyre
