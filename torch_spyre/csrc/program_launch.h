// Programs with tensors for operands: what eager ops and compiled kernels have in common.
#pragma once

#include <memory>

#include <ATen/core/Tensor.h>

#include "spyre/card.h"

namespace spyre {

/// Launches on the current stream of the tensors' device. Operand i is the storage of operands[i],
/// which lives until the launch has ended.
void launch_program(const std::shared_ptr<const card::Program>& program,
                    c10::ArrayRef<at::Tensor> operands, card::Submit submit = card::Submit::either);

}  // namespace spyre
