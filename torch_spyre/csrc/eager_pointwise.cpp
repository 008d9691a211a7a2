#include "eager_pointwise.h"

#include <ATen/MemoryOverlap.h>

#include "eager_plan.h"
#include "spyre_dtypes.h"
#include "spyre_tensor_impl.h"

namespace spyre::eager {
namespace {

using card::Pointwise;

bool is_number(const at::Tensor& tensor) { return tensor.is_cpu() && tensor.dim() == 0; }

/// Whether all tensors are the same elements in the same places: then device memory can be walked
/// from end to end, padding and all.
bool same_places(c10::ArrayRef<at::Tensor> tensors) {
  const at::Tensor& first = tensors[0];
  const SpyreTensorLayout& layout = layout_of(first);
  for (const at::Tensor& tensor : tensors) {
    const StorageContext& context = storage_context(tensor);
    if (tensor.storage_offset() != 0 || tensor.numel() != context.numel ||
        tensor.sizes() != first.sizes() || tensor.strides() != first.strides())
      return false;
    const SpyreTensorLayout& other = layout_of(tensor);
    if (other.device_size != layout.device_size || other.stride_map != layout.stride_map)
      return false;
  }
  return true;
}

std::vector<Pointwise::Nest> nests_over(c10::ArrayRef<at::Tensor> tensors) {
  const at::Tensor& out = tensors.back();
  std::vector<Pointwise::Nest> nests;
  if (same_places(tensors)) {
    Pointwise::Nest& whole = nests.emplace_back();
    whole.offset.assign(tensors.size(), 0);
    whole.dims.push_back(
        {layout_of(out).device_numel(), std::vector<std::int64_t>(tensors.size(), 1)});
    return nests;
  }
  std::vector<JointOperand> operands;
  for (const at::Tensor& tensor : tensors)
    operands.push_back(JointOperand::of(tensor, out.sizes()));
  for (const JointNest& joint : joint_loops(out.sizes(), operands)) {
    Pointwise::Nest& nest = nests.emplace_back();
    nest.offset.assign(joint.offset.begin(), joint.offset.end());
    for (const JointNest::Dim& dim : joint.dims)
      nest.dims.push_back({dim.size, {dim.stride.begin(), dim.stride.end()}});
  }
  return nests;
}

}  // namespace

void pointwise(OpFunc op, const at::Tensor& out, std::initializer_list<at::Tensor> inputs,
               c10::ScalarType common, std::vector<double> constants) {
  if (out.numel() == 0) return;
  at::assert_no_internal_overlap(out);
  const bool exact = c10::isIntegralType(common, /*includeBool=*/true) && op_info(op).int64;

  Pointwise step;
  step.op = op;
  step.compute = exact ? card::Compute::int64 : card::Compute::fp32;
  step.constants = std::move(constants);
  std::vector<at::Tensor> tensors;
  Key key;
  key.add(static_cast<std::int64_t>(op)).add(static_cast<std::int64_t>(step.compute));
  for (const double constant : step.constants) key.add(constant);
  for (const at::Tensor& input : inputs) {
    if (is_number(input)) {
      const double number = number_for(common, input.item().toDouble());
      step.inputs.push_back(Pointwise::Input::scalar(number));
      key.add(step.inputs.back().value).add(std::int64_t{-1});
      continue;
    }
    const at::Tensor tensor = on_device(input, out.device());
    at::assert_no_partial_overlap(out, tensor);
    const auto operand = static_cast<std::int64_t>(tensors.size());
    step.inputs.push_back({operand, layout_of(tensor).device_dtype, 0});
    key.add(tensor);
    tensors.push_back(tensor);
  }
  const card::Narrow narrow = dtype_info(out.scalar_type()).narrow;
  step.output = {static_cast<std::int64_t>(tensors.size()), layout_of(out).device_dtype, narrow};
  tensors.push_back(out);
  key.add(out);
  run(key, tensors, [&](card::ProgramBuilder& builder) {
    step.nests = nests_over(tensors);
    builder.pointwise(step);
  });
}

}  // namespace spyre::eager
