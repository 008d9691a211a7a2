// Reductions: sums, extremes, products, truth, counts, variances, norms. One program each; results
// are accumulated in fp32 or in 64-bit integers and rounded once.
#include "ops/reduce/eager_reduce.h"

#include <cmath>
#include <limits>

#include <ATen/MemoryOverlap.h>
#include <ATen/core/ATen_fwd.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/all_meta.h>
#include <ATen/ops/amax_meta.h>
#include <ATen/ops/amin_meta.h>
#include <ATen/ops/aminmax_meta.h>
#include <ATen/ops/any_meta.h>
#include <ATen/ops/argmax_meta.h>
#include <ATen/ops/argmin_meta.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/linalg_vector_norm_meta.h>
#include <ATen/ops/max_meta.h>
#include <ATen/ops/mean_meta.h>
#include <ATen/ops/min_meta.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/prod_meta.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/sum_meta.h>
#include <torch/library.h>

#include "ops/memory/spyre_copy.h"
#include "ops/pointwise/eager_pointwise.h"
#include "tensor/eager_structured.h"
#include "tensor/eager_variants.h"
#include "tensor/spyre_dtypes.h"
#include "tensor/spyre_int64.h"

namespace spyre::eager {
namespace {

using at::Tensor;
using card::Compute;
using Dims = at::OptionalIntArrayRef;
using Dtype = std::optional<at::ScalarType>;

/// Of no dimensions or none given: all of them, as PyTorch has it.
DimSet dim_set(Dims dims, std::int64_t rank) {
  if (!dims || dims->empty()) return dim_range(0, rank);
  DimSet set;
  for (const std::int64_t dim : *dims) {
    const std::int64_t d = c10::maybe_wrap_dim(dim, rank);
    TORCH_CHECK(!set[d], "dim ", d, " appears multiple times in the list of dims");
    set.set(d);
  }
  return set;
}

DimSet dim_set(std::optional<std::int64_t> dim, std::int64_t rank) {
  return dim ? single_dim(*dim, rank) : dim_range(0, rank);
}

DimSet dim_set(std::int64_t dim, std::int64_t rank) { return single_dim(dim, rank); }

at::DimVector reduced_size(const Tensor& self, DimSet dims, bool keepdim) {
  at::DimVector size;
  for (std::int64_t d = 0; d < self.dim(); ++d) {
    if (!dims[d]) size.push_back(self.size(d));
    if (dims[d] && keepdim) size.push_back(1);
  }
  return size;
}

std::int64_t reduced_elements(const Tensor& self, DimSet dims) {
  std::int64_t count = 1;
  for (std::int64_t d = 0; d < self.dim(); ++d)
    if (dims[d]) count *= self.size(d);
  return count;
}

/// The value of an op for no elements.
double empty_value(OpFunc op) {
  switch (op) {
    case OpFunc::prod:
    case OpFunc::all:
      return 1;
    case OpFunc::mean:
    case OpFunc::var:
      return std::numeric_limits<double>::quiet_NaN();
    case OpFunc::logsumexp:
      return -std::numeric_limits<double>::infinity();
    default:
      return 0;
  }
}

/// Operands: the input, the result, the second result if there is one, and the root's argument if
/// that has a place of its own.
void build_reduce(card::ProgramBuilder& builder, Operands operands, const Reduction& reduction,
                  const DimSet& dims, const bool& has_second) {
  const bool separate = operands.size() > (has_second ? 3 : 2);
  const auto result = separate ? static_cast<std::int64_t>(operands.size()) - 1 : 1;
  const Operand &self = operands[0], &out = operands[result];
  const LinePlan plan(self.sizes(), dims);
  card::Reduce step;
  step.op = reduction.op;
  step.input = line_tensor(0, self, plan);
  step.output = {result, out.format()};
  step.narrow = out.narrow();
  step.compute = reduction.compute;
  if (reduction.constant) step.constants = {*reduction.constant};
  step.accumulators = plan.lines;
  step.extent = plan.length;
  const LinePlan results(out.sizes(), DimSet());
  c10::SmallVector<JointOperand, 3> sides = {JointOperand::counting(results.line),
                                             JointOperand::of(out, out.sizes())};
  if (has_second) {
    step.second = {2, operands[2].format()};
    sides.push_back(JointOperand::of(operands[2], out.sizes()));
  }
  for (const JointNest& nest : joint_loops(out.sizes(), sides)) {
    card::Reduce::Loops& loops = step.results.emplace_back();
    for (const JointNest::Dim& dim : nest.dims) {
      loops.size.push_back(dim.size);
      loops.accumulator.push_back(dim.stride[0]);
      loops.output.push_back(dim.stride[1]);
      if (has_second) loops.second.push_back(dim.stride[2]);
    }
    loops.accumulator_offset = nest.offset[0];
    loops.output_offset = nest.offset[1];
    if (has_second) loops.second_offset = nest.offset[2];
  }
  builder.reduce(step);
  if (reduction.root) add_pointwise(builder, operands, OpFunc::sqrt, {{result}}, 1);
}

}  // namespace

void reduce(const Reduction& reduction, const Tensor& self, DimSet dims, const Tensor& out,
            const Tensor& second) {
  if (out.numel() == 0) return;
  if (self.numel() == 0) {
    spyre::fill(out, empty_value(reduction.op));
    if (second.defined()) spyre::fill(second, empty_value(reduction.op));
    return;
  }
  c10::SmallVector<Tensor, 4> operands = {self, out};
  if (second.defined()) operands.push_back(second);
  // Roots are taken before the result is rounded to a narrow format.
  if (reduction.root && out.scalar_type() != at::kFloat)
    operands.push_back(at::empty(out.sizes(), out.options().dtype(at::kFloat)));
  Call(operands, reduction, dims, second.defined()).run(build_reduce);
}

namespace {

// Sums and means

/// Sums and products, which TORCH_SPYRE_INT64=error may refuse.
void accumulate(const Reduction& reduction, const Tensor& self, DimSet dims, const Tensor& out) {
  reduce(reduction, self, dims, out);
  if (out.scalar_type() != at::kLong || !int64_must_fit()) return;
  const Tensor wide = at::empty(out.sizes(), out.options().dtype(at::kFloat));
  reduce(reduction, self, dims, wide);
  check_int64_results(wide, out);
}

Tensor& sum(const Tensor& self, Dims dim, bool keepdim, Dtype dtype, Tensor& out) {
  shape_outputs<at::meta::structured_sum_dim_IntList>(out, self, dim, keepdim, dtype);
  // A sum of booleans is whether any is true.
  const bool truth = out.scalar_type() == at::kBool;
  accumulate({truth ? OpFunc::any : OpFunc::sum, compute_in((truth ? self : out).scalar_type())},
             self, dim_set(dim, self.dim()), out);
  return out;
}

Tensor& mean(const Tensor& self, Dims dim, bool keepdim, Dtype dtype, Tensor& out) {
  if (out.defined()) check_cast(self.scalar_type(), out);
  shape_outputs<at::meta::structured_mean_dim>(out, self, dim, keepdim, dtype);
  const DimSet dims = dim_set(dim, self.dim());
  const double factor = 1.0 / static_cast<double>(reduced_elements(self, dims));
  reduce({OpFunc::mean, Compute::fp32, factor}, self, dims, out);
  return out;
}

Tensor without_nan(const Tensor& self) {
  if (!self.is_floating_point()) return self;
  constexpr double infinity = std::numeric_limits<double>::infinity();
  Tensor numbers = at::empty(self.sizes(), self.options());
  pointwise(OpFunc::nan_to_num, numbers, {self}, self.scalar_type(), {0.0, infinity, -infinity});
  return numbers;
}

Tensor& nansum(const Tensor& self, Dims dim, bool keepdim, Dtype dtype, Tensor& out) {
  const at::ScalarType type = output_dtype(out, self.scalar_type());
  TORCH_CHECK_NOT_IMPLEMENTED(
      !out.defined() || !self.is_floating_point() || out.is_floating_point(),
      "nansum is not implemented for floats with out= of dtype ", dtype_name(type));
  return sum(without_nan(self), dim, keepdim, dtype, out);
}

void multiply(const Tensor& self, DimSet dims, const Tensor& out) {
  const bool truth = out.scalar_type() == at::kBool;
  accumulate({truth ? OpFunc::all : OpFunc::prod, compute_in((truth ? self : out).scalar_type())},
             self, dims, out);
}

Tensor& prod_dim(const Tensor& self, std::int64_t dim, bool keepdim, Dtype dtype, Tensor& out) {
  shape_outputs<at::meta::structured_prod_dim_int>(out, self, dim, keepdim, dtype);
  multiply(self, single_dim(dim, self.dim()), out);
  return out;
}

Tensor prod(const Tensor& self, Dtype dtype) {
  const at::ScalarType type =
      dtype.value_or(at::isIntegralType(self.scalar_type(), true) ? at::kLong : self.scalar_type());
  Tensor out = at::empty({}, self.options().dtype(type));
  multiply(self, dim_range(0, self.dim()), out);
  return out;
}

// Extremes, and where they are

/// `Dim`: a dimension, a list of them, or nothing for all.
template <class Meta, OpFunc op, class Dim>
Tensor& reduce_over(const Tensor& self, Dim dim, bool keepdim, Tensor& out) {
  shape_outputs<Meta>(out, self, dim, keepdim);
  reduce({op, compute_in(self.scalar_type())}, self, dim_set(dim, self.dim()), out);
  return out;
}

template <OpFunc op>
Tensor& extreme_all(const Tensor& self, Tensor& out) {
  constexpr const char* name = op == OpFunc::max ? "max" : "min";
  TORCH_CHECK(self.numel() > 0, name,
              "(): Expected reduction dim to be specified for input.numel() == 0. Specify the "
              "reduction dim with the 'dim' argument.");
  if (out.defined()) check_cast(self.scalar_type(), out);
  const at::ScalarType type = output_dtype(out, self.scalar_type());
  size_output(name, out, {}, self.options().dtype(type));
  reduce({op, compute_in(self.scalar_type())}, self, dim_range(0, self.dim()), out);
  return out;
}

template <class Meta, OpFunc op>
std::tuple<Tensor&, Tensor&> extreme_with_indices(const Tensor& self, std::int64_t dim,
                                                  bool keepdim, Tensor& values, Tensor& indices) {
  shape_outputs<Meta>({values, indices}, self, dim, keepdim);
  at::assert_no_overlap(values, self);
  at::assert_no_overlap(indices, self);
  reduce({op, compute_in(self.scalar_type())}, self, single_dim(dim, self.dim()), values, indices);
  return {values, indices};
}

std::tuple<Tensor&, Tensor&> aminmax_out(const Tensor& self, std::optional<std::int64_t> dim,
                                         bool keepdim, Tensor& min, Tensor& max) {
  shape_outputs<at::meta::structured_aminmax>({min, max}, self, dim, keepdim);
  for (const Tensor& out : {min, max}) at::assert_no_overlap(out, self);
  const DimSet dims = dim_set(dim, self.dim());
  reduce({OpFunc::min, compute_in(self.scalar_type())}, self, dims, min);
  reduce({OpFunc::max, compute_in(self.scalar_type())}, self, dims, max);
  return {min, max};
}

// Truth and counts

template <class Meta, OpFunc op>
Tensor& truth_all(const Tensor& self, Tensor& out) {
  shape_outputs<Meta>(out, self);
  reduce({op, compute_in(self.scalar_type())}, self, dim_range(0, self.dim()), out);
  return out;
}

/// An empty list of dimensions means none here.
template <class Meta, OpFunc op>
Tensor& truth_dims(const Tensor& self, Dims dim, bool keepdim, Tensor& out) {
  if (!dim || !dim->empty()) return reduce_over<Meta, op>(self, dim, keepdim, out);
  shape_outputs<Meta>(out, self, dim, keepdim);
  reduce({op, compute_in(self.scalar_type())}, self, {}, out);
  return out;
}

Tensor count_nonzero(const Tensor& self, at::IntArrayRef dim) {
  const DimSet dims = dim_set(dim, self.dim());
  Tensor out = at::empty(reduced_size(self, dims, false), self.options().dtype(at::kLong));
  reduce({OpFunc::countnonzero, compute_in(self.scalar_type())}, self, dims, out);
  return out;
}

// Exponentials, variances, norms

Tensor& logsumexp(const Tensor& self, at::IntArrayRef dim, bool keepdim, Tensor& out) {
  const at::ScalarType type = output_dtype(
      out, self.is_floating_point() ? self.scalar_type() : at::get_default_dtype_as_scalartype());
  TORCH_CHECK(at::isFloatingType(type),
              "logsumexp(): Expected floating point type for result tensor, but got: ", type);
  const DimSet dims = dim_set(dim, self.dim());
  size_output("logsumexp", out, reduced_size(self, dims, keepdim), self.options().dtype(type));
  reduce({OpFunc::logsumexp}, self, dims, out);
  return out;
}

void check_variance(const char* name, const Tensor& self, at::ScalarType type, DimSet dims,
                    double correction) {
  TORCH_CHECK(self.is_floating_point(), name, " only support floating point and complex dtypes");
  TORCH_CHECK(at::isFloatingType(type), name, " only supports floating point outputs, got ", type);
  if (static_cast<double>(reduced_elements(self, dims)) <= correction)
    TORCH_WARN(name,
               "(): degrees of freedom is <= 0. Correction should be strictly less than the "
               "reduction factor (input numel divided by output numel).");
}

template <bool root>
Tensor& variance(const Tensor& self, Dims dim, const std::optional<at::Scalar>& correction,
                 bool keepdim, Tensor& out) {
  const DimSet dims = dim_set(dim, self.dim());
  const double less = correction ? correction->toDouble() : 1;
  const at::ScalarType type = output_dtype(out, self.scalar_type());
  check_variance("std and var", self, type, dims, less);
  size_output("std and var", out, reduced_size(self, dims, keepdim), self.options().dtype(type));
  reduce({OpFunc::var, Compute::fp32, less, root}, self, dims, out);
  return out;
}

template <bool root>
std::tuple<Tensor, Tensor> variance_and_mean(const Tensor& self, Dims dim,
                                             const std::optional<at::Scalar>& correction,
                                             bool keepdim) {
  const DimSet dims = dim_set(dim, self.dim());
  const double less = correction ? correction->toDouble() : 1;
  check_variance(root ? "std_mean" : "var_mean", self, self.scalar_type(), dims, less);
  const at::DimVector size = reduced_size(self, dims, keepdim);
  Tensor out = at::empty(size, self.options()), mean = at::empty(size, self.options());
  reduce({OpFunc::var, Compute::fp32, less, root}, self, dims, out, mean);
  return {out, mean};
}

/// Without signs, in `dtype`.
Tensor magnitudes(const Tensor& self, at::ScalarType dtype) {
  Tensor result = at::empty(self.sizes(), self.options().dtype(dtype));
  pointwise(OpFunc::abs, result, {self}, dtype);
  return result;
}

Tensor& vector_norm_out(const Tensor& self, const at::Scalar& order, Dims dim, bool keepdim,
                        Dtype dtype, Tensor& out) {
  shape_outputs<at::meta::structured_linalg_vector_norm>(out, self, order, dim, keepdim, dtype);
  const DimSet dims = dim_set(dim, self.dim());
  const double p = order.toDouble();
  if (p == 2) {
    reduce({OpFunc::sumsq, Compute::fp32, {}, true}, self, dims, out);
  } else if (p == 1) {
    reduce({OpFunc::sum}, magnitudes(self, self.scalar_type()), dims, out);
  } else if (p == 0) {
    reduce({OpFunc::countnonzero}, self, dims, out);
  } else if (std::isinf(p)) {
    if (p > 0) {
      reduce({OpFunc::amaxabs}, self, dims, out);
    } else {
      reduce({OpFunc::min}, magnitudes(self, self.scalar_type()), dims, out);
    }
  } else {
    const Tensor powers = at::pow(magnitudes(self, at::kFloat), p);
    Tensor total = at::empty(out.sizes(), out.options().dtype(at::kFloat));
    reduce({OpFunc::sum}, powers, dims, total);
    out.copy_(at::pow(total, 1.0 / p));
  }
  return out;
}

Tensor& norm_out(const Tensor& self, const std::optional<at::Scalar>& p, at::IntArrayRef dim,
                 bool keepdim, Tensor& out) {
  return at::linalg_vector_norm_out(out, self, p.value_or(2), dim, keepdim);
}

Tensor& norm_dtype_out(const Tensor& self, const std::optional<at::Scalar>& p, at::IntArrayRef dim,
                       bool keepdim, at::ScalarType dtype, Tensor& out) {
  return at::linalg_vector_norm_out(out, self, p.value_or(2), dim, keepdim, dtype);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  namespace meta = at::meta;
  implement<sum>(m, "sum.dim_IntList", "sum.IntList_out");
  implement<mean>(m, "mean.dim", "mean.out");
  implement<nansum>(m, "nansum", "nansum.out");
  m.impl("prod", prod);
  m.impl("prod.int_out", prod_dim);

  implement<reduce_over<meta::structured_amax, OpFunc::max, at::IntArrayRef>>(m, "amax",
                                                                              "amax.out");
  implement<reduce_over<meta::structured_amin, OpFunc::min, at::IntArrayRef>>(m, "amin",
                                                                              "amin.out");
  m.impl("aminmax.out", aminmax_out);
  implement<extreme_all<OpFunc::max>>(m, "max", "max.unary_out");
  implement<extreme_all<OpFunc::min>>(m, "min", "min.unary_out");
  m.impl("max.dim_max", extreme_with_indices<meta::structured_max_dim, OpFunc::max>);
  m.impl("min.dim_min", extreme_with_indices<meta::structured_min_dim, OpFunc::min>);
  m.impl("argmax.out",
         reduce_over<meta::structured_argmax, OpFunc::argmax, std::optional<std::int64_t>>);
  m.impl("argmin.out",
         reduce_over<meta::structured_argmin, OpFunc::argmin, std::optional<std::int64_t>>);

  m.impl("any.all_out", truth_all<meta::structured_any, OpFunc::any>);
  m.impl("any.out", reduce_over<meta::structured_any_dim, OpFunc::any, std::int64_t>);
  implement<truth_dims<meta::structured_any_dims, OpFunc::any>>(m, "any.dims", "any.dims_out");
  m.impl("all.all_out", truth_all<meta::structured_all, OpFunc::all>);
  m.impl("all.out", reduce_over<meta::structured_all_dim, OpFunc::all, std::int64_t>);
  implement<truth_dims<meta::structured_all_dims, OpFunc::all>>(m, "all.dims", "all.dims_out");
  m.impl("count_nonzero.dim_IntList", count_nonzero);

  implement<logsumexp>(m, "logsumexp", "logsumexp.out");
  implement<variance<false>>(m, "var.correction", "var.correction_out");
  implement<variance<true>>(m, "std.correction", "std.correction_out");
  m.impl("var_mean.correction", variance_and_mean<false>);
  m.impl("std_mean.correction", variance_and_mean<true>);
  m.impl("linalg_vector_norm.out", vector_norm_out);
  m.impl("norm.out", norm_out);
  m.impl("norm.dtype_out", norm_dtype_out);
}

}  // namespace spyre::eager
