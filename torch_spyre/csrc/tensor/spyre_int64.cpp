#include "tensor/spyre_int64.h"

#include <ATen/ops/aminmax.h>
#include <ATen/ops/sub.h>

#include "runtime/spyre_environment.h"

namespace spyre {
namespace {

constexpr const char* kWhatToDo =
    " not fit into the 32 bits that the card has for it, and TORCH_SPYRE_INT64=error refuses to "
    "wrap it. Keep such values on the CPU, or set TORCH_SPYRE_INT64=wrap.";

}  // namespace

bool int64_must_fit() {
  static const bool error = environment_choice(knobs::kInt64) == 1;
  return error;
}

void check_int64(std::int64_t value) {
  TORCH_CHECK_VALUE(!int64_must_fit() || value == static_cast<std::int32_t>(value), "int64 value ",
                    value, " does", kWhatToDo);
}

void check_int64(const at::Tensor& host) {
  if (!int64_must_fit() || host.numel() == 0) return;
  // float64 is exact where it matters, and NaN becomes an integer that is refused.
  const auto [least, most] = at::aminmax(host.to(c10::kDouble));
  for (const at::Tensor& end : {least, most}) check_int64(end.to(c10::kLong).item<std::int64_t>());
}

void check_int64_results(const at::Tensor& wide, const at::Tensor& results) {
  if (results.numel() == 0) return;
  // Wrapping changes a number by 2^32 or more, rounding to float32 by much less.
  const at::Tensor changed = at::sub(wide, results.to(at::kFloat)).abs().max();
  TORCH_CHECK_VALUE(!(changed.item<double>() > 0x1p31), "an int64 result does", kWhatToDo);
}

}  // namespace spyre
