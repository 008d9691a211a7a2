// Row operations: softmax and norms, with their gradients. One program each, in fp32, in one pass
// over device memory.
#include <array>
#include <limits>

#include <ATen/ops/_log_softmax_backward_data_meta.h>
#include <ATen/ops/_log_softmax_meta.h>
#include <ATen/ops/_softmax_backward_data_meta.h>
#include <ATen/ops/_softmax_meta.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/sum.h>
#include <torch/library.h>

#include "ops/memory/spyre_copy.h"
#include "program/eager_lines.h"
#include "tensor/eager_structured.h"
#include "tensor/eager_variants.h"

namespace spyre::eager {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

// Softmax

/// The last operand is the output.
void build_softmax(card::ProgramBuilder& builder, Operands operands, const OpFunc& op,
                   const DimSet& along) {
  const LinePlan plan(operands.back().sizes(), along);
  card::Rows step;
  step.op = op;
  for (std::size_t i = 0; i + 1 < operands.size(); ++i)
    step.inputs.push_back(line_tensor(static_cast<std::int64_t>(i), operands[i], plan));
  step.outputs = {
      line_tensor(static_cast<std::int64_t>(operands.size()) - 1, operands.back(), plan)};
  step.rows = plan.lines;
  step.row_length = plan.length;
  builder.rows(step);
}

/// Inputs and output have one size; lines run along `dim`.
void softmax_rows(OpFunc op, c10::ArrayRef<Tensor> inputs, std::int64_t dim, const Tensor& out) {
  check_floating(op_info(op).name, inputs[0]);
  if (out.numel() == 0) return;
  c10::SmallVector<Tensor, 3> operands(inputs.begin(), inputs.end());
  operands.push_back(out);
  Call(operands, op, single_dim(dim, out.dim())).run(build_softmax);
}

template <class Meta, OpFunc op>
Tensor& softmax(const Tensor& self, std::int64_t dim, bool half_to_float, Tensor& out) {
  shape_outputs<Meta>(out, self, dim, half_to_float);
  softmax_rows(op, self, dim, out);
  return out;
}

template <class Meta, OpFunc op>
Tensor& softmax_backward(const Tensor& gradient, const Tensor& output, std::int64_t dim,
                         at::ScalarType input_dtype, Tensor& out) {
  shape_outputs<Meta>(out, gradient, output, dim, input_dtype);
  on_device(output, gradient.device());
  softmax_rows(op, {gradient, output}, dim, out);
  return out;
}

// Norms

/// What a norm goes over: the last dimensions, which have the normalized shape.
struct Norm {
  DimSet along;
  at::DimVector stat_size;  ///< one element a row
  at::DimVector rows_size;  ///< the dimensions before
};

Norm norm_of(const char* name, const Tensor& input, at::IntArrayRef shape, const Tensor& weight,
             const Tensor& bias) {
  TORCH_CHECK(!shape.empty(),
              "Expected normalized_shape to be at least 1-dimensional, i.e., containing at least "
              "one element, but got normalized_shape = ",
              shape);
  TORCH_CHECK(!weight.defined() || weight.sizes() == shape,
              "Expected weight to be of same shape as normalized_shape, but got weight of shape ",
              weight.defined() ? weight.sizes() : shape, " and normalized_shape = ", shape);
  TORCH_CHECK(!bias.defined() || bias.sizes() == shape,
              "Expected bias to be of same shape as normalized_shape, but got bias of shape ",
              bias.defined() ? bias.sizes() : shape, " and normalized_shape = ", shape);
  const auto rank = static_cast<std::size_t>(input.dim());
  TORCH_CHECK(rank >= shape.size() && input.sizes().slice(rank - shape.size()) == shape,
              "Given normalized_shape=", shape, ", expected input with shape [*, ",
              c10::Join(", ", shape), "], but got input of size ", input.sizes());
  check_floating(name, input);
  Norm norm;
  for (std::size_t d = 0; d < rank; ++d) {
    const bool row = d < rank - shape.size();
    if (row) norm.rows_size.push_back(input.size(d));
    norm.stat_size.push_back(row ? input.size(d) : 1);
    if (!row) norm.along.set(d);
  }
  return norm;
}

/// Collects the operands of a row operation; absent tensors keep their place.
class RowsProgram {
 public:
  RowsProgram(OpFunc op, const Tensor& sample, DimSet along, std::optional<double> epsilon)
      : op_(op), size_(sample.sizes()), along_(along), epsilon_(epsilon) {}

  enum class Role { elements, weights, row_values };

  RowsProgram& input(const Tensor& tensor, Role role = Role::elements) {
    return add(inputs_, tensor, role);
  }
  RowsProgram& output(const Tensor& tensor, Role role = Role::elements) {
    return add(outputs_, tensor, role);
  }

  void run() { Call(operands_, op_, size_, along_, epsilon_, inputs_, outputs_).run(build); }

 private:
  struct Slot {
    static constexpr int kMembers = 2;

    std::int64_t operand;  ///< -1: absent
    Role role;
  };
  using Slots = c10::SmallVector<Slot, 5>;

  RowsProgram& add(Slots& slots, const Tensor& tensor, Role role) {
    if (!tensor.defined()) {
      slots.push_back({-1, role});
      return *this;
    }
    slots.push_back({static_cast<std::int64_t>(operands_.size()), role});
    operands_.push_back(tensor);
    return *this;
  }

  static card::LineTensor lines(Operands operands, const Slot& slot, const LinePlan& plan) {
    if (slot.operand < 0) return {};
    const Operand& tensor = operands[slot.operand];
    if (slot.role == Role::elements) return line_tensor(slot.operand, tensor, plan);
    const LinePlan own(tensor.sizes(), slot.role == Role::weights ? ~DimSet() : DimSet());
    return line_tensor(slot.operand, tensor, own);
  }

  static void build(card::ProgramBuilder& builder, Operands operands, const OpFunc& op,
                    const at::IntArrayRef& size, const DimSet& along,
                    const std::optional<double>& epsilon, const Slots& inputs,
                    const Slots& outputs) {
    const LinePlan plan(size, along);
    card::Rows step;
    step.op = op;
    for (const Slot& slot : inputs) step.inputs.push_back(lines(operands, slot, plan));
    for (const Slot& slot : outputs) step.outputs.push_back(lines(operands, slot, plan));
    if (epsilon) step.constants = {*epsilon};
    step.rows = plan.lines;
    step.row_length = plan.length;
    builder.rows(step);
  }

  OpFunc op_;
  at::IntArrayRef size_;
  DimSet along_;
  std::optional<double> epsilon_;
  Slots inputs_, outputs_;
  c10::SmallVector<Tensor, 6> operands_;
};

using Role = RowsProgram::Role;

std::tuple<Tensor, Tensor, Tensor> layer_norm(const Tensor& input, at::IntArrayRef shape,
                                              const OptionalTensor& weight_given,
                                              const OptionalTensor& bias_given, double epsilon) {
  const Tensor weight = parameter(weight_given, input), bias = parameter(bias_given, input);
  const Norm norm = norm_of("native_layer_norm", input, shape, weight, bias);
  const auto stats = input.options().dtype(at::kFloat);
  Tensor output = at::empty(input.sizes(), input.options());
  Tensor mean = at::empty(norm.stat_size, stats), scale = at::empty(norm.stat_size, stats);
  if (input.numel() > 0) {
    RowsProgram(OpFunc::layernorm, input, norm.along, epsilon)
        .input(input)
        .input(weight, Role::weights)
        .input(bias, Role::weights)
        .output(output)
        .output(mean, Role::row_values)
        .output(scale, Role::row_values)
        .run();
  } else if (mean.numel() > 0) {  // rows of no elements
    spyre::fill(mean, 0);
    spyre::fill(scale, std::numeric_limits<double>::quiet_NaN());
  }
  return {output, mean, scale};
}

/// The sum over all rows, in the weight's dtype.
Tensor sum_of_rows(const Tensor& terms, std::int64_t rows_rank, const Tensor& like) {
  c10::SmallVector<std::int64_t, 6> dims;
  for (std::int64_t d = 0; d < rows_rank; ++d) dims.push_back(d);
  if (dims.empty()) return terms.to(like.scalar_type());
  return at::sum(terms, dims, false, like.scalar_type());
}

/// Operands: x, scale, gradient, the product, and the mean if there is one.
void build_normalized_times(card::ProgramBuilder& builder, Operands operands) {
  const StepInput number, centre = operands.size() > 4 ? StepInput{4} : number;
  add_pointwise(builder, operands, OpFunc::layernormnorm, {{0}, centre, {1}, {2}, number}, 3);
}

/// (x - mean) * scale * gradient in fp32, with 0 for a mean that is undefined.
Tensor normalized_times(const Tensor& x, const Tensor& mean, const Tensor& scale,
                        const Tensor& gradient) {
  Tensor product = at::empty(x.sizes(), x.options().dtype(at::kFloat));
  if (product.numel() == 0) return product;
  c10::SmallVector<Tensor, 5> operands = {x, scale, gradient, product};
  if (mean.defined()) operands.push_back(mean);
  Call<>(operands).run(build_normalized_times);
  return product;
}

std::tuple<Tensor, Tensor, Tensor> layer_norm_backward(const Tensor& gradient, const Tensor& input,
                                                       at::IntArrayRef shape, const Tensor& mean,
                                                       const Tensor& scale,
                                                       const OptionalTensor& weight_given,
                                                       const OptionalTensor& bias_given,
                                                       std::array<bool, 3> wanted) {
  const Tensor weight = parameter(weight_given, input), bias = parameter(bias_given, input);
  const Norm norm = norm_of("native_layer_norm_backward", input, shape, weight, bias);
  const auto rows_rank = static_cast<std::int64_t>(norm.rows_size.size());
  Tensor input_gradient, weight_gradient, bias_gradient;
  if (wanted[0]) {
    input_gradient = at::empty(input.sizes(), input.options());
    if (input.numel() > 0)
      RowsProgram(OpFunc::layernormbwd, input, norm.along, {})
          .input(gradient)
          .input(input)
          .input(mean, Role::row_values)
          .input(scale, Role::row_values)
          .input(weight, Role::weights)
          .output(input_gradient)
          .run();
  }
  if (wanted[1] && weight.defined())
    weight_gradient =
        sum_of_rows(normalized_times(input, mean, scale, gradient), rows_rank, weight);
  if (wanted[2] && bias.defined()) bias_gradient = sum_of_rows(gradient, rows_rank, bias);
  return {input_gradient, weight_gradient, bias_gradient};
}

std::tuple<Tensor, Tensor> rms_norm(const Tensor& input, at::IntArrayRef shape,
                                    const OptionalTensor& weight_given,
                                    std::optional<double> epsilon) {
  const Tensor weight = parameter(weight_given, input);
  const Norm norm = norm_of("_fused_rms_norm", input, shape, weight, {});
  Tensor output = at::empty(input.sizes(), input.options());
  Tensor scale = at::empty(norm.stat_size, input.options().dtype(at::kFloat));
  if (input.numel() > 0) {
    RowsProgram(OpFunc::rmsnorm, input, norm.along,
                epsilon.value_or(std::numeric_limits<float>::epsilon()))
        .input(input)
        .input(weight, Role::weights)
        .output(output)
        .output(scale, Role::row_values)
        .run();
  } else if (scale.numel() > 0) {
    spyre::fill(scale, std::numeric_limits<double>::quiet_NaN());
  }
  return {output, scale};
}

/// With n = x * scale: scale * (w g - n * mean(w g n)) for x, the sum of g n over rows for w.
std::tuple<Tensor, Tensor> rms_norm_backward(const Tensor& gradient, const Tensor& input,
                                             at::IntArrayRef shape, const Tensor& scale,
                                             const OptionalTensor& weight_given,
                                             std::array<bool, 2> wanted) {
  const Tensor weight = parameter(weight_given, input);
  const Norm norm = norm_of("_fused_rms_norm_backward", input, shape, weight, {});
  const auto rows_rank = static_cast<std::int64_t>(norm.rows_size.size());
  Tensor input_gradient, weight_gradient;
  const Tensor product = normalized_times(input, {}, scale, gradient);  // g n
  if (wanted[0]) {
    c10::SmallVector<std::int64_t, 6> dims;
    for (std::int64_t d = rows_rank; d < input.dim(); ++d) dims.push_back(d);
    const Tensor wide = gradient.to(at::kFloat);
    const Tensor weighted = weight.defined() ? at::mul(wide, weight) : wide;
    const Tensor part = at::mean(weight.defined() ? at::mul(product, weight) : product, dims, true);
    const Tensor normal = at::mul(input.to(at::kFloat), scale);
    input_gradient =
        at::mul(at::sub(weighted, at::mul(normal, part)), scale).to(input.scalar_type());
  }
  if (wanted[1] && weight.defined()) weight_gradient = sum_of_rows(product, rows_rank, weight);
  return {input_gradient, weight_gradient};
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  namespace meta = at::meta;
  implement<softmax<meta::structured__softmax, OpFunc::softmax>>(m, "_softmax", "_softmax.out");
  implement<softmax<meta::structured__log_softmax, OpFunc::logsoftmax>>(m, "_log_softmax",
                                                                        "_log_softmax.out");
  m.impl("_softmax_backward_data.out",
         softmax_backward<meta::structured__softmax_backward_data, OpFunc::softmaxbwd>);
  m.impl("_log_softmax_backward_data.out",
         softmax_backward<meta::structured__log_softmax_backward_data, OpFunc::logsoftmaxbwd>);
  m.impl("native_layer_norm", layer_norm);
  m.impl("native_layer_norm_backward", layer_norm_backward);
  m.impl("_fused_rms_norm", rms_norm);
  m.impl("_fused_rms_norm_backward", rms_norm_backward);
}

}  // namespace spyre::eager
