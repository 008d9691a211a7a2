// Copies and fills: between host and card, on a card, between cards. Any view on either side, any
// pair of dtypes; the card converts on the way.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Scalar.h>

#include "spyre/card.h"

namespace spyre {

/// `source` and `target` have the same sizes; exactly one is a CPU tensor, the other on the card.
void copy_to_card(const at::Tensor& source, const at::Tensor& target, bool non_blocking);
void copy_to_host(const at::Tensor& source, const at::Tensor& target, bool non_blocking);

/// The descriptors those copies submit.
card::DataConversion conversion_to_card(const at::Tensor& source, const at::Tensor& target);
card::DataConversion conversion_to_host(const at::Tensor& source, const at::Tensor& target);

/// Both on cards, same or different.
void copy_on_card(const at::Tensor& source, const at::Tensor& target);
void copy_between_cards(const at::Tensor& source, const at::Tensor& target);

/// `at::_copy_from`: broadcasts `source` and picks the way.
at::Tensor copy_from(const at::Tensor& source, const at::Tensor& target, bool non_blocking);

/// A view that has elements once which the first `dims` dimensions repeat.
at::Tensor unexpanded(const at::Tensor& tensor, std::int64_t dims);
inline at::Tensor unexpanded(const at::Tensor& tensor) { return unexpanded(tensor, tensor.dim()); }

void fill(const at::Tensor& expanded, const c10::Scalar& value);

/// Memory that nobody wrote reads the same every time, if torch.use_deterministic_algorithms and
/// torch.utils.deterministic.fill_uninitialized_memory ask for it: NaN, or the largest integer.
bool fills_uninitialised();
void fill_uninitialised(const at::Tensor& target);

/// The first element, as a CPU tensor without dimensions.
at::Tensor element_to_host(const at::Tensor& tensor);

/// What a tensor of this dtype on the card holds that was filled with a number.
double number_in(c10::ScalarType dtype, double number);

/// Device bits of a value in a format, as programs hold them.
std::uint32_t encode_constant(double value, DataFormat format);

}  // namespace spyre
