// The long tail: an op without a kernel for the card runs on the CPU. Inputs come to the host,
// results go back; mutation and out= are kept. Never silent: each op is counted, and the first time
// Python is told.
#include "fallback.h"

#include <mutex>

#include <ATen/native/CPUFallback.h>
#include <pybind11/pybind11.h>
#include <torch/library.h>

#include "spyre_environment.h"

namespace spyre::fallback {
namespace {

struct Record {
  std::mutex mutex;
  std::map<std::string, std::uint64_t> counts;
  pybind11::object hook;  // guarded by the GIL
  Mode mode = Mode::warn;
};

/// Leaked: the hook is a Python object, and the interpreter is gone before static destructors run.
Record& record() {
  static Record& instance = *[] {
    auto* fresh = new Record;
    const std::string text = environment_text("TORCH_SPYRE_FALLBACK").value_or("warn");
    TORCH_CHECK_VALUE(text == "warn" || text == "error",
                      "environment variable "
                      "TORCH_SPYRE_FALLBACK='",
                      text, "': expected warn or error.");
    fresh->mode = text == "error" ? Mode::error : Mode::warn;
    return fresh;
  }();
  return instance;
}

void run_on_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const std::string name = c10::toString(op.operator_name());
  Record& shared = record();
  bool first = false;
  {
    const std::lock_guard lock(shared.mutex);
    TORCH_CHECK_NOT_IMPLEMENTED(
        shared.mode != Mode::error, name,
        " has no kernel for spyre, and falling back to the CPU is "
        "refused (TORCH_SPYRE_FALLBACK=error). Move the inputs to the CPU yourself, or allow "
        "fallbacks with TORCH_SPYRE_FALLBACK=warn.");
    first = shared.counts[name]++ == 0;
  }
  if (first) {
    const pybind11::gil_scoped_acquire gil;
    if (shared.hook) shared.hook(name);
  }
  at::native::cpu_fallback(op, stack);
}

/// One kernel that updates all parameters on the CPU would only look fused.
void refuse_fused(const c10::OperatorHandle& op, torch::jit::Stack*) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      false, c10::toString(op.operator_name()),
      ": there are no fused optimizers for spyre. Leave fused=True out: the default updates the "
      "parameters on the card, too.");
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

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  for (const char* name :
       {"_fused_adam_", "_fused_adam_.tensor_lr", "_fused_adamw_", "_fused_adamw_.tensor_lr",
        "_fused_sgd_", "_fused_sgd_.tensor_lr", "_fused_adagrad_", "_fused_adagrad_.tensor_lr"})
    library.impl(name, torch::CppFunction::makeFromBoxedFunction<&refuse_fused>());
}

}  // namespace spyre::fallback
