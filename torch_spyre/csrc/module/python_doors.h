// What a few functions of PyTorch, and of safetensors, do more where the card is meant.
#pragma once

#include <pybind11/pybind11.h>

namespace spyre {

void bind_doors(pybind11::module& module);

}  // namespace spyre
