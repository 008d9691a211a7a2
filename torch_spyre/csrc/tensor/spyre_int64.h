// int64 values that do not fit into the 32 bits which the card has for them: wrapped, or refused if
// TORCH_SPYRE_INT64=error.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace spyre {

/// Whether they are refused.
bool int64_must_fit();

/// Refuses a value, or any of a host tensor's, that becomes an int64 element of the card.
void check_int64(std::int64_t value);
void check_int64(const at::Tensor& host);

/// Refuses results that were wrapped; `wide` has the same results as float32.
void check_int64_results(const at::Tensor& wide, const at::Tensor& results);

}  // namespace spyre
