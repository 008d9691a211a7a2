#include "ops/memory/spyre_uninitialised.h"

#include <limits>

#include <ATen/Context.h>

#include "ops/memory/spyre_copy.h"

namespace spyre {

bool fills_uninitialised() {
  const at::Context& context = at::globalContext();
  return context.deterministicAlgorithms() && context.deterministicFillUninitializedMemory();
}

void fill_uninitialised(const at::Tensor& target) {
  if (!fills_uninitialised()) return;
  switch (target.scalar_type()) {
    case c10::ScalarType::Bool:
      return spyre::fill(target, true);
    case c10::ScalarType::Byte:
      return spyre::fill(target, std::numeric_limits<std::uint8_t>::max());
    case c10::ScalarType::Char:
      return spyre::fill(target, std::numeric_limits<std::int8_t>::max());
    case c10::ScalarType::Short:
      return spyre::fill(target, std::numeric_limits<std::int16_t>::max());
    case c10::ScalarType::Int:
    case c10::ScalarType::Long:  // held in 32 bits
      return spyre::fill(target, std::numeric_limits<std::int32_t>::max());
    default:
      return spyre::fill(target, std::numeric_limits<double>::quiet_NaN());
  }
}

}  // namespace spyre
