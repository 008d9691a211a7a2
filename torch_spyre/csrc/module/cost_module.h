// Python's door to the cost model and the counters.
#pragma once

#include <torch/csrc/utils/pybind.h>

#include "spyre/card.h"

namespace spyre {

/// OpCost, Price and the functions of spyre/cost.h; torch_spyre.cost explains them.
void bind_cost(pybind11::module& module);

pybind11::dict counters_dict(const card::Counters& counters);

}  // namespace spyre
