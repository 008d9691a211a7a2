// Optimizers with fused=True: Adam, AdamW and SGD update a whole list of parameters in one program,
// one pass over the memory of each. Numbers are fp32 on the way and are rounded where they are
// stored. Nothing waits for a result: steps, scales and overflows are read on the card.
#include <algorithm>
#include <cmath>

#include <ATen/ops/_foreach_add_native.h>
#include <ATen/ops/full.h>
#include <torch/library.h>

#include "program/eager_lines.h"

namespace spyre::eager {
namespace {

using at::Tensor;
using at::TensorList;
using OptionalTensor = std::optional<Tensor>;
using Value = card::Chain::Input;

Value constant(double value) { return {Value::kScalar, value}; }

/// How gradients are read. Operands of a program are the learning rate, the gradients' scale and
/// whether any overflowed, if these are given, and then those of one parameter after the other.
struct Gradients {
  static constexpr int kMembers = 3;
  bool maximize, scaled, guarded;

  std::int64_t first_parameter() const { return 1 + scaled + guarded; }
};

/// One parameter's update, as a chain of ops over its elements.
class Update {
 public:
  Update(Operands operands, const Gradients& gradients, std::int64_t parameter)
      : operands_(operands),
        gradients_(gradients),
        plan_(operands[parameter].sizes(), single_dim(-1, operands[parameter].dim())) {
    chain_.lines = plan_.lines;
    chain_.length = plan_.length;
    if (gradients.guarded) overflowed_ = load(1 + gradients.scaled);
  }

  /// A tensor of the parameter's size, or of one element that serves all of them.
  Value load(std::int64_t operand) {
    const Operand& tensor = operands_[operand];
    card::Chain::Tensor& source = chain_.tensors.emplace_back();
    source.operand = operand;
    source.format = tensor.format();
    if (tensor.dim() == 0) {
      source.has_lines = source.has_positions = false;
      source.loops = line_loops({}, tensor, {}, {});
    } else {
      source.loops = line_loops(tensor.sizes(), tensor, plan_.line, plan_.position);
    }
    card::Chain::Value& value = chain_.values.emplace_back();
    value.tensor = static_cast<std::int64_t>(chain_.tensors.size()) - 1;
    return last();
  }

  Value rate() { return load(0); }

  /// The gradient that counts; a scaled one is brought back in memory, too, as on other devices.
  Value gradient(std::int64_t operand) {
    const Value given = load(operand);
    Value gradient = given;
    if (gradients_.scaled) {
      gradient = op(OpFunc::realdiv, {given, load(1)});
      store(gradient, given);
    }
    return gradients_.maximize ? op(OpFunc::neg, {gradient}) : gradient;
  }

  Value op(OpFunc op, std::vector<Value> inputs, std::vector<double> constants = {}) {
    card::Chain::Value& value = chain_.values.emplace_back();
    value.kind = card::Chain::Kind::pointwise;
    value.op = op;
    value.inputs = std::move(inputs);
    value.constants = std::move(constants);
    return last();
  }

  /// Into the tensor that `old` was loaded from, unless gradients overflowed.
  void store(Value value, Value old) {
    if (overflowed_) value = op(OpFunc::where3, {*overflowed_, old, value});
    chain_.stores.push_back({value.value, chain_.values[old.value].tensor});
  }

  const card::Chain& chain() const { return chain_; }

 private:
  Value last() const { return {static_cast<std::int64_t>(chain_.values.size()) - 1, 0}; }

  Operands operands_;
  Gradients gradients_;
  LinePlan plan_;
  card::Chain chain_;
  std::optional<Value> overflowed_;
};

/// A number on the card, which a tensor of one element holds.
Tensor single(const char* name, const Tensor& tensor, c10::Device device) {
  TORCH_CHECK(tensor.numel() == 1, name, " must be a tensor of one number, got size ",
              tensor.sizes(), ".");
  return on_device(tensor.reshape({}), device);
}

/// The learning rate as a tensor: programs serve every one.
Tensor rate_tensor(double rate, TensorList parameters) {
  return at::full({}, rate, parameters[0].options().dtype(at::kFloat));
}
const Tensor& rate_tensor(const Tensor& rate, TensorList) { return rate; }

/// What a call updates: one of each list belongs to one parameter.
struct Lists {
  const char* name;
  TensorList parameters;
  std::vector<TensorList> states;  ///< of the parameters' sizes; the gradients first
  TensorList steps;                ///< may be empty

  void check() const {
    for (const TensorList list : states)
      TORCH_CHECK(list.size() == parameters.size(), name, ": expected lists of ", parameters.size(),
                  " tensors, got one of ", list.size(), ".");
    TORCH_CHECK(steps.empty() || steps.size() == parameters.size(), name, ": expected ",
                parameters.size(), " steps, got ", steps.size(), ".");
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const Tensor& parameter = parameters[i];
      TORCH_CHECK(parameter.is_floating_point(), name, ": expected floating-point parameters, got ",
                  parameter.scalar_type(), ".");
      for (const TensorList list : states)
        TORCH_CHECK(list[i].sizes() == parameter.sizes() && list[i].device() == parameter.device(),
                    name, ": a parameter of size ", parameter.sizes(), " on ", parameter.device(),
                    " has a gradient or state of size ", list[i].sizes(), " on ", list[i].device(),
                    ".");
    }
  }
};

template <class How>
void build_updates(card::ProgramBuilder& builder, Operands operands, const How& how,
                   const Gradients& gradients) {
  const auto count = static_cast<std::int64_t>(operands.size());
  for (std::int64_t first = gradients.first_parameter(); first < count; first += how.operands()) {
    Update update(operands, gradients, first);
    how.run(update, first);
    builder.chain(update.chain());
  }
}

/// Runs the update of all parameters, as many in one program as its operands allow.
template <class How>
void update_all(const Lists& lists, const How& how, bool maximize, const Tensor& rate,
                const OptionalTensor& grad_scale, const OptionalTensor& found_inf) {
  constexpr std::size_t kParameters = 128;  // a program has at most 1024 operands
  lists.check();
  const c10::Device device = lists.parameters[0].device();
  std::vector<Tensor> shared = {single("lr", rate, device)};
  const bool scaled = grad_scale && grad_scale->defined();
  const bool guarded = found_inf && found_inf->defined();
  if (scaled) shared.push_back(single("grad_scale", *grad_scale, device));
  if (guarded) shared.push_back(single("found_inf", *found_inf, device));
  const std::size_t count = lists.parameters.size();
  for (std::size_t begin = 0; begin < count; begin += kParameters) {
    std::vector<Tensor> operands = shared;
    for (std::size_t i = begin; i < std::min(begin + kParameters, count); ++i) {
      if (lists.parameters[i].numel() == 0) continue;
      operands.push_back(lists.parameters[i]);
      for (const TensorList list : lists.states) operands.push_back(list[i]);
      if (!lists.steps.empty()) operands.push_back(single("a step", lists.steps[i], device));
    }
    if (operands.size() == shared.size()) continue;
    Call<How, Gradients>(operands, how, Gradients{maximize, scaled, guarded})
        .run(build_updates<How>);
  }
}

// Adam

enum class Decay { gradient, parameter };

struct Adam {
  static constexpr int kMembers = 6;
  double beta1, beta2, weight_decay, epsilon;
  bool amsgrad;
  Decay decay;

  std::int64_t operands() const { return 5 + amsgrad; }
  void run(Update& update, std::int64_t first) const;
};

/// Operands from `first` on: parameter, gradient, mean, mean of squares, its largest if amsgrad,
/// step.
void Adam::run(Update& update, std::int64_t first) const {
  using enum OpFunc;
  const Value lr = update.rate(), old = update.load(first);
  const Value old_mean = update.load(first + 2), old_square = update.load(first + 3);
  const Value step = update.load(first + 4 + amsgrad);
  Value parameter = old, gradient = update.gradient(first + 1);
  if (weight_decay != 0 && decay == Decay::gradient)
    gradient = update.op(axpy, {gradient, parameter}, {weight_decay});
  if (weight_decay != 0 && decay == Decay::parameter) {
    const Value share = update.op(mul, {lr, constant(weight_decay)});
    parameter = update.op(sub, {parameter, update.op(mul, {share, parameter})});
  }
  const Value new_mean = update.op(lerp, {old_mean, gradient, constant(1 - beta1)});
  const Value kept = update.op(mul, {old_square, constant(beta2)});
  const Value new_square = update.op(addcmul, {kept, gradient, gradient}, {1 - beta2});
  Value largest = new_square;
  if (amsgrad) {
    const Value before = update.load(first + 4);
    largest = update.op(maximum, {before, new_square});
    update.store(largest, before);
  }
  // 1 - beta**step, which loses nothing where beta is close to 1.
  const auto correction = [&](double beta) {
    const Value power = update.op(mul, {step, constant(std::log(beta))});
    return update.op(neg, {update.op(expm1, {power})});
  };
  const Value size = update.op(realdiv, {lr, correction(beta1)});
  const Value root = update.op(sqrt, {correction(beta2)});
  const Value scaled = update.op(realdiv, {update.op(sqrt, {largest}), root});
  const Value denominator = update.op(add, {scaled, constant(epsilon)});
  const Value change = update.op(realdiv, {update.op(mul, {size, new_mean}), denominator});
  update.store(update.op(sub, {parameter, change}), old);
  update.store(new_mean, old_mean);
  update.store(new_square, old_square);
}

/// `Rate` is a number or a tensor.
template <Decay decay, class Rate>
void fused_adam(TensorList parameters, TensorList gradients, TensorList means, TensorList squares,
                TensorList largest, TensorList steps, Rate rate, double beta1, double beta2,
                double weight_decay, double epsilon, bool amsgrad, bool maximize,
                const OptionalTensor& grad_scale, const OptionalTensor& found_inf) {
  if (parameters.empty()) return;
  Lists lists{decay == Decay::gradient ? "_fused_adam_" : "_fused_adamw_",
              parameters,
              {gradients, means, squares},
              steps};
  if (amsgrad) lists.states.push_back(largest);
  update_all<Adam>(lists, {beta1, beta2, weight_decay, epsilon, amsgrad, decay}, maximize,
                   rate_tensor(rate, parameters), grad_scale, found_inf);
}

// SGD

struct Sgd {
  static constexpr int kMembers = 5;
  double weight_decay, momentum, dampening;
  bool nesterov, first_step;

  std::int64_t operands() const { return momentum == 0 ? 2 : 3; }
  void run(Update& update, std::int64_t first) const;
};

/// Operands from `first` on: parameter, gradient, velocity if there is a momentum.
void Sgd::run(Update& update, std::int64_t first) const {
  using enum OpFunc;
  const Value lr = update.rate(), old = update.load(first);
  Value gradient = update.gradient(first + 1);
  if (weight_decay != 0) gradient = update.op(axpy, {gradient, old}, {weight_decay});
  if (momentum != 0) {
    const Value before = update.load(first + 2);
    const Value kept = update.op(mul, {before, constant(momentum)});
    const Value velocity =
        first_step ? gradient : update.op(axpy, {kept, gradient}, {1 - dampening});
    update.store(velocity, before);
    gradient = nesterov ? update.op(axpy, {gradient, velocity}, {momentum}) : velocity;
  }
  update.store(update.op(sub, {old, update.op(mul, {lr, gradient})}), old);
}

template <class Rate>
void fused_sgd(TensorList parameters, TensorList gradients, TensorList velocities,
               double weight_decay, double momentum, Rate rate, double dampening, bool nesterov,
               bool maximize, bool first_step, const OptionalTensor& grad_scale,
               const OptionalTensor& found_inf) {
  if (parameters.empty()) return;
  Lists lists{"_fused_sgd_", parameters, {gradients}, {}};
  if (momentum != 0) lists.states.push_back(velocities);
  update_all<Sgd>(lists, {weight_decay, momentum, dampening, nesterov, first_step}, maximize,
                  rate_tensor(rate, parameters), grad_scale, found_inf);
}

// Counting steps

void build_sums(card::ProgramBuilder& builder, Operands operands, const double& number) {
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const auto operand = static_cast<std::int64_t>(i);
    Update update(operands, Gradients{}, operand);
    const Value old = update.load(operand);
    update.store(update.op(OpFunc::add, {old, constant(number)}), old);
    builder.chain(update.chain());
  }
}

/// Every fused step begins by adding 1 to the steps of all parameters, which are small: one program
/// for them, too. PyTorch's own way adds to one after the other.
void add_number(TensorList self, const at::Scalar& number) {
  constexpr std::size_t kTensors = 512;
  const bool few = self.size() > 1 && self.size() <= kTensors && !number.isComplex() &&
                   std::all_of(self.begin(), self.end(), [&](const Tensor& tensor) {
                     return tensor.scalar_type() == at::kFloat && tensor.numel() == 1 &&
                            tensor.device() == self[0].device();
                   });
  if (!few) return at::native::foreach_tensor_add_scalar_kernel_slow_(self, number);
  Call<double>(self, number.toDouble()).run(build_sums);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_foreach_add_.Scalar", add_number);
  m.impl("_fused_adam_", fused_adam<Decay::gradient, double>);
  m.impl("_fused_adam_.tensor_lr", fused_adam<Decay::gradient, const Tensor&>);
  m.impl("_fused_adamw_", fused_adam<Decay::parameter, double>);
  m.impl("_fused_adamw_.tensor_lr", fused_adam<Decay::parameter, const Tensor&>);
  m.impl("_fused_sgd_", fused_sgd<double>);
  m.impl("_fused_sgd_.tensor_lr", fused_sgd<const Tensor&>);
}

}  // namespace spyre::eager
