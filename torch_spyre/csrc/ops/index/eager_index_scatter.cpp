// gather and scatter: an index for every element, along one dimension; and index_reduce, which
// differs from scatter_reduce in how the index lies only.

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

using at::Scalar;
using at::Tensor;

Tensor& gather_out(const Tensor& self, std::int64_t dim, const Tensor& index, bool sparse_grad,
                   Tensor& out) {
  shape_outputs<at::meta::structured_gather>(out, self, dim, index, sparse_grad);
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
  if (reduction == Reduction::product) return 1;
  if (reduction == Reduction::most) return range_of(dtype).least;
  return reduction == Reduction::least ? range_of(dtype).most : 0;
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

const Tensor& source_of(const Tensor& /*out*/, const Tensor& source) { return source; }
Tensor source_of(const Tensor& out, const at::Scalar& value) { return number_like(out, value); }

/// `Source` is a tensor or a number; how it is combined follows from the op or a word.
template <class Meta, Reduction fixed, class Source, class... Word>
Tensor& scatter(const Tensor& self, std::int64_t dim, const Tensor& index, Source source,
                Word... word, Tensor& out) {
  shape_outputs<Meta>(out, self, dim, index, source, word...);
  start_from(self, out);
  const AlongDim how{.op = OpFunc::scatter, .dim = dim, .index_error = false};
  const Reduction reduction = [&] {
    if constexpr (sizeof...(word) == 0)
      return fixed;
    else
      return reduction_of(word...);
  }();
  reduce_into(run_elements, how, reduction, /*include_self=*/true, index, source_of(out, source),
              out);
  return out;
}

Tensor& scatter_reduce_two_out(const Tensor& self, std::int64_t dim, const Tensor& index,
                               const Tensor& src, c10::string_view reduce, bool include_self,
                               Tensor& out) {
  shape_outputs<at::meta::structured_scatter_reduce_two>(out, self, dim, index, src, reduce,
                                                         include_self);
  start_from(self, out);
  reduce_into(run_elements, {.op = OpFunc::scatter, .dim = dim, .index_error = false},
              reduction_of(reduce), include_self, index, src, out);
  return out;
}

Tensor& index_reduce_out(const Tensor& self, std::int64_t dim, const Tensor& index,
                         const Tensor& source, c10::string_view reduce, bool include_self,
                         Tensor& out) {
  TORCH_WARN_ONCE("index_reduce() is in beta and the API may change at any time.");
  dim = shape_outputs<at::meta::structured_index_reduce>(out, self, dim, index, source, reduce,
                                                         include_self)
            .dim;
  start_from(self, out);
  reduce_into(run_slices, {.op = OpFunc::scatter, .dim = dim}, reduction_of(reduce), include_self,
              index, source, out);
  return out;
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  namespace meta = at::meta;
  m.impl("gather.out", gather_out);
  using Word = c10::string_view;
  constexpr Reduction replace = Reduction::replace, sum = Reduction::sum;
  m.impl("scatter.src_out", scatter<meta::structured_scatter_src, replace, const Tensor&>);
  m.impl("scatter.value_out", scatter<meta::structured_scatter_value, replace, const Scalar&>);
  m.impl("scatter.reduce_out",
         scatter<meta::structured_scatter_reduce, replace, const Tensor&, Word>);
  m.impl("scatter.value_reduce_out",
         scatter<meta::structured_scatter_value_reduce, replace, const Scalar&, Word>);
  m.impl("scatter_add.out", scatter<meta::structured_scatter_add, sum, const Tensor&>);
  m.impl("scatter_reduce.two_out", scatter_reduce_two_out);
  m.impl("index_reduce.out", index_reduce_out);
}

}  // namespace spyre::eager
