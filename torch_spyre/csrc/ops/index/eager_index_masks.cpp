// Masks and flat positions: nonzero, masked_select, masked_scatter, take, put.
#include <ATen/Context.h>
#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/nonzero.h>
#include <torch/library.h>

#include "ops/index/eager_index.h"
#include "program/eager_plan.h"
#include "tensor/eager_structured.h"
#include "tensor/eager_variants.h"

namespace spyre::eager {
namespace {

using at::Tensor;

// The number of true elements is the size of the result, which the host must know: it reads the
// mask and lists their positions, as the device would have to wait for the host anyway.

/// Positions of an element lie far apart, as PyTorch lays them out.
Tensor nonzero(const Tensor& self) { return at::nonzero(self.cpu()).to(self.device()); }

Tensor& nonzero_out(const Tensor& self, Tensor& out) {
  const Tensor positions = at::nonzero(self.cpu());
  size_output("nonzero", out, positions.sizes(), self.options().dtype(at::kLong), {self});
  return out.copy_(positions);
}

Tensor& take(const Tensor& self, const Tensor& index, Tensor& out) {
  TORCH_CHECK(index.scalar_type() == at::kLong,
              "take(): Expected a long tensor for index, but got ", index.scalar_type());
  TORCH_CHECK_INDEX(self.numel() > 0 || index.numel() == 0,
                    "take(): tried to take from an empty tensor");
  size_output("take()", out, index.sizes(), self.options(), {index, self});
  run_flat(OpFunc::gather, self.reshape(-1), on_device(index, self.device()), out);
  return out;
}

/// self.flatten()[index] = values, or += values. `index` is a vector, so that of several writes to
/// one place the last stays.
void put_flat(const Tensor& self, const Tensor& index, const Tensor& values, bool accumulate) {
  const Tensor total = accumulate ? accumulated(self) : self;
  const Tensor whole = total.contiguous();
  run_flat(accumulate ? OpFunc::scatteradd : OpFunc::scatter, whole.view(-1), index, values);
  if (!whole.is_same(self)) self.copy_(whole);
}

Tensor& put(Tensor& self, const Tensor& index, const Tensor& source, bool accumulate) {
  TORCH_CHECK(index.scalar_type() == at::kLong,
              "put_(): Expected a long tensor for index, but got ", index.scalar_type());
  TORCH_CHECK(self.scalar_type() == source.scalar_type(),
              "put_(): self and source expected to have the same dtype, but got self.dtype = ",
              self.dtype(), " and source.dtype = ", source.dtype());
  TORCH_CHECK_INDEX(source.numel() == index.numel(),
                    "put_(): Expected source and index to have the same number of elements, but ",
                    "got source.numel() = ", source.numel(), ", index.numel() = ", index.numel());
  TORCH_CHECK_INDEX(self.numel() > 0 || index.numel() == 0,
                    "put_(): tried to put elements into an empty tensor");
  // Ours is deterministic. PyTorch lets no device's pass for it.
  if (!accumulate) at::globalContext().alertNotDeterministic("put_");
  at::assert_no_internal_overlap(self);
  at::assert_no_overlap(self, index);
  at::assert_no_overlap(self, source);
  if (index.numel() > 0)
    put_flat(self, on_device(index, self.device()).reshape(-1),
             on_device(source, self.device()).reshape(-1), accumulate);
  return self;
}

Tensor& masked_select(const Tensor& self, const Tensor& mask, Tensor& out) {
  TORCH_CHECK(mask.scalar_type() == at::kBool, "masked_select: expected BoolTensor for mask");
  const at::DimVector size = at::infer_size_dimvector(self.sizes(), mask.sizes());
  const Tensor offsets = true_offsets(on_device(mask, self.device()).expand(size));
  size_output("masked_select()", out, {offsets.numel()}, self.options(), {self, mask});
  if (offsets.numel() > 0) run_flat(OpFunc::gather, self.expand(size).reshape(-1), offsets, out);
  return out;
}

Tensor& masked_scatter(Tensor& self, const Tensor& mask, const Tensor& source) {
  TORCH_CHECK(self.scalar_type() == source.scalar_type(),
              "masked_scatter: expected self and source to have same dtypes but got ",
              self.scalar_type(), " and ", source.scalar_type());
  TORCH_CHECK(mask.scalar_type() == at::kBool, "masked_scatter_ only supports boolean masks, but ",
              "got mask with dtype ", mask.scalar_type());
  at::assert_no_internal_overlap(self);
  TORCH_CHECK(at::is_expandable_to(mask.sizes(), self.sizes()), "masked_scatter_: a mask of size ",
              mask.sizes(), " cannot be broadcast to a tensor of size ", self.sizes());
  const Tensor offsets = true_offsets(on_device(mask, self.device()).expand(self.sizes()));
  const std::int64_t count = offsets.numel();
  TORCH_CHECK(source.numel() >= count, "Number of elements of source < number of ones in mask");
  if (count > 0)
    put_flat(self, offsets, on_device(source, self.device()).reshape(-1).narrow(0, 0, count),
             /*accumulate=*/false);
  return self;
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("nonzero", nonzero);
  m.impl("nonzero.out", nonzero_out);
  implement<take>(m, "take", "take.out");
  m.impl("put_", put);
  implement<masked_select>(m, "masked_select", "masked_select.out");
  m.impl("masked_scatter_", masked_scatter);
}

}  // namespace spyre::eager
