#include "program_launch.h"

#include <c10/util/SmallVector.h>

#include "spyre_stream.h"
#include "spyre_tensor_impl.h"

namespace spyre {

void launch_program(const std::shared_ptr<const card::Program>& program,
                    c10::ArrayRef<at::Tensor> operands, card::Submit submit) {
  using Allocations = c10::SmallVector<std::shared_ptr<const Allocation>, 4>;
  auto memory = std::make_shared<Allocations>();
  c10::SmallVector<card::Handle, 4> handles;
  for (const at::Tensor& operand : operands) {
    const StorageContext& context = storage_context(operand);
    TORCH_CHECK(context.allocation, "a tensor of size ", operand.sizes(),
                " has no memory: its storage was resized under it.");
    memory->push_back(context.allocation);
    handles.push_back(context.allocation->handle);
  }
  streams::current_card_stream(operands.back().device().index())
      .launch(program, std::span<const card::Handle>(handles.data(), handles.size()), submit,
              std::move(memory));
}

}  // namespace spyre
