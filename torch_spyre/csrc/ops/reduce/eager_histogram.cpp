// Histograms: each element finds its bin among the edges, and is counted there.
#include <cmath>
#include <limits>

#include <ATen/core/Tensor.h>
#include <ATen/ops/aminmax.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include "program/eager_plan.h"
#include "tensor/eager_structured.h"
#include "tensor/eager_variants.h"

namespace spyre::eager {
namespace {

using at::Tensor;

/// First and last edge; equal limits ask for those of the data, which the host must then know.
std::pair<float, float> histc_range(const Tensor& self, const at::Scalar& min,
                                    const at::Scalar& max) {
  float low = min.to<float>(), high = max.to<float>();
  if (low == high && self.numel() > 0) {
    const auto [smallest, largest] = at::aminmax(self);
    low = smallest.item<float>();
    high = largest.item<float>();
  }
  if (low == high) {
    low -= 1;
    high += 1;
  }
  TORCH_CHECK(std::isfinite(low) && std::isfinite(high), "histc: range of [", low, ", ", high,
              "] is not finite");
  TORCH_CHECK(low < high, "histc: max must be larger than min");
  return {low, high};
}

Tensor& histc(const Tensor& self, std::int64_t bins, const at::Scalar& min, const at::Scalar& max,
              Tensor& out) {
  TORCH_CHECK(bins > 0, "histc: bins must be > 0, got ", bins);
  const auto [low, high] = histc_range(self, min, max);
  size_output("histc", out, {bins}, self.options());

  // An element of the last edge belongs to the last bin: the edge moves behind it. Then what is
  // below all edges finds place 0, and what is above, or no number, the place behind the bins.
  Tensor edges = at::linspace(low, high, bins + 1, at::kFloat);
  edges.data_ptr<float>()[bins] = std::nextafter(high, std::numeric_limits<float>::infinity());
  const Tensor places = at::searchsorted(edges.to(self.device()), self.reshape(-1),
                                         /*out_int32=*/false, /*right=*/true);
  Tensor counts = at::zeros({bins + 2}, self.options().dtype(at::kInt));
  counts.scatter_add_(0, places, at::ones(places.sizes(), counts.options()));
  out.copy_(counts.narrow(0, 1, bins));
  return out;
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) { implement<histc>(m, "histc", "histc.out"); }

}  // namespace spyre::eager
