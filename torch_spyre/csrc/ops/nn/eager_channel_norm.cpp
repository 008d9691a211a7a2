// Norms over channels: batch norm, group norm, weight norm and renorm, with their gradients.
// Statistics are float32 whatever the input is; the normalized result is rounded once.
#include <array>

#include <ATen/core/Tensor.h>
#include <ATen/ops/add.h>
#include <ATen/ops/div.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/renorm_meta.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/where.h>
#include <torch/library.h>

#include "ops/pointwise/eager_pointwise.h"
#include "ops/reduce/eager_reduce.h"
#include "program/eager_plan.h"
#include "tensor/eager_structured.h"

namespace spyre::eager {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

/// The tensor, or a number in its place.
Tensor or_number(const Tensor& tensor, double number) {
  return tensor.defined() ? tensor : at::scalar_tensor(number);
}

void check_of_channels(const char* name, const Tensor& given, std::int64_t channels) {
  if (!given.defined()) return;
  TORCH_CHECK(given.dim() == 1, "Expected ", name, " to be a vector, but got size ", given.sizes());
  TORCH_CHECK(given.numel() == channels, name, " should contain ", channels, " elements not ",
              given.numel());
}

/// [channels] as [1, channels, 1...].
Tensor channelwise(const Tensor& tensor, std::int64_t rank) {
  if (!tensor.defined()) return tensor;
  at::DimVector size(rank, 1);
  size[1] = tensor.numel();
  return tensor.reshape(size);
}

/// out = (x - mean) * scale * weight + bias; undefined parameters leave out their part.
void normalize(const Tensor& out, const Tensor& x, const Tensor& mean, const Tensor& scale,
               const Tensor& weight = {}, const Tensor& bias = {}) {
  pointwise(OpFunc::layernormnorm, out,
            {x, or_number(mean, 0), scale, or_number(weight, 1), or_number(bias, 0)}, at::kFloat);
}

Tensor wide_like(const Tensor& tensor) {
  return at::empty(tensor.sizes(), tensor.options().dtype(at::kFloat));
}

/// In fp32, over the given dimensions.
Tensor wide_sum(const Tensor& tensor, at::IntArrayRef dims, bool keep = false) {
  return at::sum(tensor, dims, keep, at::kFloat);
}

Tensor inverse_deviation(const Tensor& variance, double epsilon) {
  return at::rsqrt(at::add(variance.to(at::kFloat), epsilon));
}

// Batch norm

at::DimVector all_but_channels(const Tensor& input) {
  at::DimVector dims{0};
  for (std::int64_t d = 2; d < input.dim(); ++d) dims.push_back(d);
  return dims;
}

/// running = (1 - momentum) * running + momentum * value: an infinite value makes it infinite.
void update(const Tensor& running, const Tensor& value, double momentum) {
  if (!running.defined()) return;
  const Tensor kept = wide_like(running);
  pointwise(OpFunc::mul, kept, {running, at::scalar_tensor(1 - momentum)}, at::kFloat);
  pointwise(OpFunc::axpy, running, {kept, value}, at::kFloat, {momentum});
}

using Three = std::tuple<Tensor, Tensor, Tensor>;

Three batch_norm(const Tensor& input, const OptionalTensor& weight_given,
                 const OptionalTensor& bias_given, const OptionalTensor& mean_given,
                 const OptionalTensor& variance_given, bool training, double momentum,
                 double epsilon) {
  check_floating("batch_norm", input);
  TORCH_CHECK(input.dim() >= 2, "batch_norm expects an input of at least 2 dimensions, got size ",
              input.sizes());
  const Tensor weight = parameter(weight_given, input), bias = parameter(bias_given, input);
  const Tensor running_mean = parameter(mean_given, input),
               running_variance = parameter(variance_given, input);
  check_of_channels("weight", weight, input.size(1));
  check_of_channels("bias", bias, input.size(1));
  check_of_channels("running_mean", running_mean, input.size(1));
  check_of_channels("running_var", running_variance, input.size(1));
  TORCH_CHECK(training || (running_mean.defined() && running_variance.defined()),
              "running_mean and running_var must be defined in evaluation mode");
  const auto stats = input.options().dtype(at::kFloat);
  const std::int64_t channels = input.size(1), rank = input.dim();
  Tensor output = at::empty(input.sizes(), input.options());
  Tensor mean = at::empty({training ? channels : 0}, stats), scale = at::empty_like(mean);
  if (training) {
    const Tensor variance = at::empty({channels}, stats);
    DimSet dims;
    for (const std::int64_t dim : all_but_channels(input)) dims.set(dim);
    reduce({OpFunc::var, card::Compute::fp32, 0.0}, input, dims, variance, mean);
    scale = inverse_deviation(variance, epsilon);
    if (input.numel() > 0) {
      const auto count = static_cast<double>(input.numel() / channels);
      update(running_mean, mean, momentum);
      update(running_variance, at::mul(variance, count / (count - 1)), momentum);
    }
  }
  const Tensor centre = training ? mean : running_mean;
  const Tensor factor = training ? scale : inverse_deviation(running_variance, epsilon);
  normalize(output, input, channelwise(centre, rank), channelwise(factor, rank),
            channelwise(weight, rank), channelwise(bias, rank));
  return {output, mean, scale};
}

/// The schema does not say that the running statistics change: a fallback would lose them.
std::tuple<Tensor&, Tensor&, Tensor&> batch_norm_out(
    const Tensor& input, const OptionalTensor& weight, const OptionalTensor& bias,
    const OptionalTensor& mean, const OptionalTensor& variance, bool training, double momentum,
    double epsilon, Tensor& out, Tensor& saved_mean, Tensor& saved_scale) {
  const auto results = batch_norm(input, weight, bias, mean, variance, training, momentum, epsilon);
  const auto give = [](Tensor& target, const Tensor& result) {
    size_output("native_batch_norm", target, result.sizes(), result.options());
    target.copy_(result);
  };
  give(out, std::get<0>(results));
  give(saved_mean, std::get<1>(results));
  give(saved_scale, std::get<2>(results));
  return {out, saved_mean, saved_scale};
}

Three batch_norm_legit(const Tensor& input, const OptionalTensor& weight,
                       const OptionalTensor& bias, Tensor& mean, Tensor& variance, bool training,
                       double momentum, double epsilon) {
  return batch_norm(input, weight, bias, mean, variance, training, momentum, epsilon);
}

Three batch_norm_no_stats(const Tensor& input, const OptionalTensor& weight,
                          const OptionalTensor& bias, bool training, double momentum,
                          double epsilon) {
  return batch_norm(input, weight, bias, {}, {}, training, momentum, epsilon);
}

std::tuple<Tensor, Tensor, Tensor, Tensor> batch_norm_with_update(const Tensor& input,
                                                                  const OptionalTensor& weight,
                                                                  const OptionalTensor& bias,
                                                                  Tensor& mean, Tensor& variance,
                                                                  double momentum, double epsilon) {
  auto [output, saved_mean, scale] =
      batch_norm(input, weight, bias, mean, variance, true, momentum, epsilon);
  return {output, saved_mean, scale, at::empty({0}, input.options().dtype(at::kByte))};
}

/// With n = (x - mean) * scale: w scale (g - sum(g)/N - n sum(g n)/N), if the statistics are those
/// of the batch, else w scale g.
Three batch_norm_backward(const Tensor& gradient, const Tensor& input,
                          const OptionalTensor& weight_given, const OptionalTensor& running_mean,
                          const OptionalTensor& running_variance, const OptionalTensor& saved_mean,
                          const OptionalTensor& saved_scale, bool train, double epsilon,
                          std::array<bool, 3> wanted) {
  const Tensor weight = parameter(weight_given, input);
  const std::int64_t rank = input.dim(), channels = input.size(1);
  const at::DimVector dims = all_but_channels(input);
  const Tensor mean = channelwise(train ? *saved_mean : parameter(running_mean, input), rank);
  const Tensor scale = channelwise(
      train ? *saved_scale : inverse_deviation(parameter(running_variance, input), epsilon), rank);
  const Tensor sum = wide_sum(gradient, dims);  // of g
  Tensor products = wide_like(input);           // g n
  normalize(products, input, mean, scale, gradient);
  const Tensor product_sum = wide_sum(products, dims);
  const auto like = (weight.defined() ? weight : input).scalar_type();

  Tensor of_input, of_weight, of_bias;
  if (wanted[0]) {
    of_input = at::empty(input.sizes(), input.options());
    const Tensor factor = weight.defined() ? at::mul(scale, channelwise(weight, rank)) : scale;
    if (train && input.numel() > 0) {
      const double share = static_cast<double>(channels) / static_cast<double>(input.numel());
      const Tensor slope = at::mul(at::mul(channelwise(product_sum, rank), scale), share);
      const Tensor common = products;
      normalize(common, input, mean, slope, {}, at::mul(channelwise(sum, rank), share));
      normalize(of_input, gradient, common, factor);
    } else {
      normalize(of_input, gradient, {}, factor);
    }
  }
  if (wanted[1]) of_weight = product_sum.to(like);
  if (wanted[2]) of_bias = sum.to(like);
  return {of_input, of_weight, of_bias};
}

Three batch_norm_backward_reserved(const Tensor& gradient, const Tensor& input,
                                   const Tensor& weight, const OptionalTensor& running_mean,
                                   const OptionalTensor& running_variance,
                                   const OptionalTensor& saved_mean,
                                   const OptionalTensor& saved_scale, bool update, double epsilon,
                                   std::array<bool, 3> wanted, const Tensor& /*reserve*/) {
  return batch_norm_backward(gradient, input, weight, running_mean, running_variance, saved_mean,
                             saved_scale, update, epsilon, wanted);
}

// Group norm

/// Channels as [groups, channels of a group]: [images, groups, channels, ...].
struct Groups {
  std::int64_t images, groups, rank;
  at::DimVector spatial, along;  ///< dimensions of a split tensor: positions, all of a group

  Groups(const Tensor& input, std::int64_t group_count)
      : images(input.size(0)), groups(group_count), rank(input.dim() + 1), along{2} {
    for (std::int64_t d = 3; d < rank; ++d) {
      spatial.push_back(d);
      along.push_back(d);
    }
  }

  Tensor split(const Tensor& tensor) const {
    return tensor.unflatten(1, {groups, tensor.size(1) / groups});
  }
  /// [channels] as [1, groups, channels, 1...].
  Tensor weights(const Tensor& tensor) const {
    if (!tensor.defined()) return tensor;
    at::DimVector size(rank, 1);
    size[1] = groups;
    size[2] = tensor.numel() / groups;
    return tensor.reshape(size);
  }
  /// [images, groups] as [images, groups, 1...].
  Tensor stats(const Tensor& tensor) const {
    at::DimVector size(rank, 1);
    size[0] = images;
    size[1] = groups;
    return tensor.reshape(size);
  }
};

Three group_norm(const Tensor& input, const OptionalTensor& weight_given,
                 const OptionalTensor& bias_given, std::int64_t images, std::int64_t channels,
                 std::int64_t positions, std::int64_t group_count, double epsilon) {
  check_floating("group_norm", input);
  const Tensor weight = parameter(weight_given, input), bias = parameter(bias_given, input);
  TORCH_CHECK(input.dim() >= 2 && input.size(0) == images && input.size(1) == channels &&
                  input.numel() == images * channels * positions,
              "group_norm: an input of size ", input.sizes(), " has not ", images, " images of ",
              channels, " channels with ", positions, " positions");
  TORCH_CHECK(group_count > 0 && channels % group_count == 0,
              "Expected number of channels in input to be divisible by num_groups, but got ",
              channels, " and ", group_count);
  check_of_channels("weight", weight, channels);
  check_of_channels("bias", bias, channels);
  const Groups groups(input, group_count);
  const auto stats = input.options().dtype(at::kFloat);
  Tensor output = at::empty(input.sizes(), input.options());
  Tensor mean = at::empty({images, group_count}, stats), variance = at::empty_like(mean);
  const Tensor x = groups.split(input);
  DimSet dims;
  for (const std::int64_t dim : groups.along) dims.set(dim);
  reduce({OpFunc::var, card::Compute::fp32, 0.0}, x, dims, variance, mean);
  Tensor scale = inverse_deviation(variance, epsilon);
  normalize(groups.split(output), x, groups.stats(mean), groups.stats(scale),
            groups.weights(weight), groups.weights(bias));
  return {output, mean, scale};
}

/// With n = (x - mean) * scale: scale (w g - mean(w g) - n mean(w g n)), means over a group.
Three group_norm_backward(const Tensor& gradient, const Tensor& input, const Tensor& mean_given,
                          const Tensor& scale_given, const OptionalTensor& weight_given,
                          std::int64_t /*images*/, std::int64_t channels, std::int64_t positions,
                          std::int64_t group_count, std::array<bool, 3> wanted) {
  const Tensor given = parameter(weight_given, input);
  const Groups groups(input, group_count);
  const Tensor x = groups.split(input), g = groups.split(gradient);
  const Tensor mean = groups.stats(mean_given), scale = groups.stats(scale_given),
               weight = groups.weights(given);
  const Tensor products = wide_like(x);  // g n
  normalize(products, x, mean, scale, g);
  const auto over_positions = [&](const Tensor& tensor) {
    return groups.spatial.empty() ? tensor.to(at::kFloat) : wide_sum(tensor, groups.spatial, true);
  };
  const Tensor sum = over_positions(g), product_sum = over_positions(products);
  const auto like = (given.defined() ? given : input).scalar_type();

  Tensor of_input, of_weight, of_bias;
  // Before the input's, which reuses the memory of the products.
  if (wanted[1]) of_weight = wide_sum(product_sum, {0}).reshape({channels}).to(like);
  if (wanted[2]) of_bias = wide_sum(sum, {0}).reshape({channels}).to(like);
  if (wanted[0]) {
    of_input = at::empty(input.sizes(), input.options());
    const double share =
        1 / static_cast<double>(std::max<std::int64_t>(channels / group_count * positions, 1));
    const auto group_mean = [&](const Tensor& sums) {
      const Tensor weighted = weight.defined() ? at::mul(sums, weight) : sums;
      return at::mul(wide_sum(weighted, {2}, true), share);
    };
    const Tensor common = products;
    normalize(common, x, mean, at::mul(scale, group_mean(product_sum)), {}, group_mean(sum));
    const Tensor weighted = weight.defined() ? wide_like(x) : g;
    if (weight.defined()) pointwise(OpFunc::mul, weighted, {g, weight}, at::kFloat);
    normalize(groups.split(of_input), weighted, common, scale);
  }
  return {of_input, of_weight, of_bias};
}

// Weight norm

/// All dimensions but the one that has a length of its own for each index.
at::DimVector all_but(std::int64_t dim, const Tensor& tensor) {
  const std::int64_t kept = c10::maybe_wrap_dim(dim, tensor.dim());
  at::DimVector dims;
  for (std::int64_t d = 0; d < tensor.dim(); ++d)
    if (d != kept) dims.push_back(d);
  return dims;
}

/// w = v g / |v|, and |v|.
std::tuple<Tensor, Tensor> weight_norm(const Tensor& v, const Tensor& g, std::int64_t dim) {
  on_device(g, v.device());
  Tensor lengths = at::linalg_vector_norm(v, 2, all_but(dim, v), true, at::kFloat);
  Tensor weight = at::empty(v.sizes(), v.options());
  pointwise(OpFunc::mul, weight, {v, at::div(g, lengths)}, at::kFloat);
  return {weight, lengths};
}

/// With s = sum(dw v): dv = g / |v| (dw - v s / |v|^2), dg = s / |v|.
std::tuple<Tensor, Tensor> weight_norm_backward(const Tensor& gradient, const Tensor& v,
                                                const Tensor& g, const Tensor& lengths,
                                                std::int64_t dim) {
  Tensor products = wide_like(v);
  pointwise(OpFunc::mul, products, {gradient, v}, at::kFloat);
  const Tensor along = at::div(wide_sum(products, all_but(dim, v), true), lengths);
  Tensor of_v = at::empty(v.sizes(), v.options());
  normalize(products, v, {}, at::div(along, lengths));
  normalize(of_v, gradient, products, at::div(g, lengths));
  return {of_v, along.to(g.scalar_type())};
}

// Renorm: slices that are longer than a bound become as long as it. The ops of PyTorch
// differentiate it, because its own gradient computes in float64.

Tensor renormed(const Tensor& self, const at::Scalar& p, std::int64_t dim,
                const at::Scalar& maxnorm) {
  TORCH_CHECK(!p.isComplex(), "renorm: p must be real-valued");
  TORCH_CHECK(p.toDouble() > 0, "renorm: non-positive norm not supported");
  TORCH_CHECK(!maxnorm.isComplex(), "renorm: maxnorm must be real-valued");
  TORCH_CHECK(maxnorm.toDouble() >= 0, "renorm: expected maxnorm to be >= 0 but got ",
              maxnorm.toDouble());
  TORCH_CHECK(self.dim() > 1, "renorm: input needs at least 2 dimensions, got ", self.dim(),
              " dimensions");
  TORCH_CHECK(self.is_floating_point(), "renorm: expected a floating point tensor as input, got ",
              self.scalar_type());
  const Tensor wide = self.to(at::kFloat);  // so that the gradient, too, is rounded once
  const Tensor lengths = at::linalg_vector_norm(wide, p, all_but(dim, self), true);
  const Tensor factors = at::where(lengths.gt(maxnorm), lengths.add(1e-7).reciprocal().mul(maxnorm),
                                   at::ones({}, lengths.options()));
  return wide.mul(factors).to(self.scalar_type()).contiguous();
}

Tensor& renorm_(Tensor& self, const at::Scalar& p, std::int64_t dim, const at::Scalar& maxnorm) {
  return self.copy_(renormed(self.clone(), p, dim, maxnorm));  // its gradient needs the old values
}

Tensor& renorm_out(const Tensor& self, const at::Scalar& p, std::int64_t dim,
                   const at::Scalar& maxnorm, Tensor& out) {
  shape_outputs<at::meta::structured_renorm>(out, self, p, dim, maxnorm);
  at::assert_no_partial_overlap(out, self);
  return out.copy_(renormed(self, p, dim, maxnorm));
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("native_batch_norm", batch_norm);
  m.impl("native_batch_norm.out", batch_norm_out);
  m.impl("_native_batch_norm_legit", batch_norm_legit);
  m.impl("_native_batch_norm_legit.no_stats", batch_norm_no_stats);
  m.impl("_batch_norm_with_update", batch_norm_with_update);
  m.impl("native_batch_norm_backward", batch_norm_backward);
  m.impl("batch_norm_backward", batch_norm_backward_reserved);
  m.impl("native_group_norm", group_norm);
  m.impl("native_group_norm_backward", group_norm_backward);
  m.impl("_weight_norm_interface", weight_norm);
  m.impl("_weight_norm_interface_backward", weight_norm_backward);
  m.impl("renorm", renormed);
  m.impl("renorm_", renorm_);
  m.impl("renorm.out", renorm_out);
}

TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse1, m) {
  m.impl("renorm", renormed);
  m.impl("renorm_", renorm_);
}

}  // namespace spyre::eager
