# torch::extension: what an extension module needs of the installed PyTorch.
#
# find_package(Torch) would add a search for every library that PyTorch was built with. The paths
# below are all that is needed, and finding them does not import torch.

execute_process(
  COMMAND "${Python_EXECUTABLE}" -c "
import importlib.metadata, importlib.util, os
spec = importlib.util.find_spec('torch')
assert spec is not None, 'torch is not installed'
print(os.path.dirname(spec.origin), importlib.metadata.version('torch'), sep=';', end='')"
  OUTPUT_VARIABLE torch_found
  ERROR_VARIABLE torch_error
  RESULT_VARIABLE torch_result)
file(STRINGS "${PROJECT_SOURCE_DIR}/pyproject.toml" torch_pin REGEX "^dependencies")
string(REGEX MATCH "torch==([0-9.]+)" torch_pin "${torch_pin}")
set(torch_wanted "${CMAKE_MATCH_1}")
if(NOT torch_result EQUAL 0)
  message(FATAL_ERROR "torch-spyre is built against an installed PyTorch, and ${Python_EXECUTABLE} "
    "finds none.\nInstall it first: pip install ${torch_pin}\n${torch_error}")
endif()
list(GET torch_found 0 torch_dir)
list(GET torch_found 1 torch_version)
if(NOT torch_version MATCHES "^${torch_wanted}([+]|$)")
  message(FATAL_ERROR "torch-spyre is built against PyTorch ${torch_wanted}, but "
    "${Python_EXECUTABLE} has ${torch_version}.\nInstall the other: pip install ${torch_pin}")
endif()
message(STATUS "PyTorch ${torch_version}: ${torch_dir}")

add_library(torch::extension INTERFACE IMPORTED)
foreach(name IN ITEMS c10 torch torch_cpu torch_python)
  add_library(torch::${name} SHARED IMPORTED)
  set_target_properties(torch::${name} PROPERTIES
    IMPORTED_LOCATION "${torch_dir}/lib/lib${name}.so")
  target_link_libraries(torch::extension INTERFACE torch::${name})
endforeach()

# pybind11 comes from here too: the version PyTorch itself uses, so that both share their types.
# PyTorch's own wheels have had the C++11 ABI of libstdc++ on every platform since 2.7.
target_include_directories(torch::extension SYSTEM INTERFACE
  "${torch_dir}/include" "${torch_dir}/include/torch/csrc/api/include")
target_compile_definitions(torch::extension INTERFACE
  _GLIBCXX_USE_CXX11_ABI=1 TORCH_API_INCLUDE_EXTENSION_H)
