// Order along a dimension: sort, topk, k-th values, medians, modes; and membership.
#include <limits>
#include <tuple>

#include <ATen/MemoryOverlap.h>
#include <ATen/ops/any.h>
#include <ATen/ops/eq.h>
#include <ATen/ops/full.h>
#include <ATen/ops/isin_meta.h>
#include <ATen/ops/logical_or.h>
#include <ATen/ops/sort_meta.h>
#include <ATen/ops/topk_meta.h>
#include <torch/library.h>

#include "ops/memory/spyre_copy.h"
#include "program/eager_lines.h"
#include "tensor/eager_structured.h"
#include "tensor/eager_variants.h"

namespace spyre::eager {
namespace {

using at::Tensor;
using TwoTensors = std::tuple<Tensor&, Tensor&>;

void build_order(card::ProgramBuilder& builder, Operands operands, const OpFunc& op,
                 const std::vector<double>& constants, const DimSet& along) {
  const Operand &self = operands[0], &values = operands[1];
  const LinePlan plan(self.sizes(), along), results(values.sizes(), along);
  card::Sort step;
  step.op = op;
  step.constants = constants;
  step.compute = compute_in(self.scalar_type());
  step.input = line_tensor(0, self, plan);
  step.values = line_tensor(1, values, results);
  step.narrow = values.narrow();
  if (operands.size() > 2) step.indices = line_tensor(2, operands[2], results);
  step.lines = plan.lines;
  step.line_length = plan.length;
  builder.sort(step);
}

/// Outputs have the size of `self`, but for the dimensions in `along`: there they have the results
/// of a line. `indices` may be undefined.
void order(OpFunc op, std::vector<double> constants, const Tensor& self, DimSet along,
           const Tensor& values, const Tensor& indices) {
  if (values.numel() == 0) return;
  c10::SmallVector<Tensor, 3> operands = {self, values};
  if (indices.defined()) operands.push_back(indices);
  Call(operands, op, std::move(constants), along).run(build_order);
}

void check_outputs(const Tensor& self, const Tensor& values, const Tensor& indices) {
  for (const Tensor& out : {values, indices}) {
    at::assert_no_internal_overlap(out);
    at::assert_no_partial_overlap(out, self);
  }
  at::assert_no_overlap(values, indices);
}

TwoTensors sort_out(const Tensor& self, std::optional<bool> stable, std::int64_t dim,
                    bool descending, Tensor& values, Tensor& indices) {
  shape_outputs<at::meta::structured_sort_stable>({values, indices}, self, stable, dim, descending);
  check_outputs(self, values, indices);
  order(OpFunc::sort, {descending ? 1.0 : 0.0}, self, single_dim(dim, self.dim()), values, indices);
  return {values, indices};
}

/// Sorted also where PyTorch does not ask for it.
TwoTensors topk_out(const Tensor& self, std::int64_t k, std::int64_t dim, bool largest, bool sorted,
                    Tensor& values, Tensor& indices) {
  shape_outputs<at::meta::structured_topk>({values, indices}, self, k, dim, largest, sorted);
  check_outputs(self, values, indices);
  // PyTorch gives a tensor without dimensions one result, whatever k is.
  const double wanted = self.dim() == 0 ? 1.0 : static_cast<double>(k);
  order(OpFunc::topk, {wanted, largest ? 1.0 : 0.0}, self, single_dim(dim, self.dim()), values,
        indices);
  return {values, indices};
}

/// An op that finds one element of each line.
TwoTensors one_of_each_line(OpFunc op, std::vector<double> constants, const Tensor& self,
                            std::int64_t dim, bool keepdim, Tensor& values, Tensor& indices) {
  const char* const name = op_info(op).name;
  dim = c10::maybe_wrap_dim(dim, self.dim());
  TORCH_CHECK_INDEX(self.numel() > 0 || self.dim() == 0 || self.size(dim) != 0, name,
                    "(): Expected reduction dim ", dim, " to have non-zero size.");
  at::DimVector size(self.sizes());
  if (self.dim() > 0) {
    size[dim] = 1;
    if (!keepdim) size.erase(size.begin() + dim);
  }
  if (values.defined()) check_outputs(self, values, indices);
  size_output(name, values, size, self.options());
  size_output(name, indices, size, self.options().dtype(at::kLong));
  const bool removed = self.dim() > 0 && !keepdim;
  order(op, std::move(constants), self, single_dim(dim, self.dim()),
        removed ? values.unsqueeze(dim) : values, removed ? indices.unsqueeze(dim) : indices);
  return {values, indices};
}

TwoTensors kthvalue_out(const Tensor& self, std::int64_t k, std::int64_t dim, bool keepdim,
                        Tensor& values, Tensor& indices) {
  dim = c10::maybe_wrap_dim(dim, self.dim());
  const std::int64_t length = self.dim() > 0 ? self.size(dim) : 1;
  TORCH_CHECK(length == 0 || (k >= 1 && k <= length),
              "kthvalue(): selected number k out of range for dimension ", dim, ": got ", k,
              ", expected 1 to ", length, ".");
  at::assert_no_overlap(values, self);
  return one_of_each_line(OpFunc::kthvalue, {static_cast<double>(k)}, self, dim, keepdim, values,
                          indices);
}

template <OpFunc op>
TwoTensors one_of_each_line(const Tensor& self, std::int64_t dim, bool keepdim, Tensor& values,
                            Tensor& indices) {
  return one_of_each_line(op, {}, self, dim, keepdim, values, indices);
}

/// Of all elements, whatever their dimensions.
template <OpFunc op>
Tensor one_of_all(const Tensor& self) {
  if (self.numel() == 0)
    return at::full({}, std::numeric_limits<float>::quiet_NaN(), at::device(at::kCPU))
        .to(self.options());
  const Tensor value = at::empty({}, self.options());
  order(op, {}, self, dim_range(0, self.dim()), value.view(at::DimVector(self.dim(), 1)), {});
  return value;
}

// ------------------------------------------------------------------------------------------ isin

/// Compares every element with every test element, as many at once as memory is reasonable for.
void is_in(const Tensor& elements, const Tensor& tests, bool invert, const Tensor& out) {
  constexpr std::int64_t kCompared = 1 << 22;
  const std::int64_t at_once =
      std::max<std::int64_t>(1, kCompared / std::max<std::int64_t>(1, elements.numel()));
  const Tensor flat = tests.reshape({-1}), column = elements.unsqueeze(-1);
  Tensor found = at::full(elements.sizes(), false, out.options());
  for (std::int64_t first = 0; first < flat.numel(); first += at_once) {
    const Tensor some = flat.slice(0, first, std::min(first + at_once, flat.numel()));
    found = found.logical_or(at::any(column.eq(some), -1));
  }
  copy_from(invert ? found.logical_not() : found, out, false);
}

Tensor& isin_out(const Tensor& elements, const Tensor& tests, bool unique, bool invert,
                 Tensor& out) {
  shape_outputs<at::meta::structured_isin_Tensor_Tensor>(out, elements, tests, unique, invert);
  is_in(on_device(elements, out.device()), on_device(tests, out.device()), invert, out);
  return out;
}

Tensor& isin_scalar_out(const Tensor& elements, const at::Scalar& test, bool unique, bool invert,
                        Tensor& out) {
  shape_outputs<at::meta::structured_isin_Tensor_Scalar>(out, elements, test, unique, invert);
  copy_from(invert ? elements.ne(test) : elements.eq(test), out, false);
  return out;
}

Tensor& isin_scalar_tensor_out(const at::Scalar& element, const Tensor& tests, bool unique,
                               bool invert, Tensor& out) {
  shape_outputs<at::meta::structured_isin_Scalar_Tensor>(out, element, tests, unique, invert);
  at::native::resize_output(out, {});  // the shape function leaves that to the kernel
  const Tensor found = at::any(tests.eq(element));
  copy_from(invert ? found.logical_not() : found, out, false);
  return out;
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("sort.values_stable", sort_out);
  m.impl("topk.values", topk_out);
  m.impl("kthvalue.values", kthvalue_out);
  m.impl("median", one_of_all<OpFunc::median>);
  m.impl("median.dim_values", one_of_each_line<OpFunc::median>);
  m.impl("nanmedian", one_of_all<OpFunc::nanmedian>);
  m.impl("nanmedian.dim_values", one_of_each_line<OpFunc::nanmedian>);
  implement<one_of_each_line<OpFunc::mode>>(m, "mode", "mode.values");
  m.impl("isin.Tensor_Tensor_out", isin_out);
  m.impl("isin.Tensor_Scalar_out", isin_scalar_out);
  m.impl("isin.Scalar_Tensor_out", isin_scalar_tensor_out);
}

}  // namespace spyre::eager
