// Matrix products one element at a time, in double, and cases to hold the card's against.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <set>
#include <vector>

#include "formats/formats.h"
#include "kernels/matmul.h"
#include "spyre/program.h"

namespace spyre::card::test {

using Random = std::mt19937_64;

inline std::int64_t lanes(DataFormat format) { return format_info(format).elems_per_stick; }
inline bool is_float(DataFormat format) { return format_info(format).kind == FormatKind::floating; }

/// Calls body(std::integral_constant<DataFormat>) for a format that can be multiplied.
template <class Body>
auto with_format(DataFormat format, Body&& body) {
  using F = DataFormat;
  switch (format) {
#define SPYRE_CASE(name) \
  case F::name:          \
    return body(std::integral_constant<F, F::name>())
    SPYRE_CASE(SEN169_FP16);
    SPYRE_CASE(IEEE_FP32);
    SPYRE_CASE(SEN143_FP8);
    SPYRE_CASE(SEN152_FP8);
    SPYRE_CASE(SENINT8);
    SPYRE_CASE(SENINT16);
    SPYRE_CASE(IEEE_INT32);
    SPYRE_CASE(SENUINT32);
    SPYRE_CASE(IEEE_FP16);
    SPYRE_CASE(BFLOAT16);
#undef SPYRE_CASE
    default:
      throw std::logic_error("no such case");
  }
}

/// One operand in host memory that is exactly as large as what is touched.
struct Buffer {
  DataFormat format = DataFormat::SEN169_FP16;
  std::vector<std::byte> bytes;
  Dl16Specials specials = Dl16Specials::ieee;

  double value(std::int64_t index) const {
    return with_format(format, [&](auto constant) {
      constexpr DataFormat f = decltype(constant)::value;
      BitsOf<f> bits;
      std::memcpy(&bits, &bytes.at(static_cast<std::size_t>(index) * sizeof bits), sizeof bits);
      return static_cast<double>(decode<f>(bits, specials));
    });
  }
  std::uint64_t bits(std::int64_t index) const {
    const auto width = static_cast<std::size_t>(element_bytes(format));
    std::uint64_t result = 0;
    std::memcpy(&result, &bytes.at(static_cast<std::size_t>(index) * width), width);
    return result;
  }
  void set(std::int64_t index, double value) {
    const std::uint64_t code = encoded(value);
    const auto width = static_cast<std::size_t>(element_bytes(format));
    std::memcpy(&bytes.at(static_cast<std::size_t>(index) * width), &code, width);
  }
  /// Rounded once, or wrapped.
  std::uint64_t encoded(double value) const {
    return with_format(format, [&](auto constant) -> std::uint64_t {
      return encode<decltype(constant)::value>(value, specials);
    });
  }
};

inline std::int64_t left_place(const Matmul& p, std::int64_t m, std::int64_t k) {
  const std::int64_t eps = lanes(p.a.format);
  return p.a.offset + m * p.a.m_stride + k / eps * p.a.k_stick_stride + k % eps * p.a.k_lane_stride;
}
inline std::int64_t right_place(const Matmul& p, std::int64_t k, std::int64_t n) {
  const bool along_n = p.b.sticks == Matmul::Sticks::along_n;
  const std::int64_t eps = lanes(p.b.format), stick = along_n ? n : k, line = along_n ? k : n;
  return p.b.offset + line * p.b.stride + stick / eps * p.b.stick_stride + stick % eps;
}
inline std::int64_t result_place(const Matmul& p, std::int64_t m, std::int64_t n) {
  const std::int64_t eps = lanes(p.c.format);
  return p.c.offset + m * p.c.m_stride + n / eps * p.c.n_stick_stride + n % eps;
}
inline std::int64_t bias_place(const Matmul& p, std::int64_t m, std::int64_t n) {
  const std::int64_t eps = lanes(p.bias.format);
  return p.bias.offset + m * p.bias.m_stride + n / eps * p.bias.n_stick_stride +
         n % eps * p.bias.n_lane_stride;
}

/// Calls body(offset of A, of B, of C, of the bias) for every batch.
template <class Body>
void each_batch(const Matmul& p, Body&& body) {
  std::int64_t count = 1;
  for (const Matmul::Batch& dim : p.batch) count *= dim.size;
  for (std::int64_t i = 0; i < count; ++i) {
    std::int64_t rest = i, a = 0, b = 0, c = 0, bias = 0;
    for (const Matmul::Batch& dim : p.batch) {
      const std::int64_t at = rest % dim.size;
      rest /= dim.size;
      a += at * dim.a, b += at * dim.b, c += at * dim.c, bias += at * dim.bias;
    }
    body(a, b, c, bias);
  }
}

/// A product with all its operands.
struct MatmulCase {
  Matmul product;
  Buffer a, b, c, bias;

  /// Random values in every element that is read; whole numbers up to `most` if it is not 0.
  void fill(Random& random, int most) {
    a.format = product.a.format, b.format = product.b.format, c.format = product.c.format;
    bias.format = product.bias.format;
    const auto draw = [&](DataFormat format) -> double {
      if (most > 0 || !is_float(format)) {
        const int limit = most > 0 ? most : 100;
        const int low = format == DataFormat::SENUINT32 ? 0 : -limit;
        return std::uniform_int_distribution<int>(low, limit)(random);
      }
      return std::normal_distribution<double>()(random);
    };
    const auto put = [&](Buffer& buffer, std::int64_t index) {
      const auto end = static_cast<std::size_t>((index + 1) * element_bytes(buffer.format));
      // What lies between is NaN where there is one: nobody may read it.
      if (buffer.bytes.size() < end) buffer.bytes.resize(end, std::byte{0xFF});
      buffer.set(index, draw(buffer.format));
    };
    each_batch(product, [&](auto at_a, auto at_b, auto at_c, auto at_bias) {
      for (std::int64_t k = 0; k < product.k; ++k) {
        for (std::int64_t m = 0; m < product.m; ++m) put(a, at_a + left_place(product, m, k));
        for (std::int64_t n = 0; n < product.n; ++n) put(b, at_b + right_place(product, k, n));
      }
      for (std::int64_t m = 0; m < product.m; ++m) {
        for (std::int64_t n = 0; n < product.n; ++n) {
          put(c, at_c + result_place(product, m, n));
          if (product.bias.operand >= 0) put(bias, at_bias + bias_place(product, m, n));
        }
      }
    });
  }

  std::vector<std::byte> run(const MatmulMode& mode,
                             ThreadPool& pool = ThreadPool::shared()) const {
    std::vector<std::byte> result = c.bytes;
    MatmulPlan(product, mode)
        .run({a.bytes.data(), b.bytes.data(), result.data(),
              product.bias.operand < 0 ? nullptr : bias.bytes.data()},
             pool);
    return result;
  }

  /// Calls body(place, value, magnitude) for every element of C: its exact value, and the sum of
  /// all that was added up without signs.
  template <class Body>
  void each_result(Body&& body) const {
    each_batch(product, [&](auto at_a, auto at_b, auto at_c, auto at_bias) {
      for (std::int64_t m = 0; m < product.m; ++m) {
        for (std::int64_t n = 0; n < product.n; ++n) {
          double sum = 0, magnitude = 0;
          for (std::int64_t k = 0; k < product.k; ++k) {
            const double term = a.value(at_a + left_place(product, m, k)) *
                                b.value(at_b + right_place(product, k, n));
            sum += term, magnitude += std::abs(term);
          }
          sum *= product.alpha, magnitude *= std::abs(product.alpha);
          if (product.bias.operand >= 0 && product.beta != 0) {
            const double added = product.beta * bias.value(at_bias + bias_place(product, m, n));
            sum += added, magnitude += std::abs(added);
          }
          body(at_c + result_place(product, m, n), sum, magnitude);
        }
      }
    });
  }
};

/// Offsets and strides for the sizes and formats of a product, in any order, with gaps; batches may
/// be shared.
inline void lay_out(Matmul& product, Random& random) {
  const auto chance = [&](int percent) { return static_cast<int>(random() % 100) < percent; };
  /// Gives each dimension, in random order, a stride that steps over those before it.
  const auto strides = [&](std::vector<std::pair<std::int64_t, std::int64_t*>> dims,
                           std::int64_t reached, bool may_share) {
    std::shuffle(dims.begin(), dims.end(), random);
    for (auto& [size, stride] : dims) {
      if (may_share && chance(20)) {
        *stride = 0;
        continue;
      }
      *stride = reached + (chance(30) ? static_cast<std::int64_t>(random() % 70) : 0);
      reached = *stride * std::max<std::int64_t>(size, 1);
    }
  };
  const auto sticks = [](std::int64_t size, DataFormat format) {
    return (size + lanes(format) - 1) / lanes(format);
  };
  const auto offset = [&] { return static_cast<std::int64_t>(random() % 3 * 13); };
  const bool along_n = product.b.sticks == Matmul::Sticks::along_n;
  std::vector<std::pair<std::int64_t, std::int64_t*>> a, b, c, bias;
  for (Matmul::Batch& dim : product.batch) {
    a.emplace_back(dim.size, &dim.a), b.emplace_back(dim.size, &dim.b);
    c.emplace_back(dim.size, &dim.c), bias.emplace_back(dim.size, &dim.bias);
  }
  strides(a, 0, true), strides(b, 0, true), strides(bias, 0, true);  // then those that stay follow
  a.emplace_back(product.m, &product.a.m_stride);
  a.emplace_back(sticks(product.k, product.a.format), &product.a.k_stick_stride);
  product.a.k_lane_stride = chance(15) ? 3 : 1;
  strides(a, lanes(product.a.format) * product.a.k_lane_stride, chance(30));
  b.emplace_back(along_n ? product.k : product.n, &product.b.stride);
  b.emplace_back(sticks(along_n ? product.n : product.k, product.b.format),
                 &product.b.stick_stride);
  strides(b, lanes(product.b.format), chance(30));
  c.emplace_back(product.m, &product.c.m_stride);
  c.emplace_back(sticks(product.n, product.c.format), &product.c.n_stick_stride);
  strides(c, lanes(product.c.format), false);
  bias.emplace_back(product.m, &product.bias.m_stride);
  bias.emplace_back(sticks(product.n, product.bias.format), &product.bias.n_stick_stride);
  product.bias.n_lane_stride = chance(20) ? 0 : 1;
  strides(bias, lanes(product.bias.format), chance(50));
  product.a.offset = offset(), product.b.offset = offset();
  product.c.offset = offset(), product.bias.offset = offset();
}

/// The levels that this machine has.
inline std::vector<SimdLevel> simd_levels() {
  std::vector<SimdLevel> levels;
  for (SimdLevel level : {SimdLevel::baseline, SimdLevel::avx2, SimdLevel::avx512})
    if (simd_available(level)) levels.push_back(level);
  return levels;
}

}  // namespace spyre::card::test
