// How sums of DLFloat16 numbers accumulate.
#pragma once

namespace spyre::card {

enum class Accumulation {
  fp32,     ///< in fp32, rounded once at the output
  chunked,  ///< 64 at a time in fp32, rounded to DLFloat16; these are summed in DLFloat16, in order
};

/// SPYRE_ACCUMULATION, default `fp32`. Read anew on every call: steps ask when they are loaded.
Accumulation accumulation();

}  // namespace spyre::card
