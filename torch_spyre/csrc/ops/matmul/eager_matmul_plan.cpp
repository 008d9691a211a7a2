// Where the operands of a matrix product lie in device memory, and which of them have to be copied
// because the card cannot read them there.
#include <algorithm>
#include <array>

#include <ATen/MemoryOverlap.h>
#include <ATen/ops/empty.h>

#include "ops/matmul/eager_matmul.h"
#include "ops/memory/spyre_copy.h"
#include "program/eager_plan.h"
#include "tensor/spyre_dtypes.h"
#include "tensor/spyre_tiling.h"

namespace spyre::eager {
namespace {

/// Part of a dimension in device memory: a folded dimension has several, innermost first.
struct Factor {
  std::int64_t size, stride;
};
using Factors = c10::SmallVector<Factor, 3>;

/// A view in device memory, with one of its dimensions cut into sticks.
struct Placed {
  std::int64_t offset = 0, stick_stride = 0, lane_stride = 1;
  c10::SmallVector<Factors, 5> dims;  ///< one a dimension of the view; empty for the cut one
};

/// Whether device memory holds the storage's elements one after the other.
bool linear(const SpyreTensorLayout& layout) {
  const auto &sizes = layout.device_size, &strides = layout.stride_map;
  std::int64_t device_stride = 1;
  for (std::size_t i = sizes.size(); i-- > 0;) {
    if (sizes[i] > 1 && strides[i] != device_stride) return false;
    device_stride *= i + 1 == sizes.size() ? layout.elems_per_stick() : sizes[i];
  }
  return true;
}

/// Loops over some elements of a view as one nest of device memory: parts of each loop. Nothing if
/// it takes more nests.
struct PlacedLoops {
  std::int64_t offset = 0;
  c10::SmallVector<Factors, 6> loops;
};

std::optional<PlacedLoops> place(const Tiling& tiling, c10::IntArrayRef size,
                                 c10::IntArrayRef stride, std::int64_t offset) {
  const std::size_t rank = size.size();
  std::vector<std::int64_t> unit(rank, 1);  // numbers the iterations
  std::int64_t iterations = 1;
  for (std::size_t d = rank; d-- > 0;) {
    unit[d] = iterations;
    iterations *= size[d];
  }
  std::vector<Nest> nests;
  if (!tiling.place(Nest::over(size, stride, offset, unit), nests) || nests.size() != 1)
    return std::nullopt;
  PlacedLoops placed{nests[0].offset, c10::SmallVector<Factors, 6>(rank)};
  auto& dims = nests[0].dims;
  std::stable_sort(dims.begin(), dims.end(),
                   [](const LoopDim& a, const LoopDim& b) { return a.other < b.other; });
  for (const LoopDim& dim : dims) {
    if (dim.size == 1) continue;
    std::size_t d = 0;  // the loop this is a part of
    while (unit[d] > dim.other || size[d] == 1) ++d;
    Factors& factors = placed.loops[d];
    if (!factors.empty() && dim.stride == factors.back().stride * factors.back().size)
      factors.back().size *= dim.size;
    else
      factors.push_back({dim.size, dim.stride});
  }
  return placed;
}

bool same(const Factors& a, const Factors& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const Factor& x, const Factor& y) {
    return x.size == y.size && x.stride == y.stride;
  });
}

/// The view with dimension `cut` in sticks; nothing if device memory does not have it so.
std::optional<Placed> place(const Operand& view, std::int64_t cut) {
  const SpyreTensorLayout& layout = view.layout();
  if (view.shows_bytes() || layout.device_dtype != device_format(view.scalar_type()))
    return std::nullopt;
  const std::int64_t lanes = layout.elems_per_stick(), rank = view.dim();
  Placed placed;
  placed.dims.resize(rank);
  if (linear(layout)) {
    placed.offset = view.storage_offset();
    for (std::int64_t d = 0; d < rank; ++d)
      if (d != cut && view.size(d) > 1) placed.dims[d] = {{view.size(d), view.stride(d)}};
    placed.lane_stride = view.stride(cut);
    placed.stick_stride = view.stride(cut) * lanes;
    return placed;
  }

  const Tiling tiling(layout);
  const std::int64_t whole = view.size(cut) / lanes, rest = view.size(cut) % lanes;
  c10::SmallVector<std::int64_t, 6> size(view.sizes().begin(), view.sizes().end());
  c10::SmallVector<std::int64_t, 6> stride(view.strides().begin(), view.strides().end());
  size.push_back(whole == 0 ? rest : lanes);
  stride.push_back(stride[cut]);
  size[cut] = std::max<std::int64_t>(whole, 1);
  stride[cut] *= lanes;
  const auto first = place(tiling, size, stride, view.storage_offset());
  if (!first) return std::nullopt;
  const auto stride_of = [](const Factors& factors, std::int64_t otherwise) {
    return factors.empty() ? otherwise : factors[0].stride;
  };
  if (first->loops[cut].size() > 1 || first->loops[rank].size() > 1) return std::nullopt;
  placed.offset = first->offset;
  placed.lane_stride = stride_of(first->loops[rank], 1);
  placed.stick_stride = stride_of(first->loops[cut], 0);
  for (std::int64_t d = 0; d < rank; ++d)
    if (d != cut) placed.dims[d] = first->loops[d];
  if (whole == 0 || rest == 0) return placed;

  // The last, partial stick has to lie where one more whole one would.
  size[cut] = 1;
  size[rank] = rest;
  const auto last =
      place(tiling, size, stride, view.storage_offset() + whole * view.stride(cut) * lanes);
  if (!last) return std::nullopt;
  if (whole == 1) placed.stick_stride = last->offset - first->offset;
  bool fits = last->offset == first->offset + whole * placed.stick_stride &&
              last->loops[rank].size() <= 1 &&
              stride_of(last->loops[rank], placed.lane_stride) == placed.lane_stride;
  for (std::int64_t d = 0; d < rank; ++d)
    if (d != cut) fits = fits && same(last->loops[d], first->loops[d]);
  if (!fits) return std::nullopt;
  return placed;
}

/// Which operands have to be copied, or the program's step.
struct Plan {
  bool copy_a = false, copy_b = false, copy_bias = false, copy_out = false;
  card::Matmul matmul;

  bool copies() const { return copy_a || copy_b || copy_bias || copy_out; }
};

/// Gathering elements one by one is cheaper than a copy up to so many.
constexpr std::int64_t kGathered = 4096;

/// One dimension of all operands, cut where any of them needs it; innermost first. False if the
/// cuts do not fit together.
bool join(std::int64_t size, std::array<Factors, 4> parts, std::vector<card::Matmul::Batch>& out) {
  while (size > 1) {
    std::int64_t step = size;
    for (const Factors& factors : parts)
      if (!factors.empty()) step = std::min(step, factors.front().size);
    card::Matmul::Batch dim{step};
    const std::array strides{&dim.a, &dim.b, &dim.c, &dim.bias};
    for (std::size_t i = 0; i < parts.size(); ++i) {
      if (parts[i].empty()) continue;
      Factor& factor = parts[i].front();
      if (factor.size % step != 0) return false;
      *strides[i] = factor.stride;
      factor.size /= step;
      factor.stride *= step;
      if (factor.size == 1) parts[i].erase(parts[i].begin());
    }
    out.push_back(dim);
    size /= step;
  }
  return true;
}

std::optional<Placed> place_right(const Operand& b, card::Matmul::Right& right) {
  using Sticks = card::Matmul::Sticks;
  const std::int64_t k = b.dim() - 2, n = b.dim() - 1;
  const bool vector = b.size(n) == 1;  // read along what it has
  for (const Sticks sticks :
       {vector ? Sticks::along_k : Sticks::along_n, vector ? Sticks::along_n : Sticks::along_k}) {
    const std::int64_t cut = sticks == Sticks::along_n ? n : k, other = n + k - cut;
    auto placed = place(b, cut);
    if (!placed || placed->dims[other].size() > 1) continue;
    if (placed->lane_stride != 1 && b.size(cut) > 1) continue;
    right.sticks = sticks;
    right.offset = placed->offset;
    right.stick_stride = placed->stick_stride;
    right.stride = placed->dims[other].empty() ? 0 : placed->dims[other][0].stride;
    placed->dims[other].clear();
    return placed;
  }
  return std::nullopt;
}

void check_sizes(const Operand& out, const Operand& a, const Operand& b, const Operand* bias) {
  const std::int64_t m = out.dim() - 2, n = out.dim() - 1;
  bool fits = m >= 0 && a.dim() == out.dim() && b.dim() == out.dim() && a.size(n) == b.size(m) &&
              a.size(m) == out.size(m) && b.size(n) == out.size(n);
  for (std::int64_t d = 0; d < m && fits; ++d)
    fits = a.size(d) == out.size(d) && b.size(d) == out.size(d);
  TORCH_CHECK(fits, "Matrices of sizes ", a.sizes(), " and ", b.sizes(),
              " have no product of size ", out.sizes(), ".");
  TORCH_CHECK(!bias || bias->sizes() == out.sizes(), "A tensor of size ",
              bias ? bias->sizes() : a.sizes(), " cannot be added to a product of size ",
              out.sizes(), ".");
}

/// Operands: the result, both factors, and the bias if there is one.
Plan make_plan(Operands operands, const double& alpha, const double& beta) {
  const Operand &out = operands[0], &a = operands[1], &b = operands[2];
  const Operand* const bias = operands.size() > 3 ? &operands[3] : nullptr;
  check_sizes(out, a, b, bias);
  Plan plan;
  card::Matmul& matmul = plan.matmul;
  const std::int64_t rank = out.dim(), m = rank - 2, n = rank - 1;
  matmul.k = a.size(n);
  matmul.n = out.size(n);
  matmul.alpha = alpha;
  matmul.beta = beta;
  matmul.c.operand = 0;
  matmul.c.format = device_format(out.scalar_type());
  matmul.c.narrow = out.narrow();
  matmul.a.operand = matmul.b.operand = 0;  // without K there is nothing to read
  matmul.a.format = device_format(a.scalar_type());
  matmul.b.format = device_format(b.scalar_type());
  const auto fp8 = [](DataFormat format) {
    return format == DataFormat::SEN143_FP8 || format == DataFormat::SEN152_FP8;
  };
  if (fp8(matmul.a.format) && fp8(matmul.b.format)) matmul.op = OpFunc::batchmatmulfp8;

  Placed nothing;
  nothing.dims.resize(rank);
  std::optional<Placed> left = nothing, right = nothing, addend = nothing;
  const std::optional<Placed> result = place(out, n);
  const bool repeats = !Tiling(out.layout()).replicas().empty();
  plan.copy_out = !result || repeats || (result->lane_stride != 1 && matmul.n > 1);
  if (matmul.k > 0) {
    matmul.a.operand = 1;
    matmul.b.operand = 2;
    left = place(a, n);
    right = place_right(b, matmul.b);
    plan.copy_a = !left || (left->lane_stride != 1 && matmul.k > 1 && a.numel() > kGathered);
    plan.copy_b = !right;
  }
  if (bias) {
    matmul.bias.operand = matmul.k > 0 ? 3 : 1;
    matmul.bias.format = device_format(bias->scalar_type());
    addend = place(*bias, n);
    plan.copy_bias = !addend;
  }
  if (plan.copies()) return plan;

  matmul.a.offset = left->offset;
  matmul.a.k_stick_stride = left->stick_stride;
  matmul.a.k_lane_stride = left->lane_stride;
  matmul.c.offset = result->offset;
  matmul.c.n_stick_stride = result->stick_stride;
  matmul.bias.offset = addend->offset;
  matmul.bias.n_stick_stride = addend->stick_stride;
  matmul.bias.n_lane_stride = addend->lane_stride;
  for (std::int64_t d = m; d >= 0; --d) {
    if (join(out.size(d), {left->dims[d], right->dims[d], result->dims[d], addend->dims[d]},
             matmul.batch))
      continue;
    // Copies have every dimension in one part.
    plan.copy_a |= left->dims[d].size() > 1;
    plan.copy_b |= right->dims[d].size() > 1;
    plan.copy_out |= result->dims[d].size() > 1;
    plan.copy_bias |= addend->dims[d].size() > 1;
  }
  if (plan.copies()) return plan;

  matmul.m = 1;
  if (out.size(m) > 1) {
    const card::Matmul::Batch rows = matmul.batch.front();
    matmul.batch.erase(matmul.batch.begin());
    matmul.m = rows.size;
    matmul.a.m_stride = rows.a;
    matmul.c.m_stride = rows.c;
    matmul.bias.m_stride = rows.bias;
  }
  return plan;
}

void build_matmul(card::ProgramBuilder& builder, Operands operands, const double& alpha,
                  const double& beta) {
  builder.matmul(make_plan(operands, alpha, beta).matmul);
}

/// The same elements in the default layout; of the first `expanded` dimensions, those that repeat
/// elements still do.
at::Tensor plain_copy(const at::Tensor& view, std::int64_t expanded) {
  const at::Tensor source = unexpanded(view, expanded);
  const at::Tensor copy = at::empty(source.sizes(), source.options());
  copy_from(source, copy, false);
  return copy.expand(view.sizes());
}

}  // namespace

void matmul(const at::Tensor& a, const at::Tensor& b, const at::Tensor& out,
            const std::optional<at::Tensor>& bias, double alpha, double beta) {
  if (out.numel() == 0) return;
  const at::Tensor* addend = bias && beta != 0 ? &*bias : nullptr;
  if (addend) at::assert_no_partial_overlap(out, *addend);
  c10::SmallVector<at::Tensor, 4> operands{out, a, b};
  if (addend) operands.push_back(*addend);
  Call call(operands, alpha, beta);
  const auto plan = call.find(make_plan);
  if (plan->copies()) {
    const std::int64_t leading = out.dim() - 2;
    const at::Tensor target = plan->copy_out ? at::empty(out.sizes(), out.options()) : out;
    matmul(plan->copy_a ? plain_copy(a, leading) : a, plan->copy_b ? plain_copy(b, leading) : b,
           target, plan->copy_bias ? std::optional(plain_copy(*addend, out.dim())) : bias, alpha,
           beta);
    if (plan->copy_out) copy_from(target, out, false);
    return;
  }
  if (plan->matmul.k > 0) return call.run(build_matmul);
  c10::SmallVector<at::Tensor, 2> launched{out};
  if (addend) launched.push_back(*addend);
  call.run_with(launched, build_matmul);
}

}  // namespace spyre::eager
