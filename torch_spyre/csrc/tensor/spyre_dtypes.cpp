#include "tensor/spyre_dtypes.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <limits>

#include <c10/util/Exception.h>

#include "runtime/spyre_environment.h"

namespace spyre {
namespace {

using c10::ScalarType;
using card::Narrow;

constexpr std::array kDtypes = {
    DtypeInfo{ScalarType::Half, DataFormat::IEEE_FP16, DataFormat::SEN169_FP16, Narrow::none},
    DtypeInfo{ScalarType::BFloat16, DataFormat::BFLOAT16, DataFormat::SEN169_FP16, Narrow::none},
    DtypeInfo{ScalarType::Float, DataFormat::IEEE_FP32, DataFormat::IEEE_FP32, Narrow::none},
    DtypeInfo{ScalarType::Bool, DataFormat::BOOL, DataFormat::SEN169_FP16, Narrow::boolean},
    DtypeInfo{ScalarType::Char, DataFormat::SENINT8, DataFormat::SENINT8, Narrow::none},
    DtypeInfo{ScalarType::Short, DataFormat::SENINT16, DataFormat::SENINT16, Narrow::none},
    DtypeInfo{ScalarType::Int, DataFormat::IEEE_INT32, DataFormat::IEEE_INT32, Narrow::none},
    DtypeInfo{ScalarType::Long, DataFormat::IEEE_INT64, DataFormat::IEEE_INT32, Narrow::none},
    DtypeInfo{ScalarType::Byte, DataFormat::HOST_UINT8, DataFormat::SENUINT32, Narrow::uint8},
    DtypeInfo{ScalarType::Float8_e4m3fn, DataFormat::SEN143_FP8, DataFormat::SEN143_FP8,
              Narrow::none},
    DtypeInfo{ScalarType::Float8_e5m2fnuz, DataFormat::SEN152_FP8, DataFormat::SEN152_FP8,
              Narrow::none},
    DtypeInfo{ScalarType::Float8_e5m2, DataFormat::FP8_E5M2, DataFormat::FP8_E5M2, Narrow::none},
    DtypeInfo{ScalarType::Float8_e4m3fnuz, DataFormat::FP8_E4M3FNUZ, DataFormat::FP8_E4M3FNUZ,
              Narrow::none},
    // Host tensors of these dtypes can be copied to and from spyre tensors of other dtypes.
    DtypeInfo{ScalarType::Double, DataFormat::IEEE_FP64, DataFormat::INVALID, Narrow::none},
    DtypeInfo{ScalarType::UInt16, DataFormat::HOST_UINT16, DataFormat::INVALID, Narrow::none},
    DtypeInfo{ScalarType::UInt32, DataFormat::SENUINT32, DataFormat::INVALID, Narrow::none},
    DtypeInfo{ScalarType::UInt64, DataFormat::HOST_UINT64, DataFormat::INVALID, Narrow::none},
};
constexpr DtypeInfo kUnknown{ScalarType::Undefined, DataFormat::INVALID, DataFormat::INVALID,
                             Narrow::none};

const char* alternative(ScalarType dtype) {
  switch (dtype) {
    case ScalarType::Double:
      return "convert to float32 (or float16) first, for example x.float().to(\"spyre\")";
    case ScalarType::UInt16:
    case ScalarType::UInt32:
    case ScalarType::UInt64:
      return "use int32 or int64";
    default:
      return c10::isComplexType(dtype) ? "transfer the real and imaginary parts as two tensors"
                                       : "convert to a supported dtype first";
  }
}

std::atomic<bool>& warning_enabled() {
  static std::atomic<bool> enabled{environment_flag(knobs::kDowncastWarning)};
  return enabled;
}

}  // namespace

const DtypeInfo& dtype_info(ScalarType dtype) {
  for (const DtypeInfo& info : kDtypes)
    if (info.dtype == dtype) return info;
  return kUnknown;
}

double number_for(c10::ScalarType dtype, double number) {
  constexpr double kLargest = 0x1.FEp32;  // of the bfloat16s that DLFloat16 holds
  if (dtype != ScalarType::BFloat16 || !std::isfinite(number)) return number;
  return std::clamp(number, -kLargest, kLargest);
}

std::string dtype_name(ScalarType dtype) {
  return dtype == ScalarType::Undefined ? "undefined"
                                        : std::string(c10::getDtypeNames(dtype).first);
}

Range range_of(ScalarType dtype) {
  const auto of = []<class Number>(Number) -> Range {
    return {std::numeric_limits<Number>::lowest(), std::numeric_limits<Number>::max()};
  };
  switch (dtype) {
    case ScalarType::Bool:
      return of(false);
    case ScalarType::Byte:
      return of(std::uint8_t());
    case ScalarType::Char:
      return of(std::int8_t());
    case ScalarType::Short:
      return of(std::int16_t());
    case ScalarType::Int:
    case ScalarType::Long:
      return of(std::int32_t());
    default:
      constexpr double infinity = std::numeric_limits<double>::infinity();
      return {-infinity, infinity};
  }
}

DataFormat host_format(ScalarType dtype) {
  const DataFormat format = dtype_info(dtype).host;
  TORCH_CHECK_TYPE(format != DataFormat::INVALID,
                   "Unsupported CPU tensor dtype for DMA transfer: torch.", dtype_name(dtype),
                   ". To move it to or from a spyre tensor, ", alternative(dtype), ".");
  return format;
}

DataFormat device_format(ScalarType dtype) {
  const DataFormat format = dtype_info(dtype).device;
  TORCH_CHECK_TYPE(format != DataFormat::INVALID, "Spyre backend does not support dtype torch.",
                   dtype_name(dtype),
                   ": the card has no format for it. Supported are float16, bfloat16, float32, "
                   "bool, int8, int16, int32, int64 (as 32 bits), uint8, float8_e4m3fn, "
                   "float8_e5m2fnuz, float8_e5m2 and float8_e4m3fnuz; ",
                   alternative(dtype), ".");
  return format;
}

void warn_downcast(ScalarType dtype) {
  if (dtype != ScalarType::Long || !warning_enabled().load(std::memory_order_relaxed)) return;
  static std::atomic<bool> warned{false};
  if (warned.exchange(true) && !c10::WarningUtils::get_warnAlways()) return;
  TORCH_WARN(
      "Backend Spyre does not support int64: its tensors hold 32-bit integers on the card, and "
      "values outside that range wrap around. Silence this with warnings.filterwarnings(...), "
      "torch.spyre.set_downcast_warning(False) or TORCH_SPYRE_DOWNCAST_WARN=0.");
}

bool get_downcast_warning() { return warning_enabled(); }
void set_downcast_warning(bool enabled) { warning_enabled() = enabled; }

}  // namespace spyre
