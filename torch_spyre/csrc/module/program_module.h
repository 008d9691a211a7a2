// Python's door to programs, and to what compiled graphs do at every call.
#pragma once

#include <torch/csrc/utils/pybind.h>

namespace spyre {

/// _Program, _Kernel, _layout_guard and _empty_strided; torch_spyre/_C.pyi describes them.
void bind_programs(pybind11::module& module);

}  // namespace spyre
