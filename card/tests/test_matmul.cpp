// Matrix products: values, against a reference in double.
#include "check.h"
#include "matmul_reference.h"

using namespace spyre::card;
using namespace spyre::card::test;
using spyre::DataFormat;

namespace {

using F = DataFormat;
constexpr F kAllFormats[] = {F::SEN169_FP16, F::IEEE_FP32,  F::SEN143_FP8, F::SEN152_FP8,
                             F::SENINT8,     F::IEEE_INT32, F::SENINT16,   F::SENUINT32,
                             F::IEEE_FP16,   F::BFLOAT16};

Matmul product_of(std::int64_t m, std::int64_t n, std::int64_t k, F a = F::SEN169_FP16,
                  F b = F::SEN169_FP16, F c = F::SEN169_FP16) {
  Matmul product;
  product.m = m, product.n = n, product.k = k;
  product.a.format = a, product.b.format = b, product.c.format = c;
  product.bias.format = c;
  return product;
}

MatmulMode mode_at(SimdLevel level, Dl16Specials specials = Dl16Specials::ieee) {
  return {level, specials, Accumulation::fp32};
}

/// At every level: the bits of every element of C are those of the exact result, rounded once;
/// nothing else of C has changed.
void check_exact(const MatmulCase& test, MatmulMode mode = {}) {
  Buffer expected = test.c;
  test.each_result([&](std::int64_t place, double value, double) { expected.set(place, value); });
  for (const SimdLevel level : simd_levels()) {
    mode.simd = level;
    CHECK(test.run(mode) == expected.bytes);
  }
}

/// At every level: every element of C is as near to the exact result as sums in float and one
/// rounding allow; nothing else of C has changed.
void check_near(const MatmulCase& test) {
  struct Result {
    std::int64_t place;
    double value, magnitude;
  };
  std::vector<Result> results;
  test.each_result([&](std::int64_t place, double value, double magnitude) {
    results.push_back({place, value, magnitude});
  });
  const double last_bit = test.c.format == F::IEEE_FP32     ? 0x1p-23
                          : test.c.format == F::SEN143_FP8  ? 0x1p-3
                          : test.c.format == F::SEN152_FP8  ? 0x1p-2
                          : test.c.format == F::SEN169_FP16 ? 0x1p-9
                          : test.c.format == F::IEEE_FP16   ? 0x1p-10
                                                            : 0x1p-7;
  const double smallest = !is_float(test.c.format)         ? 1.0
                          : test.c.format == F::SEN143_FP8 ? 0x1p-9
                                                           : 0x1p-16;
  const auto width = static_cast<std::size_t>(element_bytes(test.c.format));
  for (const SimdLevel level : simd_levels()) {
    Buffer result = test.c, untouched = test.c;
    result.bytes = test.run(mode_at(level));
    for (const auto& [place, value, magnitude] : results) {
      const double got = result.value(place);
      // The rounding to C, and float's on the way there.
      const double tolerance = std::max(std::abs(value) * last_bit, smallest) +
                               magnitude * 0x1p-22 * std::sqrt(test.product.k + 4.0);
      // Integers wrap: near is so, too, what lies on the other side of the border.
      const double distance =
          is_float(test.c.format)
              ? got - value
              : std::remainder(got - value, std::exp2(8.0 * static_cast<double>(width)));
      if (!(std::abs(distance) <= tolerance)) {
        Buffer rounded = test.c;
        rounded.set(place, value);
        CHECK_EQ(got, rounded.value(place));  // also right if both overflow
      }
      const std::size_t at = static_cast<std::size_t>(place) * width;
      std::memcpy(&untouched.bytes[at], &result.bytes[at], width);
    }
    CHECK(result.bytes == untouched.bytes);
  }
}

}  // namespace

TEST(whole_numbers_are_exact_in_all_formats) {
  Random random(1);
  for (const F a : kAllFormats) {
    for (const F b : kAllFormats) {
      for (const F c : kAllFormats) {
        Matmul product =
            product_of(1 + random() % 20, 1 + random() % 140, 1 + random() % 140, a, b, c);
        product.b.sticks = static_cast<Matmul::Sticks>(random() % 2);
        if (random() % 2) product.bias.operand = 3;
        product.alpha = random() % 2 ? 1 : 2, product.beta = random() % 2 ? 1 : -3;
        lay_out(product, random);
        MatmulCase test{product, {}, {}, {}, {}};
        test.fill(random, 3);
        check_exact(test);
      }
    }
  }
}

TEST(random_shapes_and_layouts_agree_with_double) {
  Random random(2);
  for (int round = 0; round < 300; ++round) {
    const auto size = [&] { return static_cast<std::int64_t>(1 + random() % 130); };
    const auto format = [&] {
      return random() % 2 ? F::SEN169_FP16 : kAllFormats[random() % std::size(kAllFormats)];
    };
    Matmul product = product_of(random() % 2 ? 1 + static_cast<std::int64_t>(random() % 9) : size(),
                                size(), size(), format(), format(), format());
    product.b.sticks = static_cast<Matmul::Sticks>(random() % 2);
    product.bias.operand = random() % 2 ? 3 : -1;
    product.bias.format = format();
    if (!integer_product(product) && random() % 2) product.alpha = 0.3, product.beta = -1.7;
    for (std::uint64_t dims = random() % 3; dims > 0; --dims)
      product.batch.push_back({static_cast<std::int64_t>(1 + random() % 3), 0, 0, 0, 0});
    lay_out(product, random);
    MatmulCase test{product, {}, {}, {}, {}};
    test.fill(random, 0);
    check_near(test);
  }
}

TEST(long_sums_and_wide_results_cross_all_block_borders) {
  Random random(3);
  const std::int64_t shapes[][3] = {{1, 70, 8300},  {4, 200, 4096},  {7, 65, 4160},  {8, 64, 9001},
                                    {20, 40, 1000}, {350, 130, 260}, {30, 1100, 70}, {700, 33, 513},
                                    {1, 9000, 3},   {2, 1, 5000},    {400, 600, 64}};
  for (const auto& [m, n, k] : shapes) {
    for (const auto sticks : {Matmul::Sticks::along_n, Matmul::Sticks::along_k}) {
      Matmul product = product_of(m, n, k);
      product.b.sticks = sticks;
      lay_out(product, random);
      MatmulCase test{product, {}, {}, {}, {}};
      test.fill(random, 2);
      check_exact(test);
    }
  }
}

TEST(results_do_not_depend_on_the_number_of_threads) {
  Random random(4);
  static ThreadPool& one = *new ThreadPool(1);
  static ThreadPool& two = *new ThreadPool(2);
  static ThreadPool& five = *new ThreadPool(5);
  const std::int64_t shapes[][3] = {{1, 3000, 300}, {6, 1500, 300}, {100, 700, 300}, {500, 64, 40}};
  for (const auto& [m, n, k] : shapes) {
    for (const auto sticks : {Matmul::Sticks::along_n, Matmul::Sticks::along_k}) {
      Matmul product = product_of(m, n, k, F::SEN169_FP16, F::SEN169_FP16, F::IEEE_FP32);
      product.b.sticks = sticks;
      product.batch = {{3, 0, 0, 0, 0}};
      lay_out(product, random);
      MatmulCase test{product, {}, {}, {}, {}};
      test.fill(random, 0);
      for (const SimdLevel level : simd_levels()) {
        const auto expected = test.run(mode_at(level), one);
        CHECK(test.run(mode_at(level), two) == expected);
        CHECK(test.run(mode_at(level), five) == expected);
      }
    }
  }
}

TEST(a_sum_depends_on_its_row_and_column_alone) {
  Random random(9);
  const F formats[] = {F::SEN169_FP16, F::SEN143_FP8, F::IEEE_FP32};
  for (const std::int64_t k : {1, 63, 64, 130, 257, 4500}) {
    for (const auto sticks : {Matmul::Sticks::along_n, Matmul::Sticks::along_k}) {
      Matmul product = product_of(23, 70, k, formats[random() % std::size(formats)], F::SEN169_FP16,
                                  F::IEEE_FP32);
      product.b.sticks = sticks;
      lay_out(product, random);
      MatmulCase test{product, {}, {}, {}, {}};
      test.fill(random, 0);
      for (const SimdLevel level : simd_levels()) {
        const auto expected = test.run(mode_at(level));
        // The same in parts, from few rows to many, each beginning where the last one ended.
        MatmulCase parts = test;
        for (std::int64_t row = 0, rows = 1; row < product.m; row += rows++) {
          Matmul& part = parts.product;
          part.m = std::min(rows, product.m - row);
          part.a.offset = product.a.offset + row * product.a.m_stride;
          part.c.offset = product.c.offset + row * product.c.m_stride;
          parts.c.bytes = parts.run(mode_at(level));
        }
        CHECK(parts.c.bytes == expected);
      }
    }
  }
}

TEST(nan_and_infinity_go_where_they_belong) {
  Random random(5);
  const double infinity = std::numeric_limits<double>::infinity(), nan = std::nan("");
  for (const Dl16Specials specials : {Dl16Specials::ieee, Dl16Specials::merged}) {
    for (const std::int64_t m : {1, 4, 6, 30}) {
      for (const auto sticks : {Matmul::Sticks::along_n, Matmul::Sticks::along_k}) {
        Matmul product = product_of(m, 130, 100);
        product.b.sticks = sticks;
        product.c.format = m == 4 ? F::IEEE_FP32 : F::SEN169_FP16;
        lay_out(product, random);
        product.a.m_stride = product.a.k_stick_stride * 2;  // no element twice
        product.a.k_stick_stride = std::max<std::int64_t>(product.a.k_stick_stride, 200);
        product.a.m_stride = product.a.k_stick_stride * 2;
        product.b.stride = 64, product.b.stick_stride = 64 * 130;
        MatmulCase test{product, {}, {}, {}, {}};
        test.a.specials = test.b.specials = test.c.specials = specials;
        test.fill(random, 2);
        test.b.set(right_place(product, 17, 5), infinity);
        test.b.set(right_place(product, 99, 129), -infinity);
        test.b.set(right_place(product, 50, 70), nan);
        test.a.set(left_place(product, m - 1, 3), infinity);
        test.a.set(left_place(product, m - 1, 99), -infinity);
        check_exact(test, mode_at(SimdLevel::baseline, specials));
      }
    }
  }
}

TEST(sums_formed_in_c_are_those_of_a_workspace) {
  Random random(12);
  const double infinity = std::numeric_limits<double>::infinity(), nan = std::nan("");
  for (const std::int64_t k : {64, 300}) {
    for (const bool one_stick : {true, false}) {
      Matmul product = product_of(40, 128, k, F::SEN169_FP16, F::SEN169_FP16, F::IEEE_FP32);
      product.a.m_stride = product.b.stride = 64;
      product.a.k_stick_stride = 64 * 40, product.b.stick_stride = 64 * k;
      product.c.m_stride = one_stick ? 128 : 32;
      product.c.n_stick_stride = one_stick ? 32 : 32 * 40;
      MatmulCase test{product, {}, {}, {}, {}};
      test.fill(random, 2);
      test.b.set(right_place(product, 17, 5), infinity);
      test.a.set(left_place(product, 3, 17), -infinity);
      test.a.set(left_place(product, 4, 5), nan);
      // The same rows as two batches of B: they have no one stride, as far as a plan can see.
      MatmulCase halves = test;
      halves.product.m = 20;
      halves.product.batch = {{2, 20 * product.a.m_stride, 0, 20 * product.c.m_stride, 0}};
      for (const SimdLevel level : simd_levels())
        CHECK(test.run(mode_at(level)) == halves.run(mode_at(level)));
      check_exact(test);
    }
  }
}

TEST(zeros_at_the_end_of_rows_still_meet_infinity) {
  Random random(10);
  const double infinity = std::numeric_limits<double>::infinity();
  for (const std::int64_t k : {20, 256, 300, 600}) {
    for (const bool finite : {true, false}) {
      Matmul product = product_of(40, 96, k);
      product.a.m_stride = product.b.stride = product.c.m_stride = 64;
      product.a.k_stick_stride = product.c.n_stick_stride = 64 * 40;
      product.b.stick_stride = 64 * k;
      MatmulCase test{product, {}, {}, {}, {}};
      test.fill(random, 2);
      for (std::int64_t row = 0; row < product.m; ++row)  // as under a causal mask
        for (std::int64_t at = row * k / product.m; at < k; ++at)
          test.a.set(left_place(product, row, at), row % 2 ? 0.0 : -0.0);
      if (!finite) test.b.set(right_place(product, k - 3, 70), infinity);
      check_exact(test);
    }
  }
}

TEST(the_lowest_binade_and_the_largest_values_are_ordinary) {
  // DLFloat16 has no subnormals: 1 is 2^-31 (1 + 2^-9), and 0x7FFD just below Infinity.
  for (const std::int64_t m : {1, 20}) {
    for (const auto sticks : {Matmul::Sticks::along_n, Matmul::Sticks::along_k}) {
      Matmul product = product_of(m, 64, 64, F::SEN169_FP16, F::SEN169_FP16, F::IEEE_FP32);
      product.a.m_stride = product.b.stride = product.c.m_stride = 64;
      product.c.n_stick_stride = 32 * m, product.c.m_stride = 32;
      product.b.sticks = sticks;
      Random random(6);
      MatmulCase test{product, {}, {}, {}, {}};
      test.fill(random, 1);
      for (std::int64_t k = 0; k < 64; ++k)
        for (std::int64_t n = 0; n < 64; ++n) test.b.set(right_place(product, k, n), 0);
      const std::uint16_t codes[] = {1, 0x8001, 0x1FF, 0x200, 0x7FFD, 0xFFFD, 0x8000};
      for (std::int64_t i = 0; i < 7; ++i)
        std::memcpy(&test.b.bytes[static_cast<std::size_t>(2 * right_place(product, i, i))],
                    &codes[i], 2);
      check_exact(test);
    }
  }
}

TEST(integers_wrap_at_the_output) {
  Random random(7);
  for (const F c : {F::IEEE_INT32, F::SENINT8, F::SENINT16, F::SENUINT32}) {
    Matmul product = product_of(9, 50, 70, F::IEEE_INT32, F::IEEE_INT32, c);
    product.bias.operand = 3, product.bias.format = F::IEEE_INT32;
    product.alpha = -7, product.beta = 3;
    lay_out(product, random);
    MatmulCase test{product, {}, {}, {}, {}};
    test.fill(random, 3);
    for (auto* bytes : {&test.a.bytes, &test.b.bytes, &test.bias.bytes})
      for (std::byte& byte : *bytes) byte = static_cast<std::byte>(random());
    const auto integer = [](const Buffer& buffer, std::int64_t at) {
      return static_cast<std::uint64_t>(static_cast<std::int32_t>(buffer.bits(at)));
    };
    for (const SimdLevel level : simd_levels()) {
      Buffer result = test.c;
      result.bytes = test.run(mode_at(level));
      for (std::int64_t m = 0; m < product.m; ++m) {
        for (std::int64_t n = 0; n < product.n; ++n) {
          std::uint64_t sum = 0;
          for (std::int64_t k = 0; k < product.k; ++k)
            sum += integer(test.a, left_place(product, m, k)) *
                   integer(test.b, right_place(product, k, n));
          sum = 0 - 7 * sum + 3 * integer(test.bias, bias_place(product, m, n));
          const int bits = static_cast<int>(element_bytes(c)) * 8;
          CHECK_EQ(result.bits(result_place(product, m, n)), sum & ((1ull << bits) - 1));
        }
      }
    }
  }
}

TEST(a_byte_tensor_keeps_the_low_byte) {
  Matmul product = product_of(1, 1, 32, F::SENUINT32, F::SENUINT32, F::SENUINT32);
  product.c.narrow = Narrow::uint8;
  product.b.stride = 32;
  Random random(8);
  MatmulCase test{product, {}, {}, {}, {}};
  test.fill(random, 3);
  for (std::int64_t k = 0; k < 32; ++k)
    test.a.set(left_place(product, 0, k), 200), test.b.set(right_place(product, k, 0), 201);
  Buffer result = test.c;
  result.bytes = test.run({});
  CHECK_EQ(result.bits(0), 200u * 201 * 32 % 256);
}

TEST(without_depth_only_the_bias_remains) {
  Random random(9);
  for (const bool biased : {false, true}) {
    Matmul product = product_of(5, 70, 0);
    product.bias.operand = biased ? 3 : -1;
    product.beta = 2;
    lay_out(product, random);
    MatmulCase test{product, {}, {}, {}, {}};
    test.fill(random, 3);
    check_exact(test);
  }
}

TEST(an_integer_bias_stays_exact_without_depth) {
  Matmul product = product_of(1, 1, 0, F::IEEE_INT32, F::IEEE_INT32, F::IEEE_INT32);
  product.bias.operand = 3;
  Random random(12);
  MatmulCase test{product, {}, {}, {}, {}};
  test.fill(random, 3);
  test.bias.set(0, (1 << 24) + 1);
  check_exact(test);
}

TEST(a_bias_with_factor_zero_is_not_looked_at) {
  Matmul product = product_of(3, 64, 64);
  product.a.m_stride = product.b.stride = product.c.m_stride = product.bias.m_stride = 64;
  product.bias.operand = 3, product.beta = 0;
  Random random(10);
  MatmulCase test{product, {}, {}, {}, {}};
  test.fill(random, 3);
  std::fill(test.bias.bytes.begin(), test.bias.bytes.end(), std::byte{0x7F});
  check_exact(test);
}

TEST(chunked_sums_are_rounded_after_every_64_products) {
  Random random(11);
  for (const std::int64_t m : {1, 17}) {
    for (const F b : {F::SEN169_FP16, F::SEN143_FP8, F::IEEE_FP32}) {
      Matmul product = product_of(m, 70, 64 * 9 + 5, F::SEN169_FP16, b);
      lay_out(product, random);
      MatmulCase test{product, {}, {}, {}, {}};
      test.fill(random, 7);  // exact in float, not in DLFloat16
      MatmulMode mode{SimdLevel::baseline, Dl16Specials::ieee, Accumulation::chunked};
      if (b == F::IEEE_FP32) {
        check_exact(test, mode);  // not what the card's units would multiply: summed in float
        continue;
      }
      for (const SimdLevel level : simd_levels()) {
        mode.simd = level;
        Buffer expected = test.c;
        const auto round = [](double value) -> double {
          return dl16_to_float(dl16_from_double(value));
        };
        for (std::int64_t row = 0; row < m; ++row) {
          for (std::int64_t n = 0; n < product.n; ++n) {
            double total = 0;
            for (std::int64_t first = 0; first < product.k; first += 64) {
              double sum = 0;
              for (std::int64_t k = first; k < std::min(first + 64, product.k); ++k)
                sum += test.a.value(left_place(product, row, k)) *
                       test.b.value(right_place(product, k, n));
              total = round(total + round(sum));
            }
            expected.set(result_place(product, row, n), total);
          }
        }
        CHECK(test.run(mode) == expected.bytes);
      }
    }
  }
}
