# spyre_machine: the generated header spyre/machine.h, the C++ side of torch_spyre/machine.toml.

set(machine_description "${PROJECT_SOURCE_DIR}/torch_spyre/machine.toml")
set(machine_generator "${PROJECT_SOURCE_DIR}/tools/generate_machine_header.py")
set(machine_header "${PROJECT_BINARY_DIR}/generated/spyre/machine.h")

# The generator leaves an unchanged header alone, so that an edited comment recompiles nothing. The
# stamp is what tells ninja that it ran.
set(machine_stamp "${PROJECT_BINARY_DIR}/generated/machine.stamp")
add_custom_command(
  OUTPUT "${machine_stamp}"
  BYPRODUCTS "${machine_header}"
  COMMAND "${Python_EXECUTABLE}" "${machine_generator}" "${machine_description}" "${machine_header}"
  COMMAND "${CMAKE_COMMAND}" -E touch "${machine_stamp}"
  DEPENDS "${machine_description}" "${machine_generator}"
  COMMENT "Generating spyre/machine.h"
  VERBATIM)
add_custom_target(spyre_machine_header DEPENDS "${machine_stamp}")

add_library(spyre_machine INTERFACE)
add_dependencies(spyre_machine spyre_machine_header)
target_include_directories(spyre_machine INTERFACE "${PROJECT_BINARY_DIR}/generated")
