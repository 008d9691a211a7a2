#pragma once

#include <ATen/core/Tensor.h>

namespace spyre {

/// Memory that nobody wrote reads the same every time, if torch.use_deterministic_algorithms and
/// torch.utils.deterministic.fill_uninitialized_memory ask for it: NaN, or the largest integer.
bool fills_uninitialised();
void fill_uninitialised(const at::Tensor& target);

}  // namespace spyre
