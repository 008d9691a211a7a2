// Pointwise ops: what each gives, where elements are read and written, what is refused.
#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstring>
#include <random>

#include "check.h"
#include "formats/convert.h"
#include "host/thread_pool.h"
#include "kernels/pointwise.h"
#include "pointwise_reference.h"
#include "steps/steps.h"
#include "support.h"

using namespace spyre::card;
using namespace spyre::card::test;
using spyre::Cost;
using spyre::DataFormat;
using spyre::kOps;
using spyre::OpFunc;
using spyre::OpInfo;
using spyre::OpKind;

namespace {

using Bytes = std::vector<std::byte>;

std::unique_ptr<const Step> decoded(const Pointwise& pointwise) {
  ProgramBuilder builder;
  builder.pointwise(pointwise);
  const Bytes program = builder.finish();
  return decode_step(0, 3, std::span(program).subspan(sizeof(ProgramHeader) + sizeof(StepHeader)));
}

void run(const Step& step, std::vector<Bytes>& operands) {
  std::vector<Extent> extents;
  for (Bytes& operand : operands) extents.push_back({operand.data(), operand.size()});
  for (const Step::Need& need : step.needs())
    CHECK(need.bytes <= operands.at(static_cast<std::size_t>(need.operand)).size());
  step.run(extents);
}

/// The op over dense tensors; operand i is input i, the output comes last.
Pointwise dense_op(const OpInfo& info, std::int64_t elements, DataFormat in, DataFormat out,
                   Compute compute, std::vector<double> constants) {
  Pointwise pointwise;
  pointwise.op = info.op;
  pointwise.compute = compute;
  pointwise.constants = std::move(constants);
  for (int i = 0; i < info.inputs; ++i) pointwise.inputs.push_back({i, in});
  pointwise.output = {info.inputs, out};
  const std::size_t tensors = static_cast<std::size_t>(info.inputs) + 1;
  pointwise.nests = {
      {{{elements, std::vector<std::int64_t>(tensors, 1)}}, std::vector<std::int64_t>(tensors, 0)}};
  return pointwise;
}

template <typename T>
Bytes bytes_of(const std::vector<T>& values) {
  Bytes bytes(values.size() * sizeof(T));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}
template <typename T>
std::vector<T> values_of(const Bytes& bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

std::vector<double> constants_for(OpFunc op) {
  switch (op) {
    case OpFunc::clip:
    case OpFunc::hardtanhbwd:
      return {-1.5, 2.25};
    case OpFunc::softplus:
    case OpFunc::softplusbwd:
      return {1.25, 20};
    case OpFunc::layernormscale:
      return {1e-5};
    case OpFunc::nan_to_num:
      return {0.5, 1e30, -2e30};
    case OpFunc::elu:
    case OpFunc::elubwd:
    case OpFunc::elubwdresult:
      return {1.5, 1.05, 0.75};
    case OpFunc::logit:
    case OpFunc::logitbwd:
      return {0.125};
    case OpFunc::rounddecimals:
      return {100, 1};
    case OpFunc::threshold:
      return {0.5, 20};
    case OpFunc::axpy:
    case OpFunc::addcmul:
    case OpFunc::addcdiv:
      return {-3};
    default:
      return std::vector<double>(static_cast<std::size_t>(spyre::op_info(op).constants), 0.75);
  }
}

std::string described(const OpInfo& info, const double* x, double got, double expected) {
  char text[256];
  std::snprintf(text, sizeof text, "%s(%.9g, %.9g, %.9g) = %.9g, expected %.9g", info.name, x[0],
                info.inputs > 1 ? x[1] : 0, info.inputs > 2 ? x[2] : 0, got, expected);
  return text;
}

/// Units in the last place of fp32 between a result and the exact value.
double ulps_between(float got, double expected) {
  const float rounded = static_cast<float>(expected);
  if (got != got || rounded != rounded) return (got != got) == (rounded != rounded) ? 0 : 1e9;
  if (got == rounded) return 0.5;
  if (std::isinf(got) || std::isinf(rounded))
    return std::fabs(static_cast<double>(got)) >= std::numeric_limits<float>::max() &&
                   std::fabs(expected) >= std::numeric_limits<float>::max()
               ? 1
               : 1e9;
  const double magnitude = std::max(std::fabs(expected), 0x1p-126);
  return std::fabs(got - expected) / std::ldexp(1, std::ilogb(magnitude) - 23);
}

constexpr float kSpecial[] = {0.f,
                              -0.f,
                              1.f,
                              -1.f,
                              0.5f,
                              -0.5f,
                              1.5f,
                              2.f,
                              -2.f,
                              2.5f,
                              3.f,
                              -3.f,
                              4.f,
                              20.f,
                              88.f,
                              89.5f,
                              -88.f,
                              -104.f,
                              -150.f,
                              1e-3f,
                              -1e-3f,
                              1e-10f,
                              1e-30f,
                              -1e-30f,
                              1e10f,
                              -1e10f,
                              1e30f,
                              -1e30f,
                              3.4e38f,
                              -3.4e38f,
                              1e-44f,
                              1e6f,
                              2097152.5f,
                              16777217.f,
                              0.99999994f,
                              1.0000001f,
                              0.75f,
                              0.41421357f,
                              std::numeric_limits<float>::infinity(),
                              -std::numeric_limits<float>::infinity(),
                              std::numeric_limits<float>::quiet_NaN()};

/// All combinations of special values for up to two inputs, then random ones.
std::vector<std::vector<float>> real_inputs(int inputs, std::size_t random_count) {
  std::vector<std::vector<float>> columns(static_cast<std::size_t>(inputs));
  std::mt19937_64 random(7);
  const auto sample = [&]() -> float {
    switch (random() % 4) {
      case 0:
        return std::bit_cast<float>(static_cast<std::uint32_t>(random()));
      case 1:
        return static_cast<float>(static_cast<std::int64_t>(random() % 2001) - 1000) / 64;
      case 2:
        return static_cast<float>(std::ldexp(static_cast<double>(random() % 100000) / 50000 - 1,
                                             static_cast<int>(random() % 8) - 3));
      default:
        return static_cast<float>(std::ldexp(static_cast<double>(random() % 100000) / 50000 - 1,
                                             static_cast<int>(random() % 60) - 30));
    }
  };
  for (const float a : kSpecial) {
    for (const float b : kSpecial) {
      columns[0].push_back(a);
      if (inputs > 1) columns[1].push_back(b);
      for (std::size_t i = 2; i < columns.size(); ++i)
        columns[i].push_back(kSpecial[random() % std::size(kSpecial)]);
    }
  }
  for (std::size_t i = 0; i < random_count; ++i)
    for (auto& column : columns) column.push_back(sample());
  return columns;
}

}  // namespace

// ----------------------------------------------------------------------------------------- results

TEST(every_op_in_fp32_is_as_exact_as_promised) {
  for (const OpInfo& info : kOps) {
    if (info.kind != OpKind::pointwise || !info.fp32 || info.op == OpFunc::erfinv) continue;
    const auto reference = real_references().find(info.op);
    if (reference == real_references().end()) {
      check::fail(__FILE__, __LINE__, std::string(info.name) + " has no reference");
      continue;
    }
    const auto columns = real_inputs(info.inputs, 20000);
    const std::size_t n = columns[0].size();
    std::vector<Bytes> operands;
    for (const auto& column : columns) operands.push_back(bytes_of(column));
    operands.push_back(Bytes(n * 4));
    const auto constants = constants_for(info.op);
    run(*decoded(dense_op(info, static_cast<std::int64_t>(n), DataFormat::IEEE_FP32,
                          DataFormat::IEEE_FP32, Compute::fp32, constants)),
        operands);
    const auto results = values_of<float>(operands.back());
    double worst = 0;
    for (std::size_t i = 0; i < n; ++i) {
      double x[5] = {}, largest = 0;
      for (std::size_t k = 0; k < columns.size(); ++k) {
        x[k] = columns[k][i];
        largest = std::max(largest, std::fabs(x[k]));
      }
      const double expected = reference->second.value(x, constants.data());
      const double off = ulps_between(results[i], expected);
      const bool close = reference->second.absolute > 0 &&
                         std::fabs(results[i] - expected) < reference->second.absolute * largest;
      if (!close) worst = std::max(worst, off);
      if (off > std::max(0.5, reference->second.ulps) && !close)
        check::fail(__FILE__, __LINE__, described(info, x, results[i], expected));
      CHECK(results[i] == results[i] || std::bit_cast<std::uint32_t>(results[i]) == 0x7FC00000);
    }
    if (info.cost == Cost::transcendental)
      std::printf("     %-14s at most %.4f ulp\n", info.name, worst);
  }
}

TEST(every_op_in_dl16_is_rounded_once_to_the_nearest) {
  for (const OpInfo& info : kOps) {
    if (info.kind != OpKind::pointwise || !info.fp32 || info.op == OpFunc::erfinv) continue;
    const RealReference& reference = real_references().at(info.op);
    const auto columns = real_inputs(info.inputs, 10000);
    const std::size_t n = columns[0].size();
    std::vector<Bytes> operands;
    std::vector<std::vector<float>> inputs;
    for (const auto& column : columns) {
      std::vector<std::uint16_t> codes;
      auto& values = inputs.emplace_back();
      for (const float value : column) {
        codes.push_back(dl16_from_float(value));
        values.push_back(dl16_to_float(codes.back()));
      }
      operands.push_back(bytes_of(codes));
    }
    operands.push_back(Bytes(n * 2));
    const auto constants = constants_for(info.op);
    run(*decoded(dense_op(info, static_cast<std::int64_t>(n), DataFormat::SEN169_FP16,
                          DataFormat::SEN169_FP16, Compute::fp32, constants)),
        operands);
    const auto results = values_of<std::uint16_t>(operands.back());
    for (std::size_t i = 0; i < n; ++i) {
      double x[5] = {};
      for (std::size_t k = 0; k < inputs.size(); ++k) x[k] = inputs[k][i];
      const double expected = reference.value(x, constants.data());
      // Through fp32, as the card does it; a value half way between two codes may go either way.
      const int code = dl16_from_float(static_cast<float>(expected)), got = results[i];
      const bool close = reference.ulps > 0 && std::abs((code & 0x7FFF) - (got & 0x7FFF)) <= 1;
      const bool zeros = (code & 0x7FFF) == 0 && (got & 0x7FFF) == 0;
      if (code != got && !close && !zeros)
        check::fail(__FILE__, __LINE__, described(info, x, dl16_to_float(results[i]), expected));
    }
  }
}

TEST(every_op_on_integers_is_exact_and_wraps) {
  std::mt19937_64 random(3);
  const std::int64_t special[] = {
      0, 1, -1, 2, -2, 3, 7, -7, 31, 32, 33, 63, 64, 65, INT32_MAX, INT32_MIN, INT32_MAX - 1, 100};
  for (const OpInfo& info : kOps) {
    if (info.kind != OpKind::pointwise || !info.int64) continue;
    const auto reference = whole_references().find(info.op);
    if (reference == whole_references().end()) {
      check::fail(__FILE__, __LINE__, std::string(info.name) + " has no reference");
      continue;
    }
    std::vector<std::vector<std::int64_t>> columns(static_cast<std::size_t>(info.inputs));
    for (const std::int64_t a : special)
      for (const std::int64_t b : special)
        for (std::size_t k = 0; k < columns.size(); ++k)
          columns[k].push_back(k == 0 ? a : k == 1 ? b : special[random() % std::size(special)]);
    for (int i = 0; i < 3000; ++i)
      for (auto& column : columns)
        column.push_back(static_cast<std::int32_t>(random()) >> (random() % 32));
    if (info.op == OpFunc::pow)
      for (std::int64_t& exponent : columns[1]) exponent %= 100000;
    const std::size_t n = columns[0].size();
    const auto constants = constants_for(info.op);
    std::int64_t k[3] = {};
    for (std::size_t i = 0; i < constants.size(); ++i)
      k[i] = static_cast<std::int64_t>(constants[i]);
    for (const DataFormat format :
         {DataFormat::IEEE_INT32, DataFormat::IEEE_INT64, DataFormat::SENINT8, DataFormat::SENINT16,
          DataFormat::SENUINT32}) {
      // Values as the format holds them, and bits as it stores them.
      std::vector<Bytes> operands;
      std::vector<std::vector<std::int64_t>> inputs;
      for (const auto& column : columns) {
        Bytes stored(n * static_cast<std::size_t>(element_bytes(format)));
        convert(DataFormat::IEEE_INT64, column.data(), format, stored.data(), n);
        auto& values = inputs.emplace_back(n);
        convert(format, stored.data(), DataFormat::IEEE_INT64, values.data(), n);
        operands.push_back(std::move(stored));
      }
      operands.push_back(Bytes(operands[0].size()));
      run(*decoded(dense_op(info, static_cast<std::int64_t>(n), format, format, Compute::int64,
                            constants)),
          operands);
      for (std::size_t i = 0; i < n; ++i) {
        std::int64_t x[5] = {}, got = 0;
        for (std::size_t c = 0; c < inputs.size(); ++c) x[c] = inputs[c][i];
        if (info.op == OpFunc::pow && x[1] > 100000) continue;  // a uint32 that was negative
        const std::int64_t exact = reference->second(x, k);
        const auto width = static_cast<std::size_t>(element_bytes(format));
        std::memcpy(&got, operands.back().data() + i * width, width);
        std::int64_t expected = 0;
        std::memcpy(&expected, &exact, width);
        if (got != expected)
          check::fail(__FILE__, __LINE__,
                      std::string(info.name) + "(" + std::to_string(x[0]) + ", " +
                          std::to_string(x[1]) + ") in " + spyre::format_info(format).name);
      }
    }
  }
}

TEST(erfinv_is_the_inverse_of_erf) {
  std::vector<float> y;
  for (int i = -9999; i <= 9999; ++i) y.push_back(static_cast<float>(i) / 10000);
  for (int i = 1; i < 25; ++i) y.push_back(static_cast<float>(1 - std::ldexp(1, -i)));
  for (int i = 1; i < 100; ++i) y.push_back(static_cast<float>(std::ldexp(1.25, -i)));
  const std::size_t n = y.size();
  y.insert(y.end(), {1, -1, 1.5f, -2, std::numeric_limits<float>::quiet_NaN()});
  std::vector<Bytes> operands = {bytes_of(y), Bytes(y.size() * 4)};
  run(*decoded(dense_op(spyre::op_info(OpFunc::erfinv), static_cast<std::int64_t>(y.size()),
                        DataFormat::IEEE_FP32, DataFormat::IEEE_FP32, Compute::fp32, {})),
      operands);
  const auto x = values_of<float>(operands[1]);
  for (std::size_t i = 0; i < n; ++i) {
    // Newton's method from the result: in double, it ends at the exact value.
    double exact = x[i];
    for (int step = 0; step < 3; ++step) {
      exact -= (std::erf(exact) - y[i]) * std::exp(exact * exact) * std::sqrt(M_PI) / 2;
    }
    if (ulps_between(x[i], exact) > 2) {
      const double input = y[i];
      check::fail(__FILE__, __LINE__,
                  described(spyre::op_info(OpFunc::erfinv), &input, x[i], exact));
    }
  }
  CHECK(std::isinf(x[n]) && x[n] > 0 && std::isinf(x[n + 1]) && x[n + 1] < 0);
  CHECK(x[n + 2] != x[n + 2] && x[n + 3] != x[n + 3] && x[n + 4] != x[n + 4]);
}

TEST(signed_zeros_are_those_of_ieee) {
  const auto result = [](OpFunc op, std::vector<float> inputs) {
    std::vector<Bytes> operands;
    for (const float input : inputs) operands.push_back(bytes_of(std::vector<float>{input}));
    operands.push_back(Bytes(4));
    run(*decoded(dense_op(spyre::op_info(op), 1, DataFormat::IEEE_FP32, DataFormat::IEEE_FP32,
                          Compute::fp32, constants_for(op))),
        operands);
    return values_of<float>(operands.back())[0];
  };
  for (const OpFunc op :
       {OpFunc::sin, OpFunc::tan, OpFunc::asin, OpFunc::atan, OpFunc::sinh, OpFunc::tanh,
        OpFunc::asinh, OpFunc::atanh, OpFunc::erf, OpFunc::expm1, OpFunc::log1p, OpFunc::sqrt,
        OpFunc::floor, OpFunc::ceil, OpFunc::trunc, OpFunc::round, OpFunc::erfinv}) {
    CHECK(std::signbit(result(op, {-0.f})));
    CHECK(!std::signbit(result(op, {0.f})));
  }
  CHECK(std::signbit(result(OpFunc::ceil, {-0.5f})) &&
        std::signbit(result(OpFunc::round, {-0.5f})));
  CHECK(std::signbit(result(OpFunc::fmod, {-4, 2})) &&
        !std::signbit(result(OpFunc::fmod, {4, -2})));
  CHECK(std::signbit(result(OpFunc::mul, {-0.f, 1})) &&
        std::signbit(result(OpFunc::realdiv, {1, -INFINITY})));
  CHECK(std::signbit(result(OpFunc::pow, {-0.f, 3})) &&
        !std::signbit(result(OpFunc::pow, {-0.f, 2})));
  CHECK(std::isinf(result(OpFunc::reciprocal, {-0.f})));
}

TEST(every_vector_width_gives_the_same_bits) {
  const PointwiseKernels* levels[] = {
      &baseline::pointwise_kernels,
#if defined(__x86_64__)
      simd_available(SimdLevel::avx2) ? &avx2::pointwise_kernels : nullptr,
      simd_available(SimdLevel::avx512) ? &avx512::pointwise_kernels : nullptr,
#endif
  };
  for (std::size_t entry = 0; levels[0]->ops[entry].op != OpFunc{}; ++entry) {
    const OpInfo& info = spyre::op_info(levels[0]->ops[entry].op);
    CHECK_EQ(levels[0]->ops[entry].fp32 != nullptr, info.fp32);
    CHECK_EQ(levels[0]->ops[entry].int64 != nullptr, info.int64);
    auto constants = constants_for(info.op);
    constants.resize(kMaxConstants);
    const auto columns = real_inputs(info.inputs, 3000);
    const std::size_t n = columns[0].size();
    std::vector<std::vector<std::int64_t>> whole;
    for (const auto& column : columns) {
      auto& values = whole.emplace_back();
      for (const float value : column) values.push_back(std::bit_cast<std::int32_t>(value) >> 12);
    }
    std::vector<float> first;
    std::vector<std::int64_t> first_whole;
    for (const PointwiseKernels* level : levels) {
      if (!level) continue;
      const void* in[kMaxInputs];
      if (info.fp32) {
        for (std::size_t k = 0; k < columns.size(); ++k) in[k] = columns[k].data();
        std::vector<float> result(n), clean(n);
        level->ops[entry].fp32(in, result.data(), constants.data(), n);
        level->clean_fp32(result.data(), clean.data(), n);
        if (first.empty()) first = clean;
        CHECK(std::memcmp(first.data(), clean.data(), n * 4) == 0);
      }
      if (info.int64 && info.op != OpFunc::pow) {
        for (std::size_t k = 0; k < whole.size(); ++k) in[k] = whole[k].data();
        std::vector<std::int64_t> result(n);
        level->ops[entry].int64(in, result.data(), constants.data(), n);
        if (first_whole.empty()) first_whole = result;
        CHECK(first_whole == result);
      }
    }
  }
}

TEST(formats_mix_and_results_narrow) {
  // int32 / uint32 in fp32 to DL16; a comparison of integers to a bool, which is DL16 on the card.
  Pointwise divide = dense_op(spyre::op_info(OpFunc::realdiv), 3, DataFormat::IEEE_INT32,
                              DataFormat::SEN169_FP16, Compute::fp32, {});
  divide.inputs[1].format = DataFormat::SENUINT32;
  std::vector<Bytes> operands = {bytes_of(std::vector<std::int32_t>{1, -7, 9}),
                                 bytes_of(std::vector<std::uint32_t>{4, 2, 0}), Bytes(6)};
  run(*decoded(divide), operands);
  const auto codes = values_of<std::uint16_t>(operands[2]);
  CHECK_EQ(dl16_to_float(codes[0]), 0.25f);
  CHECK_EQ(dl16_to_float(codes[1]), -3.5f);
  CHECK(std::isinf(dl16_to_float(codes[2])));
  run(*decoded(dense_op(spyre::op_info(OpFunc::greaterthan), 3, DataFormat::IEEE_INT32,
                        DataFormat::SEN169_FP16, Compute::int64, {})),
      operands);
  CHECK_EQ(values_of<std::uint16_t>(operands[2])[2], dl16_from_float(1));
  CHECK_EQ(values_of<std::uint16_t>(operands[2])[1], 0);

  Pointwise add = dense_op(spyre::op_info(OpFunc::add), 3, DataFormat::IEEE_INT32,
                           DataFormat::SENUINT32, Compute::int64, {});
  operands = {bytes_of(std::vector<std::int32_t>{250, -1, 0}),
              bytes_of(std::vector<std::int32_t>{10, 0, 0}), Bytes(12)};
  add.output.narrow = Narrow::uint8;
  run(*decoded(add), operands);
  CHECK((values_of<std::uint32_t>(operands[2]) == std::vector<std::uint32_t>{4, 255, 0}));
  add.output.narrow = Narrow::boolean;
  run(*decoded(add), operands);
  CHECK((values_of<std::uint32_t>(operands[2]) == std::vector<std::uint32_t>{1, 1, 0}));
}

TEST(an_input_can_be_a_scalar) {
  for (const bool first : {false, true}) {
    Pointwise sub = dense_op(spyre::op_info(OpFunc::sub), 3000, DataFormat::IEEE_FP32,
                             DataFormat::IEEE_FP32, Compute::fp32, {});
    sub.inputs[first ? 0 : 1] = Pointwise::Input::scalar(2.5);
    sub.nests = {{{{3000, {1, 1}}}, {0, 0}}};
    std::vector<float> x(3000);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i);
    std::vector<Bytes> operands = {bytes_of(x), bytes_of(x), Bytes(12000)};
    run(*decoded(sub), operands);
    const auto result = values_of<float>(operands[2]);
    for (std::size_t i = 0; i < x.size(); ++i)
      CHECK_EQ(result[i], first ? 2.5f - x[i] : x[i] - 2.5f);
  }
  Pointwise fill = dense_op(spyre::op_info(OpFunc::identity), 5, DataFormat::IEEE_INT32,
                            DataFormat::IEEE_INT32, Compute::int64, {});
  fill.inputs[0] = Pointwise::Input::scalar(-7);
  fill.nests = {{{{5, {1}}}, {0}}};
  std::vector<Bytes> operands = {Bytes(), Bytes(20)};
  run(*decoded(fill), operands);
  CHECK((values_of<std::int32_t>(operands[1]) == std::vector<std::int32_t>(5, -7)));
}
