#include "program/launch_description.h"

#include <vector>

#include <c10/util/StringUtil.h>
#include <c10/util/strides.h>

#include "runtime/checks.h"
#include "tensor/spyre_dtypes.h"
#include "tensor/spyre_tensor_impl.h"
#include "tensor/spyre_tiling.h"

namespace spyre::checks {
namespace {

/// Places of elements that lie so, in row-major order. None if one has no place.
std::vector<card::StrideInfo> places(const SpyreTensorLayout& layout, c10::IntArrayRef size,
                                     c10::IntArrayRef stride, std::int64_t offset) {
  const Tiling tiling(layout);
  std::vector<Nest> nests;
  const c10::DimVector numbers = c10::contiguous_strides(size);
  if (!tiling.place(Nest::over(size, stride, offset, numbers), nests)) return {};
  for (const LoopDim& replica : tiling.replicas())
    for (Nest& nest : nests) nest.dims.insert(nest.dims.begin(), replica);
  return descriptor_loops(nests, /*tiled_is_destination=*/true);
}

card::OperandDescription describe_tensor(const at::Tensor& tensor) {
  card::OperandDescription description;
  const StorageContext& context = storage_context(tensor);
  const SpyreTensorLayout& layout = layout_of(tensor);
  description.name = c10::str(dtype_name(tensor.scalar_type()), tensor.sizes());
  description.size.assign(tensor.sizes().begin(), tensor.sizes().end());
  description.format = layout.device_dtype;
  if (is_byte_view(tensor) || context.raw) return description;
  description.view = places(layout, tensor.sizes(), tensor.strides(), tensor.storage_offset());
  // With a layout of its own, a tensor uses memory that is nothing else's.
  if (!has_own_layout(tensor)) description.storage = places(layout, {context.numel}, {1}, 0);
  return description;
}

}  // namespace

card::LaunchDescription describe(c10::ArrayRef<at::Tensor> operands, const Origin* origin,
                                 std::size_t first) {
  card::LaunchDescription description;
  description.op = origin ? origin->kernel : current_op();
  description.source = origin && !origin->source.empty() ? origin->source : user_line();
  for (std::size_t i = 0; i < operands.size(); ++i) {
    description.operands.push_back(i < first ? card::OperandDescription{}
                                             : describe_tensor(operands[i]));
    if (i < first) {
      description.operands.back().name = "intermediates";
      description.operands.back().scratch = true;
    }
  }
  return description;
}

}  // namespace spyre::checks
