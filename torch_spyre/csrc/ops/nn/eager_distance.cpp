// Distances between all pairs of rows: norms of differences, in blocks of rows.
#include <algorithm>

#include <ATen/ExpandUtils.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/sum.h>
#include <torch/library.h>

#include "ops/pointwise/eager_pointwise.h"
#include "program/eager_plan.h"

namespace spyre::eager {
namespace {

using at::Tensor;

/// Differences of so many bytes exist at once.
constexpr std::int64_t kDifferenceBytes = 64 << 20;

/// The compute mode asks for a matrix product where p is 2; differences are right for every p.
Tensor cdist(const Tensor& x1, const Tensor& x2, double p, std::optional<std::int64_t>) {
  on_device(x2, x1.device());
  TORCH_CHECK(x1.dim() >= 2 && x2.dim() >= 2, "cdist only supports at least 2D tensors, got ",
              x1.dim(), "D and ", x2.dim(), "D");
  TORCH_CHECK(x1.size(-1) == x2.size(-1),
              "X1 and X2 must have the same number of columns. X1: ", x1.size(-1),
              " X2: ", x2.size(-1));
  for (const Tensor& x : {x1, x2})
    TORCH_CHECK(x.is_floating_point(),
                "cdist only supports floating-point dtypes, got: ", x.scalar_type());
  TORCH_CHECK(p >= 0, "cdist only supports non-negative p values");
  const auto lead = [](const Tensor& x) { return x.sizes().slice(0, x.dim() - 2); };
  at::DimVector size = at::infer_size_dimvector(lead(x1), lead(x2));
  const auto pairs = static_cast<std::int64_t>(size.size());
  size.push_back(x1.size(-2));
  size.push_back(x2.size(-2));
  Tensor out = at::empty(size, x1.options());
  if (out.numel() == 0) return out;
  if (x1.size(-1) == 0) return out.zero_();

  const std::int64_t rows = x1.size(-2), row_bytes = out.numel() / rows * x1.size(-1) * 4;
  const std::int64_t step = std::max<std::int64_t>(kDifferenceBytes / row_bytes, 1);
  for (std::int64_t begin = 0; begin < rows; begin += step) {
    const std::int64_t end = std::min(begin + step, rows);
    Tensor part = out.slice(pairs, begin, end);
    at::DimVector full(part.sizes());
    full.push_back(x1.size(-1));
    const Tensor differences = at::empty(full, x1.options().dtype(at::kFloat));
    pointwise(OpFunc::sub, differences, {x1.slice(-2, begin, end).unsqueeze(-2), x2.unsqueeze(-3)},
              at::kFloat);
    if (p == 0)  // how many differ, or NaN
      part.copy_(at::sum(differences.abs_().ceil_().clamp_max_(1), {-1}));
    else
      part.copy_(at::linalg_vector_norm(differences, p, {-1}));
  }
  return out;
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) { m.impl("_cdist_forward", cdist); }

}  // namespace spyre::eager
