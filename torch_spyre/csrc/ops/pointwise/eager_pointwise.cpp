#include "ops/pointwise/eager_pointwise.h"

#include <cmath>

#include <ATen/Dispatch.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/TensorIterator.h>
#include <ATen/ops/empty.h>

#include "ops/memory/spyre_copy.h"
#include "program/eager_lines.h"
#include "tensor/spyre_dtypes.h"
#include "tensor/spyre_int64.h"
#include "tensor/spyre_tensor_impl.h"

namespace spyre::eager {
namespace {

using card::Pointwise;

bool is_number(const at::Tensor& tensor) { return tensor.is_cpu() && tensor.dim() == 0; }

/// Whether all tensors are the same elements in the same places: then device memory can be walked
/// from end to end, padding and all.
bool same_places(Operands tensors) {
  const Operand& first = tensors[0];
  for (const Operand& tensor : tensors)
    if (!tensor.is_whole() || tensor.sizes() != first.sizes() ||
        tensor.strides() != first.strides() ||
        tensor.layout().device_size != first.layout().device_size ||
        tensor.layout().stride_map != first.layout().stride_map)
      return false;
  return true;
}

std::vector<Pointwise::Nest> nests_over(Operands tensors) {
  const Operand& out = tensors.back();
  if (same_places(tensors)) {
    Pointwise::Nest whole;
    whole.offset.assign(tensors.size(), 0);
    whole.dims.push_back(
        {out.layout().device_numel(), std::vector<std::int64_t>(tensors.size(), 1)});
    return {std::move(whole)};
  }
  std::vector<JointOperand> operands;
  for (const Operand& tensor : tensors) operands.push_back(JointOperand::of(tensor, out.sizes()));
  return pointwise_nests(out.sizes(), operands);
}

/// The inputs of an op in their order: a number, or nothing where the next tensor belongs.
using Numbers = c10::SmallVector<std::optional<double>, 5>;

void build(card::ProgramBuilder& builder, Operands tensors, const OpFunc& op,
           const card::Compute& compute, const std::vector<double>& constants,
           const Numbers& inputs) {
  Pointwise step;
  step.op = op;
  step.compute = compute;
  step.constants = constants;
  std::int64_t operand = 0;
  for (const std::optional<double>& number : inputs) {
    if (number) {
      step.inputs.push_back(Pointwise::Input::scalar(*number));
    } else {
      step.inputs.push_back({operand, tensors[operand].format(), 0});
      ++operand;
    }
  }
  step.output = {operand, tensors.back().format(), tensors.back().narrow()};
  step.nests = nests_over(tensors);
  builder.pointwise(step);
}

/// A number as an operand in a dtype. An integer wraps around. A float is rounded only where the
/// result would jump: it may be more exact than what the dtype holds.
double operand_number(OpFunc op, c10::ScalarType dtype, double number) {
  if (c10::isIntegralType(dtype, /*includeBool=*/true) && std::isfinite(number))
    return AT_DISPATCH_INTEGRAL_TYPES_AND(at::kBool, dtype, "operand_number", [&] {
      return static_cast<double>(static_cast<scalar_t>(static_cast<std::int64_t>(number)));
    });
  return c10::isReducedFloatingType(dtype) && op_info(op).jumps ? number_in(dtype, number)
                                                                : number_for(dtype, number);
}

/// A tensor as an operand in a dtype. A tensor without dimensions may have a wider one: it takes no
/// part in PyTorch's choice.
at::Tensor operand_tensor(OpFunc op, c10::ScalarType dtype, const at::Tensor& tensor) {
  const c10::ScalarType own = tensor.scalar_type();
  const bool whole = c10::isIntegralType(dtype, /*includeBool=*/true);
  if (own == dtype || whole != c10::isIntegralType(own, true)) return tensor;
  const bool fits = c10::promoteTypes(own, dtype) == dtype;
  return !fits && (whole || op_info(op).jumps) ? tensor.to(dtype) : tensor;
}

void launch(OpFunc op, const at::Tensor& out, std::initializer_list<at::Tensor> inputs,
            c10::ScalarType common, std::vector<double> constants) {
  const bool whole = c10::isIntegralType(common, /*includeBool=*/true);
  const bool exact = whole && op_info(op).int64;
  // An op that has no integers may take them, and give floats.
  const bool floats = op_info(op).fp32 && !(whole && out.scalar_type() == common);
  TORCH_CHECK_NOT_IMPLEMENTED(exact || floats, op_info(op).name, " is not implemented for ",
                              dtype_name(common));
  if (out.numel() == 0) {
    for (const at::Tensor& input : inputs)
      if (!is_number(input)) on_device(input, out.device());
    return;
  }
  at::assert_no_internal_overlap(out);
  const card::Compute compute = exact ? card::Compute::int64 : card::Compute::fp32;

  c10::SmallVector<at::Tensor, 5> tensors;
  Numbers numbers;
  for (const at::Tensor& input : inputs) {
    if (is_number(input)) {
      numbers.push_back(operand_number(op, common, input.item().toDouble()));
      continue;
    }
    numbers.push_back(std::nullopt);
    tensors.push_back(operand_tensor(op, common, on_device(input, out.device())));
    at::assert_no_partial_overlap(out, tensors.back());
  }
  tensors.push_back(out);
  Call call(tensors, op, compute, std::move(constants), std::move(numbers));
  call.run(build);
}

}  // namespace

void pointwise(OpFunc op, const at::Tensor& out, std::initializer_list<at::Tensor> inputs,
               c10::ScalarType common, std::vector<double> constants) {
  if (out.scalar_type() != at::kLong || !int64_must_fit())
    return launch(op, out, inputs, common, std::move(constants));
  const at::Tensor wide = at::empty(out.sizes(), out.options().dtype(at::kFloat));
  launch(op, wide, inputs, common, constants);
  launch(op, out, inputs, common, std::move(constants));
  check_int64_results(wide, out);
}

at::Tensor result_of(c10::ArrayRef<at::Tensor> inputs, c10::TensorOptions options,
                     const at::Tensor& out) {
  at::TensorIteratorConfig config;
  config.check_all_same_dtype(false).check_all_same_device(false).add_output(out);
  config.declare_static_dtype_and_device(c10::typeMetaToScalarType(options.dtype()),
                                         options.device());
  for (const at::Tensor& input : inputs) config.add_const_input(input);
  return config.build().output();
}

}  // namespace spyre::eager
