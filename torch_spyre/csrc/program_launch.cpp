#include "program_launch.h"

#include <c10/util/SmallVector.h>

#include "spyre_stream.h"
#include "spyre_tensor_impl.h"

namespace spyre {

namespace {

using Allocations = c10::SmallVector<std::shared_ptr<const Allocation>, 4>;
using Handles = c10::SmallVector<card::Handle, 4>;

void add_memory(c10::ArrayRef<at::Tensor> operands, Allocations& memory, Handles& handles) {
  for (const at::Tensor& operand : operands) {
    const StorageContext& context = storage_context(operand);
    TORCH_CHECK(context.allocation, "a tensor of size ", operand.sizes(),
                " has no memory: its storage was resized under it.");
    memory.push_back(context.allocation);
    handles.push_back(context.allocation->handle);
  }
}

}  // namespace

void launch_program(const std::shared_ptr<const card::Program>& program,
                    c10::ArrayRef<at::Tensor> operands, card::Submit submit) {
  auto memory = std::make_shared<Allocations>();
  Handles handles;
  add_memory(operands, *memory, handles);
  streams::current_card_stream(operands.back().device().index())
      .launch(program, std::span<const card::Handle>(handles.data(), handles.size()), submit,
              std::move(memory));
}

void launch_together(c10::DeviceIndex device, c10::ArrayRef<BoundProgram> launches) {
  auto memory = std::make_shared<Allocations>();
  Handles handles;
  for (const auto& [program, operands] : launches) add_memory(operands, *memory, handles);
  std::vector<card::Launch> together;
  const card::Handle* next = handles.data();
  for (const auto& [program, operands] : launches) {
    together.push_back({program, {next, operands.size()}});
    next += operands.size();
  }
  streams::current_card_stream(device).launch(together, card::Submit::either, std::move(memory));
}

}  // namespace spyre
