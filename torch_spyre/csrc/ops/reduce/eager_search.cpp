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

namespace spyre::eager {
namespace {

using at::Tensor;
using Side = std::optional<std::string_view>;

/// The last dimension holds the sequences. One sequence without further dimensions serves all.
void build_search(card::ProgramBuilder& builder, Operands operands, const card::Compute& compute,
                  const bool& right) {
  const Operand &sequences = operands[0], &queries = operands[1], &out = operands[2];
  DimSet all;
  for (std::int64_t d = 0; d < queries.dim(); ++d) all.set(d);
  const LinePlan plan(sequences.sizes(), single_dim(-1, sequences.dim()));
  const LinePlan places(queries.sizes(),
                        sequences.dim() == 1 ? all : single_dim(-1, queries.dim()));
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

Tensor& places_out(const Tensor& sequences, const Tensor& self, bool out_int32, bool right,
                   Side side, const std::optional<Tensor>& sorter, Tensor& out) {
  const Tensor order = sorter.value_or(Tensor());
  const Tensor queries = on_device(self, sequences.device());
  at::native::searchsorted_pre_check(sequences, queries, out, out_int32, right, side, order);
  check_output("searchsorted", out, queries.options().dtype(out.scalar_type()));
  at::native::resize_output(out, queries.sizes());
  if (queries.numel() == 0) return out;
  const bool from_right = right || (side && *side == "right");
  if (sequences.numel() == 0) return out.fill_(0);
  search(order.defined() ? sequences.gather(-1, order) : sequences, queries, from_right, out);
  return out;
}

Tensor places(const Tensor& sequences, const Tensor& self, bool out_int32, bool right, Side side,
              const std::optional<Tensor>& sorter) {
  Tensor out = at::empty({0}, sequences.options().dtype(out_int32 ? at::kInt : at::kLong));
  return places_out(sequences, self, out_int32, right, side, sorter, out);
}

/// In the dtype of the comparison: the card has no float64.
Tensor query_of(const Tensor& sequences, const at::Scalar& value) {
  return at::scalar_tensor(value, sequences.options().dtype(at::result_type(sequences, value)));
}

Tensor& places_of_scalar_out(const Tensor& sequences, const at::Scalar& self, bool out_int32,
                             bool right, Side side, const std::optional<Tensor>& sorter,
                             Tensor& out) {
  const Tensor query = query_of(sequences, self);
  return places_out(sequences, query, out_int32, right, side, sorter, out);
}

Tensor places_of_scalar(const Tensor& sequences, const at::Scalar& self, bool out_int32, bool right,
                        Side side, const std::optional<Tensor>& sorter) {
  const Tensor query = query_of(sequences, self);
  return places(sequences, query, out_int32, right, side, sorter);
}

void check_boundaries(const Tensor& boundaries) {
  TORCH_CHECK(boundaries.dim() == 1, "boundaries tensor must be 1 dimension, but got dim(",
              boundaries.dim(), ")");
}

Tensor& bucketize_out(const Tensor& self, const Tensor& boundaries, bool out_int32, bool right,
                      Tensor& out) {
  check_boundaries(boundaries);
  return places_out(boundaries, self, out_int32, right, std::nullopt, std::nullopt, out);
}

Tensor bucketed(const Tensor& self, const Tensor& boundaries, bool out_int32, bool right) {
  check_boundaries(boundaries);
  return places(boundaries, self, out_int32, right, std::nullopt, std::nullopt);
}

Tensor bucketize_scalar(const at::Scalar& self, const Tensor& boundaries, bool out_int32,
                        bool right) {
  check_boundaries(boundaries);
  return places_of_scalar(boundaries, self, out_int32, right, std::nullopt, std::nullopt);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("searchsorted.Tensor", places);
  m.impl("searchsorted.Tensor_out", places_out);
  m.impl("searchsorted.Scalar", places_of_scalar);
  m.impl("searchsorted.Scalar_out", places_of_scalar_out);
  m.impl("bucketize.Tensor", bucketed);
  m.impl("bucketize.Tensor_out", bucketize_out);
  m.impl("bucketize.Scalar", bucketize_scalar);
}

}  // namespace spyre::eager
