#include "accumulation.h"

#include "environment.h"

namespace spyre::card {

Accumulation accumulation() {
  return choice("SPYRE_ACCUMULATION", {"fp32", "chunked"}, 0) == 1 ? Accumulation::chunked
                                                                   : Accumulation::fp32;
}

}  // namespace spyre::card
