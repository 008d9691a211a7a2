// What module.cpp puts together: each function binds a part of _C. torch_spyre/_C.pyi describes
// them.
#pragma once

#include <torch/csrc/utils/pybind.h>

#include "spyre/card.h"

namespace spyre {

/// _Program, _Kernel, _layout_guard and _empty_strided.
void bind_programs(pybind11::module& module);

/// OpCost, Price and the functions of spyre/cost.h; torch_spyre.cost explains them.
void bind_cost(pybind11::module& module);
pybind11::dict counters_dict(const card::Counters& counters);

/// What a few functions of PyTorch, and of safetensors, do more where the card is meant.
void bind_doors(pybind11::module& module);

/// What PyTorch asks of a backend.
void register_hooks();

}  // namespace spyre
