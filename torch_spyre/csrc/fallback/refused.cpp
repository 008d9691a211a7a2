// Ops that say no: what they promise would not happen on the card, nor in a fallback.
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

namespace spyre {
namespace {

/// One kernel that updates all parameters on the CPU would only look fused.
void refuse_fused(const c10::OperatorHandle& op, torch::jit::Stack*) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      false, c10::toString(op.operator_name()),
      ": Adagrad has no fused kernel for spyre; Adam, AdamW and SGD have. Leave fused=True out: "
      "the default updates the parameters on the card, too.");
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  for (const char* name : {"_fused_adagrad_", "_fused_adagrad_.tensor_lr"})
    library.impl(name, torch::CppFunction::makeFromBoxedFunction<&refuse_fused>());
}

}  // namespace spyre
