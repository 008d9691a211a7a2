// Programs with tensors for operands: what eager ops and compiled kernels have in common.
#pragma once

#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include "program/launch_description.h"
#include "runtime/checks.h"
#include "runtime/spyre_stream.h"
#include "spyre/card.h"
#include "tensor/spyre_allocator.h"

namespace spyre {

/// The memory of operands, which lives until their launch has ended.
using OperandMemory = c10::SmallVector<std::shared_ptr<const Allocation>, 8>;

/// That of a tensor's storage.
const std::shared_ptr<const Allocation>& memory_of(const at::Tensor& operand);

/// Launches on the current stream of a device. For streams that do not check.
void launch_program(const std::shared_ptr<const card::Program>& program, c10::DeviceIndex device,
                    std::shared_ptr<const OperandMemory> operands,
                    card::Submit submit = card::Submit::either);
/// Launches on the current stream of the tensors' device. Operand i is the storage of operands[i],
/// which lives until the launch has ended.
void launch_program(const std::shared_ptr<const card::Program>& program,
                    c10::ArrayRef<at::Tensor> operands, card::Submit submit = card::Submit::either);

struct BoundProgram {
  std::shared_ptr<const card::Program> program;
  std::vector<at::Tensor> operands;
  std::shared_ptr<const checks::Origin> origin;  ///< null: an eager op
  std::size_t intermediates = 0;                 ///< so many first operands are memory for these
};

/// Whether launches go to a stream that checks. Those take tensors, to describe them.
inline bool is_checked(c10::DeviceIndex device) {
  return checks::anywhere.load(std::memory_order_relaxed) &&
         streams::current_card_stream(device).checks();
}

/// The same of several, with nothing in between: each finds in the scratchpads what the one before
/// it leaves there.
void launch_together(c10::DeviceIndex device, c10::ArrayRef<BoundProgram> launches,
                     card::Submit submit = card::Submit::either);

}  // namespace spyre
