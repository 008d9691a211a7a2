// Cells of recurrent networks. PyTorch gives the gates' products to one op a step; it is pointwise,
// computed in float32 and rounded once. What the gradient needs is kept in float32 as well.
#include <ATen/core/Tensor.h>
#include <ATen/ops/add.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/rsub.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/sigmoid_backward.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/tanh_backward.h>
#include <ATen/ops/zeros_like.h>
#include <torch/library.h>

#include "program/eager_plan.h"

namespace spyre::eager {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

Tensor wide(const Tensor& tensor) { return tensor.to(at::kFloat); }

/// gates + bias, in fp32.
Tensor biased(const Tensor& gates, const OptionalTensor& bias) {
  const Tensor sum = wide(gates);
  return bias && bias->defined() ? at::add(sum, *bias) : sum;
}

void check_gates(const char* op, const Tensor& gates, const Tensor& hidden_gates,
                 const Tensor& state, std::int64_t count) {
  on_device(hidden_gates, gates.device());
  on_device(state, gates.device());
  TORCH_CHECK(gates.dim() == 2 && gates.sizes() == hidden_gates.sizes() && state.dim() == 2 &&
                  gates.size(0) == state.size(0) && gates.size(1) == count * state.size(1),
              op, ": expected gates of size [batch, ", count, " * hidden] for a state of size ",
              state.sizes(), ", got ", gates.sizes(), " and ", hidden_gates.sizes(), ".");
}

/// The k-th of the gates.
Tensor gate(const Tensor& gates, std::int64_t k, std::int64_t count) {
  const std::int64_t size = gates.size(1) / count;
  return gates.narrow(1, k * size, size);
}

Tensor sum_of_batch(const Tensor& terms, bool wanted, c10::ScalarType dtype) {
  return wanted ? at::sum(terms, {0}, false, dtype) : Tensor();
}

/// Gates: input, forget, cell, output. The workspace has them after their functions.
std::tuple<Tensor, Tensor, Tensor> lstm_cell(const Tensor& input_gates, const Tensor& hidden_gates,
                                             const Tensor& cell, const OptionalTensor& input_bias,
                                             const OptionalTensor& hidden_bias) {
  check_gates("_thnn_fused_lstm_cell", input_gates, hidden_gates, cell, 4);
  const Tensor workspace =
      at::add(biased(input_gates, input_bias), biased(hidden_gates, hidden_bias));
  const auto part = [&](std::int64_t k) { return gate(workspace, k, 4); };
  for (const std::int64_t k : {0, 1, 3}) part(k).sigmoid_();
  part(2).tanh_();
  const Tensor next = at::add(at::mul(part(1), cell), at::mul(part(0), part(2)));
  const Tensor output = at::mul(part(3), at::tanh(next));
  return {output.to(cell.scalar_type()), next.to(cell.scalar_type()), workspace};
}

std::tuple<Tensor, Tensor, Tensor> lstm_cell_backward(const OptionalTensor& of_output,
                                                      const OptionalTensor& of_next,
                                                      const Tensor& cell, const Tensor& next,
                                                      const Tensor& workspace, bool has_bias) {
  const auto part = [&](std::int64_t k) { return gate(workspace, k, 4); };
  const Tensor squashed = at::tanh(wide(next));
  Tensor of_cell = of_next && of_next->defined() ? wide(*of_next) : at::zeros_like(squashed);
  Tensor gates = at::zeros_like(workspace);
  if (of_output && of_output->defined()) {
    const Tensor gradient = wide(*of_output);
    of_cell = at::add(of_cell, at::tanh_backward(at::mul(gradient, part(3)), squashed));
    gate(gates, 3, 4).copy_(at::sigmoid_backward(at::mul(gradient, squashed), part(3)));
  }
  gate(gates, 0, 4).copy_(at::sigmoid_backward(at::mul(of_cell, part(2)), part(0)));
  gate(gates, 1, 4).copy_(at::sigmoid_backward(at::mul(of_cell, cell), part(1)));
  gate(gates, 2, 4).copy_(at::tanh_backward(at::mul(of_cell, part(0)), part(2)));
  const auto dtype = cell.scalar_type();
  return {gates.to(dtype), at::mul(of_cell, part(1)).to(dtype),
          sum_of_batch(gates, has_bias, dtype)};
}

/// Gates: reset, update, new. The workspace has them after their functions, then the state and the
/// hidden part of the new gate.
std::tuple<Tensor, Tensor> gru_cell(const Tensor& input_gates, const Tensor& hidden_gates,
                                    const Tensor& state, const OptionalTensor& input_bias,
                                    const OptionalTensor& hidden_bias) {
  check_gates("_thnn_fused_gru_cell", input_gates, hidden_gates, state, 3);
  const Tensor from_input = biased(input_gates, input_bias),
               from_hidden = biased(hidden_gates, hidden_bias);
  const Tensor reset = at::sigmoid(at::add(gate(from_input, 0, 3), gate(from_hidden, 0, 3)));
  const Tensor update = at::sigmoid(at::add(gate(from_input, 1, 3), gate(from_hidden, 1, 3)));
  const Tensor hidden_part = gate(from_hidden, 2, 3);
  const Tensor fresh = at::tanh(at::add(gate(from_input, 2, 3), at::mul(reset, hidden_part)));
  const Tensor next = at::add(fresh, at::mul(update, at::sub(wide(state), fresh)));
  const Tensor workspace =
      at::empty({state.size(0), 5 * state.size(1)}, state.options().dtype(at::kFloat));
  std::int64_t k = 0;
  for (const Tensor& kept : {reset, update, fresh, wide(state), hidden_part})
    gate(workspace, k++, 5).copy_(kept);
  return {next.to(state.scalar_type()), workspace};
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> gru_cell_backward(const Tensor& of_next,
                                                                     const Tensor& workspace,
                                                                     bool has_bias) {
  const auto kept = [&](std::int64_t k) { return gate(workspace, k, 5); };
  const Tensor reset = kept(0), update = kept(1), fresh = kept(2), state = kept(3),
               hidden_part = kept(4), gradient = wide(of_next);
  const std::int64_t batch = workspace.size(0), size = workspace.size(1) / 5;
  const Tensor of_input = at::empty({batch, 3 * size}, workspace.options()),
               of_hidden = at::empty({batch, 3 * size}, workspace.options());
  const Tensor of_fresh = at::tanh_backward(at::mul(gradient, at::rsub(update, 1)), fresh);
  const Tensor of_reset = at::sigmoid_backward(at::mul(of_fresh, hidden_part), reset);
  const Tensor of_update = at::sigmoid_backward(at::mul(gradient, at::sub(state, fresh)), update);
  for (const Tensor& gates : {of_input, of_hidden}) {
    gate(gates, 0, 3).copy_(of_reset);
    gate(gates, 1, 3).copy_(of_update);
  }
  gate(of_input, 2, 3).copy_(of_fresh);
  gate(of_hidden, 2, 3).copy_(at::mul(of_fresh, reset));
  const auto dtype = of_next.scalar_type();
  return {of_input.to(dtype), of_hidden.to(dtype), at::mul(gradient, update).to(dtype),
          sum_of_batch(of_input, has_bias, dtype), sum_of_batch(of_hidden, has_bias, dtype)};
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_thnn_fused_lstm_cell", lstm_cell);
  m.impl("_thnn_fused_lstm_cell_backward_impl", lstm_cell_backward);
  m.impl("_thnn_fused_gru_cell", gru_cell);
  m.impl("_thnn_fused_gru_cell_backward", gru_cell_backward);
}

}  // namespace spyre::eager
