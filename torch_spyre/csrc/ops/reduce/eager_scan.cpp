// Scans: running sums, products and extremes along a dimension, with the indices of extremes.
#include <ATen/MemoryOverlap.h>
#include <ATen/ops/cumprod_meta.h>
#include <ATen/ops/cumsum_meta.h>
#include <torch/library.h>

#include "program/eager_lines.h"
#include "tensor/eager_structured.h"
#include "tensor/eager_variants.h"
#include "tensor/spyre_int64.h"

namespace spyre::eager {
namespace {

using at::Tensor;

void build_scan(card::ProgramBuilder& builder, Operands operands, const OpFunc& op,
                const card::Compute& compute, const DimSet& along) {
  const Operand &self = operands[0], &out = operands[1];
  const LinePlan plan(self.sizes(), along);
  card::Scan step;
  step.op = op;
  step.compute = compute;
  step.input = line_tensor(0, self, plan);
  step.output = line_tensor(1, out, plan);
  step.narrow = out.narrow();
  if (operands.size() > 2) step.indices = line_tensor(2, operands[2], plan);
  step.lines = plan.lines;
  step.line_length = plan.length;
  builder.scan(step);
}

/// `indices` may be undefined; all outputs have the size of `self`.
void scan(OpFunc op, card::Compute compute, const Tensor& self, std::int64_t dim, const Tensor& out,
          const Tensor& indices = {}) {
  if (self.numel() == 0) return;
  c10::SmallVector<Tensor, 3> operands = {self, out};
  if (indices.defined()) operands.push_back(indices);
  Call(operands, op, compute, single_dim(dim, self.dim())).run(build_scan);
}

template <class Meta, OpFunc op>
Tensor& cumulate_out(const Tensor& self, std::int64_t dim, std::optional<at::ScalarType> dtype,
                     Tensor& out) {
  shape_outputs<Meta>(out, self, dim, dtype);
  if (self.dim() == 0) return out.copy_(self);
  at::assert_no_partial_overlap(out, self);
  TORCH_CHECK_NOT_IMPLEMENTED(out.scalar_type() != at::kBool || self.numel() == 0, op_info(op).name,
                              " is not implemented for results of dtype bool");
  const Tensor wide = out.scalar_type() == at::kLong && int64_must_fit()
                          ? at::empty(out.sizes(), out.options().dtype(at::kFloat))
                          : Tensor();
  if (wide.defined()) scan(op, card::Compute::int64, self, dim, wide);
  scan(op, compute_in(out.scalar_type()), self, dim, out);
  if (wide.defined()) check_int64_results(wide, out);
  return out;
}

/// PyTorch has checked the dimension and given the outputs their size.
template <OpFunc op>
void extremes_helper(const Tensor& self, Tensor& values, Tensor& indices, std::int64_t dim) {
  scan(op, compute_in(self.scalar_type()), self, dim, values, indices);
}

Tensor& logcumsumexp(const Tensor& self, std::int64_t dim, Tensor& out) {
  c10::maybe_wrap_dim(dim, self.dim());
  check_floating("logcumsumexp", self);
  size_output("logcumsumexp", out, self.sizes(), self.options());
  at::assert_no_partial_overlap(out, self);
  scan(OpFunc::logcumsumexp, card::Compute::fp32, self, dim, out);
  return out;
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("cumsum.out", cumulate_out<at::meta::structured_cumsum, OpFunc::cumsum>);
  m.impl("cumprod.out", cumulate_out<at::meta::structured_cumprod, OpFunc::cumprod>);
  m.impl("_cummax_helper", extremes_helper<OpFunc::cummax>);
  m.impl("_cummin_helper", extremes_helper<OpFunc::cummin>);
  implement<logcumsumexp>(m, "_logcumsumexp", "_logcumsumexp.out");
}

}  // namespace spyre::eager
