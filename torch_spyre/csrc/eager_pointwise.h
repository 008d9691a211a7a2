// Pointwise ops of the card on tensors of any view, layout and dtype.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Scalar.h>

#include "spyre/pointwise.h"

namespace spyre::eager {

/// out = op(inputs...), inputs broadcast to out. A CPU tensor without dimensions counts as a
/// number. `common` is the dtype in which PyTorch would compute: integers and bools are exact.
void pointwise(OpFunc op, const at::Tensor& out, std::initializer_list<at::Tensor> inputs,
               c10::ScalarType common, std::vector<double> constants = {});

}  // namespace spyre::eager
