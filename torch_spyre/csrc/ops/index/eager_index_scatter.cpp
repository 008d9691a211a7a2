// gather and scatter: an index for every element, along one dimension; and index_reduce, which
// differs from scatter_reduce in how the index lies only.
#include <limits>

#include <ATen/MemoryOverlap.h>
#include <ATen/ops/div.h>
#include <ATen/ops/gather_meta.h>
#include <ATen/ops/index_reduce_meta.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/scatter_add_meta.h>
#include <ATen/ops/scatter_meta.h>
#include <ATen/ops/scatter_reduce_meta.h>
#include <ATen/ops/zeros_like.h>
#include <torch/library.h>

#include "ops/index/eager_index.h"
#include "tensor/eager_structured.h"

namespace spyre::eager {
namespace {

using at::Tensor;

Tensor& gather_out(const Tensor& self, std::int64_t dim, const Tensor& index, bool sparse_grad,
                   Tensor& out) {
  Outputs<at::meta::structured_gather> outputs(out);
  outputs.meta(self, dim, index, sparse_grad);
  if (index.numel() == 0) return out;
  run_elements({.op = OpFunc::gather, .dim = dim, .index_error = false}, self, index, out);
  return out;
}

// ------------------------------------------------------------------------------------- reductions

enum class Reduction { replace, sum, product, mean, most, least };

Reduction reduction_of(c10::string_view name) {
  if (name == "add" || name == "sum") return Reduction::sum;
  if (name == "multiply" || name == "prod") return Reduction::product;
  if (name == "mean") return Reduction::mean;
  if (name == "amax") return Reduction::most;
  TORCH_CHECK(name == "amin",
              "reduce argument must be one of: add, multiply, sum, prod, mean, amax",
              " or amin, got ", name, ".");
  return Reduction::least;
}

OpFunc op_of(Reduction reduction) {
  switch (reduction) {
    case Reduction::replace:
      return OpFunc::scatter;
    case Reduction::product:
      return OpFunc::scattermul;
    case Reduction::most:
      return OpFunc::scattermax;
    case Reduction::least:
      return OpFunc::scattermin;
    default:
      return OpFunc::scatteradd;
  }
}

/// The value that leaves others as they are.
at::Scalar neutral(Reduction reduction, at::ScalarType dtype) {
  const bool lowest = reduction == Reduction::most;
  if (reduction == Reduction::product) return 1;
  if (!lowest && reduction != Reduction::least) return 0;
  if (at::isFloatingType(dtype)) {
    const double infinity = std::numeric_limits<double>::infinity();
    return lowest ? -infinity : infinity;
  }
  switch (dtype) {
    case at::kBool:
      return !lowest;
    case at::kByte:
      return lowest ? 0 : 255;
    case at::kChar:
      return lowest ? -128 : 127;
    case at::kShort:
      return lowest ? -32768 : 32767;
    default:
      return lowest ? std::numeric_limits<std::int32_t>::min()
                    : std::numeric_limits<std::int32_t>::max();
  }
}

using RunAlong = void (*)(const AlongDim&, const Tensor&, const Tensor&, const Tensor&);

/// `out` holds what the result starts from.
void reduce_into(RunAlong run, AlongDim how, Reduction reduction, bool include_self,
                 const Tensor& index, const Tensor& source, const Tensor& out) {
  if (index.numel() == 0) return;
  const bool mean = reduction == Reduction::mean;
  const Tensor total = reduction == Reduction::sum || reduction == Reduction::product || mean
                           ? accumulated(out)
                           : out;
  if (!include_self) {
    how.op = OpFunc::scatter;
    run(how, total, index, number_like(total, neutral(reduction, total.scalar_type())));
  }
  how.op = op_of(reduction);
  run(how, total, index, source);
  if (mean) {
    Tensor counts = include_self ? at::ones_like(total) : at::zeros_like(total);
    run(how, counts, index, number_like(counts, 1));
    counts.clamp_min_(1);
    at::isFloatingType(total.scalar_type()) ? total.div_(counts) : total.div_(counts, "floor");
  }
  if (!total.is_same(out)) out.copy_(total);
}

void scatter_with(Reduction reduction, std::int64_t dim, const Tensor& index, const Tensor& source,
                  const Tensor& out) {
  if (reduction == Reduction::replace) {
    if (index.numel() > 0)
      run_elements({.op = OpFunc::scatter, .dim = dim, .index_error = false}, out, index, source);
    return;
  }
  reduce_into(run_elements, {.op = OpFunc::scatter, .dim = dim, .index_error = false}, reduction,
              /*include_self=*/true, index, source, out);
}

Tensor& scatter_src_out(const Tensor& self, std::int64_t dim, const Tensor& index,
                        const Tensor& src, Tensor& out) {
  Outputs<at::meta::structured_scatter_src> outputs(out);
  outputs.meta(self, dim, index, src);
  start_from(self, out);
  scatter_with(Reduction::replace, dim, index, src, out);
  return out;
}

Tensor& scatter_value_out(const Tensor& self, std::int64_t dim, const Tensor& index,
                          const at::Scalar& value, Tensor& out) {
  Outputs<at::meta::structured_scatter_value> outputs(out);
  outputs.meta(self, dim, index, value);
  start_from(self, out);
  scatter_with(Reduction::replace, dim, index, number_like(out, value), out);
  return out;
}

Tensor& scatter_reduce_out(const Tensor& self, std::int64_t dim, const Tensor& index,
                           const Tensor& src, c10::string_view reduce, Tensor& out) {
  Outputs<at::meta::structured_scatter_reduce> outputs(out);
  outputs.meta(self, dim, index, src, reduce);
  start_from(self, out);
  scatter_with(reduction_of(reduce), dim, index, src, out);
  return out;
}

Tensor& scatter_value_reduce_out(const Tensor& self, std::int64_t dim, const Tensor& index,
                                 const at::Scalar& value, c10::string_view reduce, Tensor& out) {
  Outputs<at::meta::structured_scatter_value_reduce> outputs(out);
  outputs.meta(self, dim, index, value, reduce);
  start_from(self, out);
  scatter_with(reduction_of(reduce), dim, index, number_like(out, value), out);
  return out;
}

Tensor& scatter_add_out(const Tensor& self, std::int64_t dim, const Tensor& index,
                        const Tensor& src, Tensor& out) {
  Outputs<at::meta::structured_scatter_add> outputs(out);
  outputs.meta(self, dim, index, src);
  start_from(self, out);
  scatter_with(Reduction::sum, dim, index, src, out);
  return out;
}

Tensor& scatter_reduce_two_out(const Tensor& self, std::int64_t dim, const Tensor& index,
                               const Tensor& src, c10::string_view reduce, bool include_self,
                               Tensor& out) {
  Outputs<at::meta::structured_scatter_reduce_two> outputs(out);
  outputs.meta(self, dim, index, src, reduce, include_self);
  start_from(self, out);
  reduce_into(run_elements, {.op = OpFunc::scatter, .dim = dim, .index_error = false},
              reduction_of(reduce), include_self, index, src, out);
  return out;
}

Tensor& index_reduce_out(const Tensor& self, std::int64_t dim, const Tensor& index,
                         const Tensor& source, c10::string_view reduce, bool include_self,
                         Tensor& out) {
  TORCH_WARN_ONCE("index_reduce() is in beta and the API may change at any time.");
  Outputs<at::meta::structured_index_reduce> outputs(out);
  dim = outputs.meta(self, dim, index, source, reduce, include_self).dim;
  start_from(self, out);
  reduce_into(run_slices, {.op = OpFunc::scatter, .dim = dim}, reduction_of(reduce), include_self,
              index, source, out);
  return out;
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("gather.out", gather_out);
  m.impl("scatter.src_out", scatter_src_out);
  m.impl("scatter.value_out", scatter_value_out);
  m.impl("scatter.reduce_out", scatter_reduce_out);
  m.impl("scatter.value_reduce_out", scatter_value_reduce_out);
  m.impl("scatter_add.out", scatter_add_out);
  m.impl("scatter_reduce.two_out", scatter_reduce_two_out);
  m.impl("index_reduce.out", index_reduce_out);
}

}  // namespace spyre::eager
