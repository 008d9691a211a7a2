// The steps a program can have, one decoder an opcode. A new opcode is a step_*.cpp, a line here
// and a row of the table in steps.cpp.
#pragma once

#include <memory>

#include "nests/step_payload.h"
#include "spyre/ops.h"
#include "steps/step.h"

namespace spyre::card {

/// Decode the step at `index` of a program. Throws Error(invalid_argument) that names the step and
/// the field.
std::unique_ptr<const Step> decode_step(std::size_t index, std::uint32_t opcode,
                                        std::span<const std::byte> payload);

std::unique_ptr<const Step> decode_move(PayloadReader& reader);
std::unique_ptr<const Step> decode_fill(PayloadReader& reader);
std::unique_ptr<const Step> decode_reduce(PayloadReader& reader);
std::unique_ptr<const Step> decode_rows(PayloadReader& reader);
std::unique_ptr<const Step> decode_scan(PayloadReader& reader);
std::unique_ptr<const Step> decode_sort(PayloadReader& reader);
/// The rest of a sort step whose op is this search.
std::unique_ptr<const Step> decode_search(PayloadReader& reader, const OpInfo& op);
std::unique_ptr<const Step> decode_pointwise(PayloadReader& reader);
std::unique_ptr<const Step> decode_matmul(PayloadReader& reader);
std::unique_ptr<const Step> decode_index(PayloadReader& reader);
std::unique_ptr<const Step> decode_cores(PayloadReader& reader);
std::unique_ptr<const Step> decode_chain(PayloadReader& reader);

}  // namespace spyre::card
