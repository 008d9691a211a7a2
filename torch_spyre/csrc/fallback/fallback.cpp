// The long tail: an op without a kernel for the card runs on the CPU. Inputs come to the host,
// results go back; mutation and out= are kept, and the device's generator is the one that is drawn
// from. Never silent: each op is counted, and the first time Python is told.
#include "fallback/fallback.h"

#include <algorithm>
#include <mutex>

#include <ATen/MemoryOverlap.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/ops/linalg_pinv.h>
#include <ATen/ops/scalar_tensor.h>
#include <pybind11/pybind11.h>
#include <torch/library.h>

#include "ops/random/spyre_generator.h"
#include "runtime/checks.h"
#include "runtime/fork_safe_mutex.h"
#include "runtime/spyre_environment.h"
#include "runtime/spyre_stream.h"

namespace spyre::fallback {
namespace {

struct Record {
  ForkSafeMutex mutex;
  std::map<std::string, std::uint64_t> counts;
  pybind11::object hook;  // guarded by the GIL
  Mode mode = Mode::warn;
};

/// Leaked: the hook is a Python object, and the interpreter is gone before static destructors run.
Record& record() {
  static Record& instance = *[] {
    auto* fresh = new Record;
    fresh->mode = environment_choice(knobs::kFallback) == 1 ? Mode::error : Mode::warn;
    return fresh;
  }();
  return instance;
}

/// All tensors that are among the arguments.
std::vector<at::Tensor> tensors_of(c10::ArrayRef<c10::IValue> arguments) {
  std::vector<at::Tensor> found;
  for (const c10::IValue& argument : arguments) {
    if (argument.isTensor()) {
      found.push_back(argument.toTensor());
    } else if (argument.isTensorList()) {
      for (const at::Tensor& tensor : argument.toTensorVector()) found.push_back(tensor);
    }
  }
  std::erase_if(found, [](const at::Tensor& tensor) { return !tensor.defined(); });
  return found;
}

/// Puts others in the place of the tensors of a value.
template <class Change>
void change_tensors(c10::IValue& value, const Change& change) {
  if (value.isTensor()) {
    value = change(value.toTensor());
  } else if (value.isTensorList()) {
    std::vector<at::Tensor> tensors = value.toTensorVector();
    for (at::Tensor& tensor : tensors) tensor = change(tensor);
    value = std::move(tensors);
  }
}

bool is_written(const c10::Argument& argument) {
  return argument.alias_info() && argument.alias_info()->isWrite();
}

/// The device an op runs on, by its arguments.
c10::Device device_of(c10::ArrayRef<c10::IValue> arguments) {
  for (const at::Tensor& tensor : tensors_of(arguments))
    if (tensor.is_privateuseone()) return tensor.device();
  for (const c10::IValue& argument : arguments)
    if (argument.isDevice()) return argument.toDevice();
  return c10::Device(c10::DeviceType::PrivateUse1);
}

/// An op that computes with numbers of the host and of a card is a mistake, on which a detour to
/// the CPU would put a result that is on neither's device. Single numbers may come from anywhere,
/// and whole ones are mostly lengths or places, which some ops want on the host.
void check_one_device(const std::string& name, const c10::FunctionSchema& schema,
                      c10::ArrayRef<c10::IValue> arguments) {
  const at::Tensor *host = nullptr, *card = nullptr;
  const std::vector<at::Tensor> tensors = tensors_of(arguments);
  const auto on_card = std::find_if(tensors.begin(), tensors.end(),
                                    [](const at::Tensor& t) { return t.is_privateuseone(); });
  for (std::size_t i = 0; i < arguments.size() && on_card != tensors.end(); ++i) {
    if (!is_written(schema.arguments()[i])) continue;
    for (const at::Tensor& written : tensors_of(arguments.slice(i, 1)))
      TORCH_CHECK(written.device() == on_card->device(),
                  "Expected all tensors to be on the same device, but found at least two devices, ",
                  on_card->device(), " and ", written.device(), ", in ", name, ": give it a '",
                  schema.arguments()[i].name(), "' on ", on_card->device(), ".");
  }
  for (const at::Tensor& tensor : tensors) {
    if (tensor.dim() == 0 || !c10::isFloatingType(tensor.scalar_type())) continue;
    (tensor.is_cpu() ? host : card) = &tensor;
  }
  TORCH_CHECK(!host || !card, "Expected all tensors to be on the same device, but found at least ",
              "two devices, ", card->device(), " and cpu, in ", name, ": a tensor of ",
              host->sizes(), " is on the CPU. Move it with .to(\"", card->device(), "\").");
}

/// The CPU gets copies, and would not see that an op is to write what it also reads.
void check_apart(const c10::FunctionSchema& schema, c10::ArrayRef<c10::IValue> arguments) {
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (!is_written(schema.arguments()[i]) || !arguments[i].isTensor()) continue;
    const at::Tensor& written = arguments[i].toTensor();
    if (!written.is_privateuseone()) continue;
    for (std::size_t j = 0; j < arguments.size(); ++j)
      if (j != i && arguments[j].isTensor() && arguments[j].toTensor().is_privateuseone())
        at::assert_no_partial_overlap(written, arguments[j].toTensor());
  }
}

/// Puts the CPU generator behind the device's in its place among the arguments. Hold what is
/// returned while numbers are drawn.
std::unique_lock<std::mutex> lend_generator(const c10::FunctionSchema& schema,
                                            torch::jit::Stack& stack) {
  const std::size_t count = schema.arguments().size();
  const auto first = stack.end() - static_cast<std::ptrdiff_t>(count);
  for (std::size_t i = 0; i < count; ++i) {
    if (schema.arguments()[i].name() != "generator") continue;
    c10::IValue& argument = first[static_cast<std::ptrdiff_t>(i)];
    const c10::Device device = device_of(c10::ArrayRef(&*first, count));
    at::Generator source =
        argument.isGenerator() ? argument.toGenerator() : default_generator(device.index());
    TORCH_CHECK(source.device().type() == c10::DeviceType::PrivateUse1, "Expected a '",
                device.type(), "' generator but found one of '", source.device(), "'");
    std::unique_lock lock(source.mutex());
    argument = source.get<SpyreGeneratorImpl>()->host();
    return lock;
  }
  return {};
}

/// As long as it lives, an op with `out=` is not checked: PyTorch's fallback brings that to the
/// host as well, where nobody need have written to it.
class Unchecked {
 public:
  Unchecked(const c10::FunctionSchema& schema, c10::ArrayRef<c10::IValue> arguments) {
    const auto is_out = [](const c10::Argument& argument) {
      return argument.kwarg_only() && is_written(argument);
    };
    if (!checks::anywhere || std::ranges::none_of(schema.arguments(), is_out)) return;
    const c10::Stream stream = streams::current(device_of(arguments).index());
    if (checks::set(stream, false)) stream_ = stream;
  }
  ~Unchecked() {
    if (stream_) checks::set(*stream_, true);
  }
  Unchecked(const Unchecked&) = delete;
  Unchecked& operator=(const Unchecked&) = delete;

 private:
  std::optional<c10::Stream> stream_;
};

bool is_narrow(const at::Tensor& tensor) {
  return tensor.defined() && c10::isReducedFloatingType(tensor.scalar_type());
}

/// The 16-bit floating dtype among the arguments.
std::optional<c10::ScalarType> narrow_dtype(c10::ArrayRef<c10::IValue> arguments) {
  for (const at::Tensor& tensor : tensors_of(arguments))
    if (is_narrow(tensor)) return tensor.scalar_type();
  return std::nullopt;
}

/// Runs an op for which the CPU has no 16-bit kernel with float32 in place of 16-bit tensors.
void run_wide(const c10::OperatorHandle& op, torch::jit::Stack* stack,
              c10::ArrayRef<c10::IValue> arguments, c10::ScalarType narrow) {
  const auto widened = [](const at::Tensor& tensor) {
    return is_narrow(tensor) ? tensor.to(c10::kFloat) : tensor;
  };
  std::vector<c10::IValue> wide(arguments.begin(), arguments.end());
  for (c10::IValue& argument : wide) {
    change_tensors(argument, widened);
    stack->push_back(argument);
  }
  at::native::cpu_fallback(op, stack);

  // What was written to: the caller's tensors get the values, and are what is returned.
  const auto own = [&](const at::Tensor& result) {
    for (std::size_t i = 0; i < wide.size(); ++i)
      if (wide[i].isTensor() && result.is_same(wide[i].toTensor())) return arguments[i].toTensor();
    return result.defined() && result.scalar_type() == c10::kFloat ? result.to(narrow) : result;
  };
  for (std::size_t i = 0; i < wide.size(); ++i) {
    if (!is_written(op.schema().arguments()[i]) || !wide[i].isTensor()) continue;
    const at::Tensor& target = arguments[i].toTensor();
    if (!is_narrow(target)) continue;
    if (target.sizes() != wide[i].toTensor().sizes()) target.resize_(wide[i].toTensor().sizes());
    target.copy_(wide[i].toTensor());
  }
  const auto first = stack->end() - static_cast<std::ptrdiff_t>(op.schema().returns().size());
  for (auto result = first; result != stack->end(); ++result) change_tensors(*result, own);
}

void run_on_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const std::string name = c10::toString(op.operator_name());
  if (op.operator_name().name.find("copy") == std::string::npos)
    check_one_device(name, op.schema(), torch::jit::last(*stack, op.schema().arguments().size()));
  Record& shared = record();
  bool first = false;
  {
    const std::lock_guard lock(shared.mutex);
    TORCH_CHECK_NOT_IMPLEMENTED(shared.mode != Mode::error, name,
                                " has no kernel for spyre, and falling back to the CPU is refused "
                                "(TORCH_SPYRE_FALLBACK=error). Move the inputs to the CPU "
                                "yourself, or allow fallbacks with TORCH_SPYRE_FALLBACK=warn.");
    first = shared.counts[name]++ == 0;
  }
  if (first) {
    const pybind11::gil_scoped_acquire gil;
    if (shared.hook) shared.hook(name);
  }
  const auto lock = lend_generator(op.schema(), *stack);
  const auto arguments = torch::jit::last(*stack, op.schema().arguments().size()).vec();
  const std::size_t below = stack->size() - arguments.size();
  check_apart(op.schema(), arguments);
  const Unchecked unchecked(op.schema(), arguments);
  try {
    at::native::cpu_fallback(op, stack);
  } catch (const c10::NotImplementedError&) {
    const std::optional<c10::ScalarType> narrow = narrow_dtype(arguments);
    if (!narrow) throw;
    stack->resize(below);
    run_wide(op, stack, arguments, *narrow);
  }
}

/// PyTorch's own makes float64 tensors of the bounds, which the card has not.
at::Tensor pinv(const at::Tensor& self, std::optional<double> atol, std::optional<double> rtol,
                bool hermitian) {
  const auto bound = [&](std::optional<double> value) {
    return value ? std::optional(at::scalar_tensor(*value, self.options().dtype(c10::kFloat)))
                 : std::nullopt;
  };
  return at::linalg_pinv(self, bound(atol), bound(rtol), hermitian);
}

}  // namespace

void set_hook(const pybind11::object& hook) { record().hook = hook; }

std::map<std::string, std::uint64_t> counts() {
  const std::lock_guard lock(record().mutex);
  return record().counts;
}

void reset_counts() {
  const std::lock_guard lock(record().mutex);
  record().counts.clear();
}

void set_mode(Mode mode) {
  const std::lock_guard lock(record().mutex);
  record().mode = mode;
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&run_on_cpu>());
}

// PyTorch has kernels of these for every device, which then refuse ours or use float64.
TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  for (const char* name :
       {"linalg_pinv.atol_rtol_tensor", "linalg_matrix_rank", "linalg_matrix_rank.out",
        "linalg_matrix_rank.tol_tensor", "linalg_matrix_rank.out_tol_tensor",
        "linalg_matrix_rank.atol_rtol_tensor", "linalg_matrix_rank.atol_rtol_tensor_out",
        "linalg_matrix_rank.atol_rtol_float", "linalg_matrix_rank.atol_rtol_float_out"})
    library.impl(name, torch::CppFunction::makeFromBoxedFunction<&run_on_cpu>());
  library.impl("linalg_pinv.atol_rtol_float", &pinv);
}
TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse1, library) {
  library.impl("linalg_pinv.atol_rtol_float", &pinv);
}

}  // namespace spyre::fallback
