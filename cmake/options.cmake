# spyre_options: the compiler options of everything that is ours.

add_library(spyre_options INTERFACE)
# A constructor may name its parameters after the members they set: GCC's -Wshadow would object.
target_compile_options(spyre_options INTERFACE
  -Wall -Wextra $<IF:$<CXX_COMPILER_ID:GNU>,-Wshadow=local,-Wshadow>
  # GCC sees phantoms in inlined small vectors; ASan and UBSan look for the real thing.
  $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>
  # `GCC ivdep` says that a loop may be vectorised; clang finds out at run time instead.
  $<$<CXX_COMPILER_ID:Clang>:-Wno-unknown-pragmas>)
if(SPYRE_WERROR)
  target_compile_options(spyre_options INTERFACE -Werror)
endif()

# Messages name files of the project, not of the machine it was built on.
target_compile_options(spyre_options INTERFACE "-fmacro-prefix-map=${PROJECT_SOURCE_DIR}/=")

# Same bits on every host: never fuse a multiply and an add that the source did not fuse.
target_compile_options(spyre_options INTERFACE -ffp-contract=off)
# No code here looks at floating-point exceptions or errno; assuming it might keeps loops scalar.
target_compile_options(spyre_options INTERFACE -fno-trapping-math -fno-math-errno)

if(SPYRE_SANITIZE)
  target_compile_options(spyre_options INTERFACE
    -fsanitize=${SPYRE_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer
    -O1 -g1 -UNDEBUG -D_GLIBCXX_ASSERTIONS)
  target_link_options(spyre_options INTERFACE -fsanitize=${SPYRE_SANITIZE})
endif()
