// What nn.MultiheadAttention and nn.TransformerEncoderLayer call in inference instead of their
// parts: the parts again, on the card.
#include <cmath>
#include <limits>

#include <ATen/core/Tensor.h>
#include <ATen/ops/_softmax.h>
#include <ATen/ops/add.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/where.h>
#include <torch/library.h>

#include "ops/matmul/eager_matmul.h"
#include "program/eager_plan.h"

namespace spyre::eager {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

enum MaskType : std::int64_t { kSource = 0, kPadding = 1, kBoth = 2 };

/// Nonzero where attention is forbidden, broadcast to [batch, heads, queries, keys].
Tensor hidden_keys(const Tensor& mask, std::optional<std::int64_t> type, c10::Device device) {
  const Tensor hidden = on_device(mask, device).to(at::kBool);
  TORCH_CHECK(type && *type >= kSource && *type <= kBoth,
              "Mask Type should be 0 (src_mask), 1 (src_key_padding_mask), or 2 (default_mask)");
  if (*type == kPadding) {
    TORCH_CHECK(hidden.dim() == 2, "a key padding mask has 2 dimensions, got ", hidden.sizes());
    return hidden.unsqueeze(1).unsqueeze(1);
  }
  return hidden;
}

std::tuple<Tensor, Tensor> multi_head_attention(const Tensor& query, const Tensor& key,
                                                const Tensor& value, std::int64_t embed_dim,
                                                std::int64_t heads, const Tensor& qkv_weight,
                                                const Tensor& qkv_bias, const Tensor& proj_weight,
                                                const Tensor& proj_bias, const OptionalTensor& mask,
                                                bool need_weights, bool average_weights,
                                                std::optional<std::int64_t> mask_type) {
  TORCH_CHECK(query.dim() == 3, "expected 3-D `query`, got ", query.dim(), "-D tensor");
  TORCH_CHECK(query.size(2) == embed_dim, "passed-in embed_dim ", embed_dim,
              " didn't match last dim of query ", query.size(2));
  TORCH_CHECK(key.dim() == 3, "expected 3-D `key`, got ", key.dim(), "-D tensor");
  TORCH_CHECK(value.dim() == 3, "expected 3-D `value`, got ", value.dim(), "-D tensor");
  TORCH_CHECK(key.sizes() == value.sizes(), "expected `key`/`value` shapes to match");
  TORCH_CHECK(qkv_weight.dim() == 2 && qkv_weight.size(0) == 3 * embed_dim,
              "expected `qkv_weight` first dim to be 3x embed_dim");
  TORCH_CHECK(qkv_bias.dim() == 1 && qkv_bias.size(0) == 3 * embed_dim,
              "expected `qkv_bias` first dim to be 3x embed_dim");
  TORCH_CHECK(embed_dim % heads == 0, "`embed_dim` must divide evenly by `num_heads`");

  const std::int64_t size = embed_dim / heads;
  const auto projected = [&](const Tensor& tensor, std::int64_t k) {
    return at::linear(tensor, qkv_weight.narrow(0, k * embed_dim, embed_dim),
                      qkv_bias.narrow(0, k * embed_dim, embed_dim))
        .unflatten(2, {heads, size})
        .transpose(1, 2);
  };
  const Tensor q = projected(query, 0), k = projected(key, 1), v = projected(value, 2);
  // As scaled_dot_product_attention: scores and probabilities are float32.
  const auto options = query.options().dtype(at::kFloat);
  Tensor scores = at::empty({q.size(0), heads, q.size(2), k.size(2)}, options);
  matmul(q, k.transpose(2, 3), scores, std::nullopt, 1 / std::sqrt(static_cast<double>(size)));
  if (mask && mask->defined())
    scores = at::where(hidden_keys(*mask, mask_type, query.device()),
                       at::scalar_tensor(-std::numeric_limits<float>::infinity(), options), scores);
  const Tensor weights = at::_softmax(scores, -1, false);
  const Tensor heads_out = at::empty({q.size(0), q.size(2), heads, size}, query.options());
  matmul(weights, v, heads_out.transpose(1, 2));
  Tensor output = at::linear(heads_out.flatten(2), proj_weight, proj_bias);
  if (!need_weights) return {output, Tensor()};
  return {output, average_weights ? at::mean(weights, {1}, false, query.scalar_type())
                                  : weights.to(query.scalar_type())};
}

Tensor encoder_layer(const Tensor& source, std::int64_t embed_dim, std::int64_t heads,
                     const Tensor& qkv_weight, const Tensor& qkv_bias, const Tensor& proj_weight,
                     const Tensor& proj_bias, bool use_gelu, bool norm_first, double epsilon,
                     const Tensor& norm_weight_1, const Tensor& norm_bias_1,
                     const Tensor& norm_weight_2, const Tensor& norm_bias_2,
                     const Tensor& ffn_weight_1, const Tensor& ffn_bias_1,
                     const Tensor& ffn_weight_2, const Tensor& ffn_bias_2,
                     const OptionalTensor& mask, std::optional<std::int64_t> mask_type) {
  const auto norm = [&](const Tensor& x, const Tensor& weight, const Tensor& bias) {
    return at::layer_norm(x, {embed_dim}, weight, bias, epsilon);
  };
  const auto attend = [&](const Tensor& x) {
    return std::get<0>(multi_head_attention(x, x, x, embed_dim, heads, qkv_weight, qkv_bias,
                                            proj_weight, proj_bias, mask, false, true, mask_type));
  };
  const auto feed_forward = [&](const Tensor& x) {
    const Tensor inner = at::linear(x, ffn_weight_1, ffn_bias_1);
    return at::linear(use_gelu ? at::gelu(inner) : at::relu(inner), ffn_weight_2, ffn_bias_2);
  };
  if (norm_first) {
    const Tensor x = at::add(source, attend(norm(source, norm_weight_1, norm_bias_1)));
    return at::add(x, feed_forward(norm(x, norm_weight_2, norm_bias_2)));
  }
  const Tensor x = norm(at::add(source, attend(source)), norm_weight_1, norm_bias_1);
  return norm(at::add(x, feed_forward(x)), norm_weight_2, norm_bias_2);
}

/// nn.TransformerEncoder makes nested tensors of left-aligned sequences, to skip the padding. The
/// card has no nested tensors, so none are left-aligned: the padded batch with its mask goes on.
bool nested_from_mask(const Tensor& /*tensor*/, const Tensor& /*mask*/) { return false; }

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_native_multi_head_attention", multi_head_attention);
  m.impl("_transformer_encoder_layer_fwd", encoder_layer);
  m.impl("_nested_tensor_from_mask_left_aligned", nested_from_mask);
}

}  // namespace spyre::eager
