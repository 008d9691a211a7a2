// Short ways through exp and division give the bits of the long ones, at every vector width.
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "check.h"
#include "formats/convert.h"
#include "kernels/pointwise.h"

using namespace spyre::card;
using spyre::OpFunc;

namespace {

using Values = std::vector<float>;

std::vector<const PointwiseKernels*> levels() {
  std::vector<const PointwiseKernels*> all{&baseline::pointwise_kernels};
#if defined(__x86_64__)
  if (simd_available(SimdLevel::avx2)) all.push_back(&avx2::pointwise_kernels);
  if (simd_available(SimdLevel::avx512)) all.push_back(&avx512::pointwise_kernels);
#endif
  return all;
}

Values unary(const PointwiseKernels& kernels, OpFunc op, const Values& x) {
  const PointwiseKernels::Op* entry = kernels.ops;
  while (entry->op != op) ++entry;
  Values result(x.size());
  const void* const in[] = {x.data()};
  const double constants[kMaxConstants] = {};
  entry->fp32(in, result.data(), constants, x.size());
  return result;
}

Values divided(const PointwiseKernels& kernels, const Values& x, float number) {
  const PointwiseKernels::NumberOp* entry = kernels.number_ops;
  while (entry->op != OpFunc::realdiv) ++entry;
  Values result(x.size());
  entry->second(x.data(), number, result.data(), x.size());
  return result;
}

bool same_bits(float a, float b) {
  return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b) || (a != a && b != b);
}

/// Any finite number whose exponent is between these.
float any_float(std::mt19937& random, int low, int high) {
  const auto exponent =
      static_cast<std::uint32_t>(127 + std::uniform_int_distribution<>(low, high)(random));
  return std::bit_cast<float>((static_cast<std::uint32_t>(random()) & 0x807FFFFF) | exponent << 23);
}

}  // namespace

TEST(exp_is_within_one_unit_at_every_vector_width) {
  Values x;
  std::mt19937 random(1);
  for (int i = 0; i < 200000; ++i)
    x.push_back(std::uniform_real_distribution<float>(-110, 90)(random));
  for (int i = 0; i < 20000; ++i) x.push_back(any_float(random, -60, 3));
  Values first;
  for (const PointwiseKernels* kernels : levels()) {
    const Values result = unary(*kernels, OpFunc::exp, x);
    if (first.empty()) first = result;
    CHECK(std::memcmp(first.data(), result.data(), x.size() * sizeof(float)) == 0);
  }
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double wanted = std::exp(static_cast<double>(x[i]));
    if (wanted > std::numeric_limits<float>::max()) {
      CHECK(std::isinf(first[i]));
      continue;
    }
    const int exponent = std::max(std::ilogb(wanted), -126);
    CHECK(std::abs(first[i] - wanted) <= std::ldexp(1.0, exponent - 23));
  }
}

TEST(a_run_of_usual_numbers_gives_the_bits_that_each_gives_beside_unusual_ones) {
  const float unusual[] = {std::numeric_limits<float>::infinity(),
                           -std::numeric_limits<float>::infinity(),
                           std::numeric_limits<float>::quiet_NaN(),
                           87,
                           -87,
                           -103,
                           -1e30f,
                           1e30f};
  std::mt19937 random(2);
  for (const std::size_t size : {1u, 17u, 64u, 511u, 512u, 513u, 3000u}) {
    Values x(size);
    for (float& each : x) each = std::uniform_real_distribution<float>(-86, 86)(random);
    x[0] = 86;
    x[size / 2] = -86;
    for (const OpFunc op : {OpFunc::exp, OpFunc::sigmoid, OpFunc::silu})
      for (const PointwiseKernels* kernels : levels()) {
        const Values usual = unary(*kernels, op, x);
        for (const float other : unusual) {
          Values mixed;
          for (const float each : x) mixed.insert(mixed.end(), {each, other});
          const Values result = unary(*kernels, op, mixed);
          for (std::size_t i = 0; i < size; ++i) CHECK(same_bits(result[2 * i], usual[i]));
        }
      }
  }
}

TEST(division_by_a_number_is_exact) {
  std::mt19937 random(3);
  const auto check = [](const Values& x, float number) {
    for (const PointwiseKernels* kernels : levels()) {
      const Values result = divided(*kernels, x, number);
      for (std::size_t i = 0; i < x.size(); ++i) CHECK(same_bits(result[i], x[i] / number));
    }
  };
  // Significands at both ends, where reciprocals have the largest errors, and any others.
  Values plain;
  for (int i = 0; i < 1000; ++i) plain.push_back(any_float(random, -89, 89));
  for (std::uint32_t i = 0; i < 64; ++i) {
    plain.push_back(std::bit_cast<float>(0x3F800000u + i));
    plain.push_back(std::bit_cast<float>(0x3F800000u - i));
    plain.push_back(std::bit_cast<float>(0xBFC00000u + i));
  }
  plain.insert(plain.end(), {0.0f, -0.0f});
  for (int i = 0; i < 1500; ++i) check(plain, any_float(random, -29, 29));
  for (std::uint32_t i = 0; i < 64; ++i) {
    check(plain, std::bit_cast<float>(0x3F800000u + i));
    check(plain, std::bit_cast<float>(0x3FFFFFFFu - i));
    check(plain, std::bit_cast<float>(0xBFFFFFFFu - i));
  }
  // One that needs a true division makes its neighbours take it too.
  const float inf = std::numeric_limits<float>::infinity(), nan = std::nanf("");
  for (const float other :
       {-0.0f, inf, -inf, nan, 0x1p-91f, 0x1p-149f, 0x1p91f, -0x1.fffffep127f}) {
    Values x = plain;
    x[7] = other;
    for (const float number : {3.0f, -0.1f, 0x1.fffffep-1f}) check(x, number);
  }
  for (const float number : {0.0f, -0.0f, inf, -inf, nan, 0x1p-31f, 0x1p-149f, 0x1p31f, 0x1p127f})
    check(plain, number);
}
