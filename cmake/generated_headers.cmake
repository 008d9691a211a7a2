# The C++ side of tables that Python reads too: spyre/machine.h, spyre/ops.h, spyre/knobs.h.

# spyre_generated_header(NAME TABLE [MORE...]): the library spyre_NAME, whose users include
# spyre/NAME.h. tools/generate_NAME_header.py makes it from TABLE; MORE are files that it reads.
#
# The generator leaves an unchanged header alone, so that an edited comment recompiles nothing. The
# stamp is what tells ninja that it ran.
function(spyre_generated_header name table)
  set(source "${PROJECT_SOURCE_DIR}/${table}")
  set(generator "${PROJECT_SOURCE_DIR}/tools/generate_${name}_header.py")
  set(header "${PROJECT_BINARY_DIR}/generated/spyre/${name}.h")
  set(stamp "${PROJECT_BINARY_DIR}/generated/${name}.stamp")
  add_custom_command(
    OUTPUT "${stamp}"
    BYPRODUCTS "${header}"
    COMMAND "${Python_EXECUTABLE}" "${generator}" "${source}" "${header}"
    COMMAND "${CMAKE_COMMAND}" -E touch "${stamp}"
    DEPENDS "${source}" "${generator}" ${ARGN}
    COMMENT "Generating spyre/${name}.h"
    VERBATIM)
  add_custom_target(spyre_${name}_header DEPENDS "${stamp}")
  add_library(spyre_${name} INTERFACE)
  add_dependencies(spyre_${name} spyre_${name}_header)
  target_include_directories(spyre_${name} INTERFACE "${PROJECT_BINARY_DIR}/generated")
endfunction()

spyre_generated_header(machine torch_spyre/machine.toml)
spyre_generated_header(ops torch_spyre/ops/table.toml
  "${PROJECT_SOURCE_DIR}/torch_spyre/ops/table.py")
spyre_generated_header(knobs torch_spyre/knobs.toml)
