// Random ops. The generator of a device draws on the host, and the numbers are sent: the card has
// none of its own.
#include <algorithm>
#include <cmath>
#include <mutex>
#include <tuple>
#include <vector>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/ops/_sample_dirichlet.h>
#include <ATen/ops/_standard_gamma.h>
#include <ATen/ops/binomial.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/ge.h>
#include <ATen/ops/le.h>
#include <ATen/ops/leaky_relu.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/multinomial.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/poisson.h>
#include <ATen/ops/randperm.h>
#include <torch/library.h>

#include "ops/pointwise/eager_pointwise_kernels.h"
#include "ops/random/spyre_generator.h"
#include "tensor/eager_structured.h"
#include "tensor/eager_variants.h"
#include "tensor/spyre_tensor_impl.h"

namespace spyre {
namespace {

using Gen = std::optional<at::Generator>;

at::Generator chosen(const Gen& generator, c10::Device device) {
  if (!generator || !generator->defined()) return default_generator(device.index());
  TORCH_CHECK(generator->device() == device, "Expected a '", device,
              "' generator device but found '", generator->device(), "'");
  return *generator;
}

/// Draws values on the host, in the dtype of `self`, and sends them.
template <typename Draw>
at::Tensor& draw_into(at::Tensor& self, const Gen& generator, Draw&& draw) {
  at::Generator source = chosen(generator, self.device());
  at::Tensor host = at::empty(self.sizes(), self.options().device(c10::kCPU));
  {
    const std::lock_guard lock(source.mutex());
    draw(host, source.get<SpyreGeneratorImpl>()->host());
  }
  self.copy_(host);
  return self;
}

/// An op that draws as PyTorch's own does on the host.
template <class... Arguments>
struct Drawn {
  template <at::Tensor& (at::Tensor::*draw)(Arguments..., Gen) const>
  static at::Tensor& in_place(at::Tensor& self, Arguments... arguments, Gen generator) {
    return draw_into(self, generator, [&](auto& t, auto& g) { (t.*draw)(arguments..., g); });
  }
};

/// As `draw_into`, a part of a large tensor at a time: the host does not hold a model's weights
/// once more while they are made. For draws that give the same numbers in parts; `normal_` draws
/// sixteen at once, and in another way if it has fewer.
template <typename Draw>
at::Tensor& draw_in_parts(at::Tensor& self, const Gen& generator, Draw&& draw) {
  constexpr std::int64_t kPart = 1 << 16, kRows = 64;
  const std::int64_t rows = self.dim() ? self.size(0) : 1;
  if (self.numel() <= kPart || rows < 2 * kRows) return draw_into(self, generator, draw);
  const std::int64_t row = self.numel() / rows;
  const std::int64_t at_once = std::max<std::int64_t>(kPart / row / kRows, 1) * kRows;
  at::Generator source = chosen(generator, self.device());
  std::vector<std::int64_t> sizes = self.sizes().vec();
  sizes[0] = std::min(rows, 2 * at_once);
  const at::Tensor host = at::empty(sizes, self.options().device(c10::kCPU));
  const std::lock_guard lock(source.mutex());
  for (std::int64_t start = 0; start < rows;) {
    const std::int64_t left = rows - start, taken = left < 2 * at_once ? left : at_once;
    at::Tensor part = host.narrow(0, 0, taken);
    draw(part, source.get<SpyreGeneratorImpl>()->host());
    self.narrow(0, start, taken).copy_(part);
    start += taken;
  }
  return self;
}

/// Numbers from here on may become `end` when they are rounded to DLFloat16, which has 10 bits:
/// half a step below it. Steps below a power of two are half of those above.
double rounds_to(double end) {
  if (end == 0) return end;
  int exponent = 0;
  const double fraction = std::frexp(end, &exponent);
  return end - std::ldexp(1.0, exponent - (fraction == 0.5 ? 12 : 11));
}

at::Tensor& uniform_(at::Tensor& self, double from, double to, Gen generator) {
  const bool rounded = self.element_size() == 2 && from < to;  // by the host or the card
  return draw_in_parts(self, generator, [&](at::Tensor& t, at::Generator& g) {
    t.uniform_(from, to, g);
    if (rounded) t.masked_fill_(t.ge(rounds_to(to)), from);  // `to` is not among the results
  });
}
at::Tensor& normal_(at::Tensor& self, double mean, double std, Gen generator) {
  return draw_in_parts(self, generator, [&](auto& t, auto& g) { t.normal_(mean, std, g); });
}
at::Tensor& bernoulli_tensor(at::Tensor& self, const at::Tensor& p, Gen generator) {
  return draw_into(self, generator, [&](auto& t, auto& g) { t.bernoulli_(p.cpu(), g); });
}
at::Tensor& bernoulli(const at::Tensor& p, Gen generator, at::Tensor& out) {
  const auto dtype = eager::output_dtype(out, p.scalar_type());
  eager::size_output("bernoulli", out, p.sizes(), p.options().dtype(dtype));
  at::assert_no_partial_overlap(out, p);
  return bernoulli_tensor(out, p, generator);
}
at::Tensor& randperm_out(std::int64_t n, Gen generator, at::Tensor& out) {
  out.resize_({n});
  return draw_into(out, generator,
                   [&](auto& t, auto& g) { t.copy_(at::randperm(n, g, t.options())); });
}

// ---------------------------------------------------------------- distributions of many parameters

at::Tensor& normal_around(const at::Tensor& mean, const at::Tensor& std, Gen generator,
                          at::Tensor& out) {
  TORCH_CHECK(std.numel() == 0 || std.min().item<double>() >= 0,
              "normal expects all elements of std >= 0.0");
  if (!out.defined()) {
    const at::Tensor& on_card = is_spyre(mean) ? mean : std;
    out = at::empty(at::infer_size_dimvector(mean.sizes(), std.sizes()), on_card.options());
  }
  eager::check_floating("normal", out);
  eager::fit(out, mean, std);
  at::Tensor standard = at::empty(out.sizes(), out.options().dtype(at::kFloat));
  normal_(standard, 0, 1, generator);
  eager::pointwise(OpFunc::addcmul, out, {mean, standard, std}, at::kFloat, {1});
  return out;
}
at::Tensor& normal_of_mean(const at::Tensor& mean, double std, Gen generator, at::Tensor& out) {
  return normal_around(mean, eager::number(std), generator, out);
}
at::Tensor& normal_of_deviation(double mean, const at::Tensor& std, Gen generator,
                                at::Tensor& out) {
  return normal_around(eager::number(mean), std, generator, out);
}

/// Draws from parameters that come from the card.
template <typename Draw>
at::Tensor drawn(const at::Tensor& parameters, const Gen& generator, Draw&& draw) {
  at::Generator source = chosen(generator, parameters.device());
  const at::Tensor host = parameters.cpu();
  at::Tensor values;
  {
    const std::lock_guard lock(source.mutex());
    values = draw(host, source.get<SpyreGeneratorImpl>()->host());
  }
  return values.to(parameters.device());
}

at::Tensor& multinomial(const at::Tensor& weights, std::int64_t count, bool replacement,
                        Gen generator, at::Tensor& out) {
  TORCH_CHECK(!out.defined() || out.scalar_type() == at::kLong,
              "multinomial expects Long tensor out, got: ", out.scalar_type());
  const at::Tensor indices = drawn(weights, generator, [&](const at::Tensor& host, auto& g) {
    return at::multinomial(host, count, replacement, g);
  });
  if (!out.defined()) return out = indices;
  eager::size_output("multinomial", out, indices.sizes(), indices.options());
  return out.copy_(indices);
}
template <at::Tensor (*draw)(const at::Tensor&, Gen)>
at::Tensor drawn_from(const at::Tensor& parameters, Gen generator) {
  return drawn(parameters, generator,
               [](const at::Tensor& host, auto& g) { return draw(host, g); });
}
at::Tensor binomial(const at::Tensor& count, const at::Tensor& probability, Gen generator) {
  return drawn(count, generator, [&](const at::Tensor& host, auto& g) {
    return at::binomial(host, probability.cpu(), g);
  });
}
// ----------------------------------------------------------------------------------------- dropout

/// 64 random bits for every counter (SplitMix64): threads draw in any order and get the same.
std::uint64_t bits_of(std::uint64_t seed, std::uint64_t counter) {
  std::uint64_t z = seed + (counter + 1) * 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

/// Pairs of elements, each with half of the bits: kept if those are below `limit`.
void fill_mask(std::uint64_t seed, std::uint64_t limit, bool* mask, std::int64_t begin,
               std::int64_t end) {
  for (std::int64_t pair = begin; pair < end; ++pair) {
    const std::uint64_t bits = bits_of(seed, static_cast<std::uint64_t>(pair));
    mask[2 * pair] = (bits & 0xFFFFFFFF) < limit;
    mask[2 * pair + 1] = bits >> 32 < limit;
  }
}

/// A mask that keeps elements with a probability. Activations are large: only a seed is drawn from
/// the generator, the rest in parallel, one byte an element.
at::Tensor drawn_mask(const at::Tensor& like, double keep) {
  at::Generator source = default_generator(like.device().index());
  std::uint64_t seed = 0;
  {
    const std::lock_guard lock(source.mutex());
    seed = at::check_generator<at::CPUGeneratorImpl>(source.get<SpyreGeneratorImpl>()->host())
               ->random64();
  }
  const std::int64_t count = like.numel(), pairs = (count + 1) / 2;
  const at::Tensor host = at::empty({2 * pairs}, at::device(at::kCPU).dtype(at::kBool));
  bool* const mask = host.mutable_data_ptr<bool>();
  const auto limit = static_cast<std::uint64_t>(std::llround(keep * 0x1p32));
  constexpr std::int64_t kGrain = 32 << 10;
  at::parallel_for(0, pairs, kGrain, [&](std::int64_t begin, std::int64_t end) {
    fill_mask(seed, limit, mask, begin, end);
  });
  at::Tensor result = at::empty_like(like, like.options().dtype(at::kBool));
  return result.copy_(host.narrow(0, 0, count).view(like.sizes()));
}

at::Tensor dropout_backward(const at::Tensor& grad, const at::Tensor& mask, double scale) {
  TORCH_CHECK(mask.scalar_type() == at::kBool, "Mask should be Bool Scalar Type",
              mask.scalar_type());
  // Numbers that are scaled are no integers any more.
  const bool whole = c10::isIntegralType(grad.scalar_type(), /*includeBool=*/true);
  const auto options = grad.options().dtype(whole ? at::kFloat : grad.scalar_type());
  at::Tensor out = grad.sizes() == mask.sizes() ? at::empty_like(grad, options)
                                                : eager::result_of({grad, mask}, options);
  eager::pointwise(OpFunc::maskscale, out, {grad, mask}, at::kFloat, {scale});
  return out;
}
std::tuple<at::Tensor, at::Tensor> dropout(const at::Tensor& input, double p,
                                           std::optional<bool> train) {
  TORCH_CHECK(p >= 0 && p <= 1, "dropout probability has to be between 0 and 1, but got ", p);
  if (!train.value_or(true))
    return {input.clone(), at::ones_like(input, input.options().dtype(at::kBool))};
  eager::check_cast(at::kFloat, input);
  at::Tensor mask = drawn_mask(input, 1 - p);
  return {dropout_backward(input, mask, p == 1 ? 0 : 1 / (1 - p)), mask};
}

/// Negative elements get slopes of their own.
at::Tensor& rrelu(const at::Tensor& self, at::Tensor& noise, const c10::Scalar& lower,
                  const c10::Scalar& upper, bool training, Gen generator, at::Tensor& out) {
  if (!out.defined()) out = at::empty_like(self);
  if (!training) return at::leaky_relu_out(out, self, (lower.toDouble() + upper.toDouble()) / 2);
  at::Tensor slopes = at::empty(self.sizes(), self.options());
  uniform_(slopes, lower.toDouble(), upper.toDouble(), generator);
  eager::resize_to(noise, self.sizes());
  eager::pointwise(OpFunc::where3, noise, {at::le(self, 0), slopes, eager::number(1)}, at::kFloat);
  return at::mul_out(out, self, noise);
}
}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  using at::Tensor;
  library.impl("uniform_", &uniform_);
  library.impl("normal_", &normal_);
  library.impl("random_", &Drawn<>::in_place<&Tensor::random_>);
  library.impl("random_.to", &Drawn<std::int64_t>::in_place<&Tensor::random_>);
  library.impl("random_.from",
               &Drawn<std::int64_t, std::optional<std::int64_t>>::in_place<&Tensor::random_>);
  eager::implement<bernoulli>(library, "bernoulli", "bernoulli.out");
  library.impl("bernoulli_.float", &Drawn<double>::in_place<&Tensor::bernoulli_>);
  library.impl("bernoulli_.Tensor", &bernoulli_tensor);
  library.impl("exponential_", &Drawn<double>::in_place<&Tensor::exponential_>);
  library.impl("geometric_", &Drawn<double>::in_place<&Tensor::geometric_>);
  library.impl("cauchy_", &Drawn<double, double>::in_place<&Tensor::cauchy_>);
  library.impl("log_normal_", &Drawn<double, double>::in_place<&Tensor::log_normal_>);
  library.impl("randperm.generator_out", &randperm_out);
  eager::implement<normal_around>(library, "normal.Tensor_Tensor", "normal.Tensor_Tensor_out");
  eager::implement<normal_of_mean>(library, "normal.Tensor_float", "normal.Tensor_float_out");
  eager::implement<normal_of_deviation>(library, "normal.float_Tensor", "normal.float_Tensor_out");
  eager::implement<multinomial>(library, "multinomial", "multinomial.out");
  library.impl("poisson", &drawn_from<&at::poisson>);
  library.impl("binomial", &binomial);
  library.impl("_standard_gamma", &drawn_from<&at::_standard_gamma>);
  library.impl("_sample_dirichlet", &drawn_from<&at::_sample_dirichlet>);
  library.impl("native_dropout", &dropout);
  library.impl("native_dropout_backward", &dropout_backward);
  eager::implement<rrelu>(library, "rrelu_with_noise", "rrelu_with_noise.out");
  library.impl("rrelu_with_noise_", eager::in_place<rrelu>);
}

}  // namespace spyre
