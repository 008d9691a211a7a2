// The steps a program can have, one decoder an opcode. A new opcode is a step_*.cpp, a line here
// and a row of the table in program_steps.cpp.
#pragma once

#include <memory>

#include "program.h"
#include "step_payload.h"

namespace spyre::card {

std::unique_ptr<const Step> decode_move(PayloadReader& reader);
std::unique_ptr<const Step> decode_fill(PayloadReader& reader);

}  // namespace spyre::card
