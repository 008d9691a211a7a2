// Where values belong in sorted sequences: searchsorted and bucketize.
#include <array>
#include <climits>

#include <ATen/native/BucketizationUtils.h>
#include <ATen/ops/gather.h>
#include <ATen/ops/result_type.h>
#include <ATen/ops/scalar_tensor.h>
#include <torch/library.h>

#include "program/eager_lines.h"
#include "tensor/eager_structured.h"
#include "tensor/eager_variants.h"

namespace spyre::eager {
namespace {

using at::Tensor;
using Side = std::optional<std::string_view>;

/// The last dimension holds the sequences. One sequence without further dimensions serves all.
void build_search(card::ProgramBuilder& builder, Operands operands, const card::Compute& compute,
                  const bool& right) {
  const Operand &sequences = operands[0], &queries = operands[1], &out = operands[2];
  const LinePlan plan(sequences.sizes(), single_dim(-1, sequences.dim()));
  const LinePlan places(queries.sizes(), sequences.dim() == 1 ? dim_range(0, queries.dim())
                                                              : single_dim(-1, queries.dim()));
  card::Search step;
  step.op = OpFunc::searchsorted;
  step.right = right;
  step.compute = compute;
  step.sequence = line_tensor(0, sequences, plan);
  step.queries = line_tensor(1, queries, places);
  step.output = line_tensor(2, out, places);
  step.lines = plan.lines;
  step.line_length = plan.length;
  step.query_length = places.length;
  builder.search(step);
}

void search(const Tensor& sequences, const Tensor& queries, bool right, const Tensor& out) {
  const card::Compute compute = compute_in(at::result_type(sequences, queries));
  const std::array operands = {sequences, queries, out};
  Call(operands, compute, right).run(build_search);
}

Tensor& places(const Tensor& sequences, const Tensor& self, bool out_int32, bool right, Side side,
               const std::optional<Tensor>& sorter, Tensor& out) {
  const Tensor order = sorter.value_or(Tensor());
  const Tensor queries = on_device(self, sequences.device());
  const auto type = output_dtype(out, out_int32 ? at::kInt : at::kLong);
  if (!out.defined()) out = at::empty({0}, sequences.options().dtype(type));
  at::native::searchsorted_pre_check(sequences, queries, out, out_int32, right, side, order);
  size_output("searchsorted", out, queries.sizes(), queries.options().dtype(type));
  if (queries.numel() == 0) return out;
  const bool from_right = right || (side && *side == "right");
  if (sequences.numel() == 0) return out.fill_(0);
  search(order.defined() ? sequences.gather(-1, order) : sequences, queries, from_right, out);
  return out;
}

Tensor& places_of_scalar(const Tensor& sequences, const at::Scalar& self, bool out_int32,
                         bool right, Side side, const std::optional<Tensor>& sorter, Tensor& out) {
  // In the dtype of the comparison: the card has no float64.
  const auto options = sequences.options().dtype(at::result_type(sequences, self));
  return places(sequences, at::scalar_tensor(self, options), out_int32, right, side, sorter, out);
}

void check_boundaries(const Tensor& boundaries) {
  TORCH_CHECK(boundaries.dim() == 1, "boundaries tensor must be 1 dimension, but got dim(",
              boundaries.dim(), ")");
}

Tensor& bucketize(const Tensor& self, const Tensor& boundaries, bool out_int32, bool right,
                  Tensor& out) {
  check_boundaries(boundaries);
  return places(boundaries, self, out_int32, right, std::nullopt, std::nullopt, out);
}

Tensor bucketize_scalar(const at::Scalar& self, const Tensor& boundaries, bool out_int32,
                        bool right) {
  check_boundaries(boundaries);
  return functional<places_of_scalar>(boundaries, self, out_int32, right, std::nullopt,
                                      std::nullopt);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  implement<places>(m, "searchsorted.Tensor", "searchsorted.Tensor_out");
  implement<places_of_scalar>(m, "searchsorted.Scalar", "searchsorted.Scalar_out");
  implement<bucketize>(m, "bucketize.Tensor", "bucketize.Tensor_out");
  m.impl("bucketize.Scalar", bucketize_scalar);
}

}  // namespace spyre::eager
