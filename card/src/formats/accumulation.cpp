#include "formats/accumulation.h"

#include "host/environment.h"

namespace spyre::card {

Accumulation accumulation() {
  return choice(knobs::kAccumulation) == 1 ? Accumulation::chunked : Accumulation::fp32;
}

}  // namespace spyre::card
