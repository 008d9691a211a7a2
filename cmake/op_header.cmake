# spyre_ops: the generated header spyre/ops.h, the C++ side of torch_spyre/ops/table.toml.

set(op_table "${PROJECT_SOURCE_DIR}/torch_spyre/ops/table.toml")
set(op_loader "${PROJECT_SOURCE_DIR}/torch_spyre/ops/table.py")
set(op_generator "${PROJECT_SOURCE_DIR}/tools/generate_op_header.py")
set(op_header "${PROJECT_BINARY_DIR}/generated/spyre/ops.h")

# A stamp, because the generator leaves an unchanged header alone; see machine_header.cmake.
set(op_stamp "${PROJECT_BINARY_DIR}/generated/ops.stamp")
add_custom_command(
  OUTPUT "${op_stamp}"
  BYPRODUCTS "${op_header}"
  COMMAND "${Python_EXECUTABLE}" "${op_generator}" "${op_table}" "${op_header}"
  COMMAND "${CMAKE_COMMAND}" -E touch "${op_stamp}"
  DEPENDS "${op_table}" "${op_loader}" "${op_generator}"
  COMMENT "Generating spyre/ops.h"
  VERBATIM)
add_custom_target(spyre_op_header DEPENDS "${op_stamp}")

add_library(spyre_ops INTERFACE)
add_dependencies(spyre_ops spyre_op_header)
target_include_directories(spyre_ops INTERFACE "${PROJECT_BINARY_DIR}/generated")
