// Matrix products of views, for the kernels that are made of them.
#pragma once

#include <optional>

#include <ATen/core/Tensor.h>

namespace spyre::eager {

/// out = alpha * (a @ b) + beta * bias, one step on the card.
///
/// Sizes are [..., M, K], [..., K, N] and [..., M, N] with the same leading ones; the bias has the
/// size of `out`. Expanded dimensions cost nothing: a leading dimension that `b` repeats is but
/// more rows. Dtypes may differ: sums are of float32, or of integers if all operands hold integers.
/// What the card cannot read in place is copied on the card first.
void matmul(const at::Tensor& a, const at::Tensor& b, const at::Tensor& out,
            const std::optional<at::Tensor>& bias = std::nullopt, double alpha = 1,
            double beta = 1);

}  // namespace spyre::eager
