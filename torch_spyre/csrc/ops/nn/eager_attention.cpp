// Attention in one call: scores and probabilities stay float32 on the card, and only the result is
// rounded to the dtype of the operands. Rows of queries are taken in blocks, so that the scores of
// a long sequence never exist all at once.
#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <tuple>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/native/transformers/sdp_utils_cpp.h>
#include <ATen/ops/_softmax.h>
#include <ATen/ops/_softmax_backward_data.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/eq.h>
#include <ATen/ops/ge.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include "ops/matmul/eager_matmul.h"

namespace spyre::eager {
namespace {

using at::Tensor;
using c10::ScalarType;

/// Scores of so many bytes exist at once.
constexpr std::int64_t kScoreBytes = 32 << 20;

/// Heads of queries that share keys and values (grouped-query attention) get a dimension of their
/// own, over which keys and values are expanded: [..., heads, rows, size] becomes
/// [..., key heads, group, rows, size].
struct Heads {
  bool grouped;
  std::int64_t group = 1, key_heads = 1;

  Heads(const Tensor& query, const Tensor& key)
      : grouped(query.dim() > 2 && query.size(-3) != key.size(-3) && key.size(-3) > 0) {
    if (!grouped) return;
    key_heads = key.size(-3);
    TORCH_CHECK(query.size(-3) % key_heads == 0,
                "Number of heads in query must be a multiple of those in key and value, got ",
                query.size(-3), " and ", key_heads, ".");
    group = query.size(-3) / key_heads;
  }

  Tensor of_query(const Tensor& tensor) const {
    return grouped ? tensor.unflatten(-3, {key_heads, group}) : tensor;
  }
  Tensor of_key(const Tensor& tensor) const {
    if (!grouped) return tensor;
    auto size = tensor.sizes().vec();
    size.insert(size.end() - 2, group);
    return tensor.unsqueeze(-3).expand(size);
  }
  Tensor back_to_query(const Tensor& tensor) const {
    return grouped ? tensor.flatten(-4, -3) : tensor;
  }
  Tensor back_to_key(const Tensor& tensor) const { return grouped ? tensor.sum(-3) : tensor; }
};

/// What is computed, with the heads grouped and the mask as large as the scores.
struct Attention {
  Heads heads;
  Tensor query, key, value;
  std::optional<Tensor> mask;
  bool causal;
  double scale;
  std::vector<std::int64_t> score_size;

  Attention(const Tensor& q, const Tensor& k, const Tensor& v, const std::optional<Tensor>& bias,
            bool is_causal, std::optional<double> given_scale)
      : heads(q, k),
        query(heads.of_query(q)),
        key(heads.of_key(k)),
        value(heads.of_key(v)),
        causal(is_causal),
        scale(sdp::calculate_scale(q, given_scale).expect_float()) {
    score_size = query.sizes().vec();
    score_size.back() = key.size(-2);
    if (!bias || !bias->defined()) return;
    auto size = q.sizes().vec();
    size.back() = k.size(-2);
    mask = heads.of_query(bias->expand(size));
  }

  std::int64_t rows() const { return query.size(-2); }
  std::int64_t block_rows() const {
    std::int64_t row_bytes = 4;
    for (std::size_t d = 0; d < score_size.size(); ++d)
      if (d + 2 != score_size.size()) row_bytes *= score_size[d];
    return std::max<std::int64_t>(kScoreBytes / std::max<std::int64_t>(row_bytes, 1), 1);
  }
  /// Keys that any of the rows before `end` sees.
  std::int64_t keys(std::int64_t end) const {
    return causal ? std::min(end, key.size(-2)) : key.size(-2);
  }

  /// Probabilities of rows [begin, end) over the keys that they see, in float32.
  Tensor probabilities(std::int64_t begin, std::int64_t end) const {
    const std::int64_t seen = keys(end);
    auto size = score_size;
    size[size.size() - 2] = end - begin;
    size.back() = seen;
    const auto options = query.options().dtype(ScalarType::Float);
    const Tensor scores = at::empty(size, options);
    std::optional<Tensor> added;
    if (mask) added = mask->slice(-2, begin, end).slice(-1, 0, seen);
    if (causal && seen > 1) {
      const Tensor visible = at::ge(at::arange(begin, end, options).unsqueeze(1),
                                    at::arange(seen, options).unsqueeze(0));
      const double hidden = -std::numeric_limits<double>::infinity();
      const Tensor base = added ? *added : at::zeros({}, options);
      added = at::where(visible, base, at::scalar_tensor(hidden, base.options())).expand(size);
    }
    matmul(query.slice(-2, begin, end), key.slice(-2, 0, seen).transpose(-2, -1), scores, added,
           scale, 1);
    const Tensor weights = at::_softmax(scores, -1, false);
    if (!mask) return weights;
    // Only a mask can hide every key of a row; such rows are zero.
    const Tensor blind =
        at::eq(at::amax(scores, {-1}, true), c10::Scalar(-std::numeric_limits<double>::infinity()));
    return at::where(blind, at::zeros({}, options), weights);
  }
};

/// A result whose dimensions lie in memory as the query's do, which PyTorch's shape function says.
Tensor empty_in_order_of(const Tensor& query, c10::IntArrayRef size) {
  if (query.sizes() == size) return at::empty_like(query);
  c10::SmallVector<std::int64_t, 4> order(size.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
    return query.stride(a) > query.stride(b);
  });
  c10::DimVector stride(size.size());
  std::int64_t step = 1;
  for (auto dim = order.rbegin(); dim != order.rend(); ++dim) {
    stride[*dim] = step;
    step *= size[*dim];
  }
  return at::empty_strided(size, stride, query.options());
}

std::vector<std::int64_t> output_size(const Tensor& query, const Tensor& value) {
  auto size = query.sizes().vec();
  size.back() = value.size(-1);
  return size;
}

using Attended =
    std::tuple<Tensor, Tensor, Tensor, Tensor, c10::SymInt, c10::SymInt, Tensor, Tensor, Tensor>;

Attended attention(const Tensor& query, const Tensor& key, const Tensor& value,
                   const std::optional<Tensor>& bias, double dropout, bool causal,
                   bool /*return_debug_mask*/, std::optional<double> scale) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      dropout == 0, "the fused attention of spyre has no dropout, got dropout_p=", dropout,
      ". torch.nn.functional.scaled_dot_product_attention uses other kernels then.");
  TORCH_CHECK(query.size(-1) == key.size(-1), "Queries of size ", query.size(-1),
              " cannot be compared with keys of size ", key.size(-1), ".");
  TORCH_CHECK(key.size(-2) == value.size(-2), "There are ", key.size(-2), " keys and ",
              value.size(-2), " values.");
  const Tensor out = empty_in_order_of(query, output_size(query, value));
  const Attention task(query, key, value, bias, causal, scale);
  if (key.size(-2) == 0) {
    out.zero_();
  } else if (out.numel() > 0) {
    const Tensor result = task.heads.of_query(out);
    const std::int64_t rows = task.rows(), block = task.block_rows();
    for (std::int64_t begin = 0; begin < rows; begin += block) {
      const std::int64_t end = std::min(begin + block, rows);
      matmul(task.probabilities(begin, end), task.value.slice(-2, 0, task.keys(end)),
             result.slice(-2, begin, end));
    }
  }
  // The backward pass computes the probabilities again: nothing else is kept.
  const Tensor none = at::empty({0}, query.options().dtype(ScalarType::Float));
  // Of the size PyTorch's shape function says; our gradient does not look at it.
  auto rows_of_heads = query.sizes().vec();
  rows_of_heads.pop_back();
  if (query.dim() == 3) rows_of_heads.insert(rows_of_heads.begin(), 1);
  const Tensor log_sums = at::empty(rows_of_heads, none.options());
  const Tensor seed = at::empty({}, none.options());
  return {out, log_sums, none, none, query.sym_size(-2), key.sym_size(-2), seed, seed, none};
}

std::tuple<Tensor, Tensor, Tensor, Tensor> attention_backward(
    const Tensor& grad, const Tensor& query, const Tensor& key, const Tensor& value,
    const Tensor& bias, std::array<bool, 4> wanted, const Tensor&, const Tensor&, const Tensor&,
    const Tensor&, c10::SymInt, c10::SymInt, double, bool causal, const Tensor&, const Tensor&,
    std::optional<double> scale) {
  const std::optional<Tensor> mask = bias.defined() ? std::optional(bias) : std::nullopt;
  const Attention task(query, key, value, mask, causal, scale);
  const auto options = query.options().dtype(ScalarType::Float);
  const Tensor grad_rows = task.heads.of_query(grad);
  const bool through_scores = wanted[0] || wanted[1] || (wanted[3] && bias.defined());
  const auto like = [&](const Tensor& tensor, bool needed) {
    return needed ? at::zeros(tensor.sizes(), options) : Tensor();
  };
  // Sums over the blocks, in float32; keys and values still with a place for each head of a group.
  const Tensor of_query = like(task.query, wanted[0]), of_key = like(task.key, wanted[1]),
               of_value = like(task.value, wanted[2]);
  Tensor of_mask;
  if (wanted[3] && bias.defined()) of_mask = at::zeros(task.score_size, options);

  const std::int64_t rows = task.rows(), block = task.block_rows();
  const bool empty = query.numel() == 0 || key.size(-2) == 0 || value.numel() == 0;
  for (std::int64_t begin = 0; begin < rows && !empty; begin += block) {
    const std::int64_t end = std::min(begin + block, rows), seen = task.keys(end);
    const auto some_rows = [&](const Tensor& tensor) { return tensor.slice(-2, begin, end); };
    const auto some_keys = [&](const Tensor& tensor) { return tensor.slice(-2, 0, seen); };
    const Tensor weights = task.probabilities(begin, end), grad_out = some_rows(grad_rows);
    if (wanted[2]) {
      const Tensor sum = some_keys(of_value);
      matmul(weights.transpose(-2, -1), grad_out, sum, sum);
    }
    if (!through_scores) continue;
    const Tensor of_weights = at::empty(weights.sizes(), options);
    matmul(grad_out, some_keys(task.value).transpose(-2, -1), of_weights);
    const Tensor of_scores = at::_softmax_backward_data(of_weights, weights, -1, ScalarType::Float);
    if (wanted[0])
      matmul(of_scores, some_keys(task.key), some_rows(of_query), std::nullopt, task.scale);
    if (wanted[1]) {
      const Tensor sum = some_keys(of_key);
      matmul(of_scores.transpose(-2, -1), some_rows(task.query), sum, sum, task.scale);
    }
    if (of_mask.defined()) some_rows(of_mask).slice(-1, 0, seen).copy_(of_scores);
  }

  Tensor grad_query, grad_key, grad_value, grad_bias;
  // With the strides of what they belong to, which PyTorch's shape function says.
  const auto placed = [](const Tensor& tensor, const Tensor& sums) {
    const Tensor gradient = at::empty_like(tensor);
    return gradient.copy_(sums);
  };
  if (wanted[0]) grad_query = placed(query, task.heads.back_to_query(of_query));
  if (wanted[1]) grad_key = placed(key, task.heads.back_to_key(of_key));
  if (wanted[2]) grad_value = placed(value, task.heads.back_to_key(of_value));
  if (of_mask.defined())
    grad_bias = task.heads.back_to_query(of_mask).sum_to_size(bias.sizes()).to(bias.scalar_type());
  return {grad_query, grad_key, grad_value, grad_bias};
}

/// Which way scaled_dot_product_attention takes. Also asked while a graph is traced: what it
/// compares must not fix sizes that are symbols there, and PyTorch's shape function of the fused
/// op knows three and four dimensions.
std::int64_t choose(const Tensor& query, const Tensor& key, const Tensor& value,
                    const std::optional<Tensor>& mask, double dropout, bool causal,
                    std::optional<double> /*scale*/, bool grouped) {
  const auto same_lead = [&](const Tensor& other) {
    if (other.dim() != query.dim()) return false;
    for (std::int64_t d = 0; d + 2 < query.dim(); ++d)
      if (other.sym_size(d) != query.sym_size(d) && !(grouped && d + 3 == query.dim()))
        return false;
    return true;
  };
  const bool fits =
      query.dim() >= 3 && query.dim() <= 4 && dropout == 0 && same_lead(key) && same_lead(value) &&
      key.sym_size(-3) == value.sym_size(-3) && query.scalar_type() == key.scalar_type() &&
      query.scalar_type() == value.scalar_type() && c10::isFloatingType(query.scalar_type()) &&
      (!mask || mask->dim() <= query.dim()) &&
      !(mask && causal && query.dim() == 3);  // which PyTorch's own way refuses
  return static_cast<std::int64_t>(fits ? sdp::SDPBackend::overrideable : sdp::SDPBackend::math);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("_scaled_dot_product_fused_attention_overrideable", &attention);
  library.impl("_scaled_dot_product_fused_attention_overrideable_backward", &attention_backward);
  library.impl("_fused_sdp_choice", &choose);
}

}  // namespace
}  // namespace spyre::eager

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, &spyre::eager::choose)
}  // namespace at::native
