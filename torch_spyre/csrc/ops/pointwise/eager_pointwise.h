// Pointwise ops of the card on tensors of any view, layout and dtype.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "spyre/pointwise.h"

namespace spyre::eager {

/// out = op(inputs...), inputs broadcast to out. A CPU tensor without dimensions counts as a
/// number. `common` is the dtype in which PyTorch would compute: integers and bools are exact.
void pointwise(OpFunc op, const at::Tensor& out, std::initializer_list<at::Tensor> inputs,
               c10::ScalarType common, std::vector<double> constants = {});

/// A tensor for what a pointwise op makes of the inputs, laid out like them as PyTorch would. An
/// `out` that is given is resized.
at::Tensor result_of(c10::ArrayRef<at::Tensor> inputs, c10::TensorOptions options,
                     const at::Tensor& out = {});

}  // namespace spyre::eager
