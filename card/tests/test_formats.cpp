// Element formats: the reference against independent oracles, the fast kernels against the
// reference.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <utility>
#include <vector>

#include "check.h"
#include "formats/convert.h"
#include "formats/formats.h"

namespace spyre::card {
namespace {

constexpr Dl16Specials kIeee = Dl16Specials::ieee, kMerged = Dl16Specials::merged;
constexpr double kInf = std::numeric_limits<double>::infinity();

/// The value of a DLFloat16 magnitude code by the published formula, special codes included.
double published_dl16(int magnitude) {
  if (magnitude == 0) return 0;
  return std::ldexp(1.0 + (magnitude & 511) / 512.0, (magnitude >> 9) - 31);
}

/// Nearest code, ties away from zero, by search: nothing in common with the bit arithmetic under
/// test. Code 0 stands at 2^-31 on the grid; what is below the grid becomes zero as well.
int nearest_dl16(double magnitude) {
  static const std::vector<double> grid = [] {
    std::vector<double> values;
    for (int code = 0; code < 0x8000; ++code) values.push_back(published_dl16(code));
    values[0] = std::ldexp(1.0, -31);
    return values;
  }();
  const auto above = std::upper_bound(grid.begin(), grid.end(), magnitude);
  if (above == grid.begin()) return 0;
  if (above == grid.end()) return 0x7FFF;
  const int code = static_cast<int>(above - grid.begin()) - 1;
  return magnitude - grid[code] >= grid[code + 1] - magnitude ? code + 1 : code;
}

int expected_dl16(double value, Dl16Specials specials) {
  if (std::isnan(value)) return 0x7FFF;
  const int sign = std::signbit(value) ? 0x8000 : 0;
  const int code = nearest_dl16(std::fabs(value));
  if (specials == kMerged) return code == 0x7FFF ? 0x7FFF : sign | code;
  return sign | std::min(code, 0x7FFE);
}

double from_bits(std::uint64_t bits) { return std::bit_cast<double>(bits); }

/// Values at, just below and just above every rounding boundary and code of DLFloat16.
std::vector<double> dl16_boundaries() {
  std::vector<double> values;
  for (int code = 1; code < 0x7FFF; ++code) {
    const double value = published_dl16(code), middle = (value + published_dl16(code + 1)) / 2;
    for (double centre : {value, middle})
      for (double around : {centre, std::nextafter(centre, 0), std::nextafter(centre, kInf)})
        values.push_back(around);
  }
  for (double value : {std::ldexp(1, -31), std::ldexp(1 + 1.0 / 1024, -31), std::ldexp(1, -32)})
    for (double around : {value, std::nextafter(value, 0), std::nextafter(value, 1)})
      values.push_back(around);
  for (double value : {0.0, kInf, 1e300, 1e-300, 5e-324, 8573157376.0, 0x1p33})
    values.push_back(value);
  return values;
}

std::uint64_t random_bits(std::mt19937_64& random) {
  // Uniform bits are nearly always huge, tiny or NaN; mix in numbers of ordinary size.
  const std::uint64_t bits = random();
  const double ordinary = std::ldexp(static_cast<double>(static_cast<std::int64_t>(bits)),
                                     -static_cast<int>(random() % 110));
  switch (random() % 4) {
    case 0:
      return bits;
    case 1:
      return std::bit_cast<std::uint64_t>(ordinary);
    case 2:
      return std::uint64_t{std::bit_cast<std::uint32_t>(static_cast<float>(ordinary))} |
             (random() << 32);
    default:
      return bits >> (random() % 64);
  }
}

// --------------------------------------------------------------------------------- the reference

TEST(dl16_patterns_decode_to_the_published_values) {
  for (int code = 0; code < 0x7FFF; ++code) {
    const double expected = published_dl16(code);
    const auto positive = static_cast<std::uint16_t>(code);
    const auto negative = static_cast<std::uint16_t>(code | 0x8000);
    CHECK_EQ(dl16_to_float(positive, kMerged), expected);
    CHECK_EQ(dl16_to_float(negative, kMerged), -expected);
    CHECK_EQ(dl16_to_float(positive), code == 0x7FFE ? kInf : expected);
    CHECK_EQ(dl16_to_float(negative), code == 0x7FFE ? -kInf : -expected);
  }
  CHECK(std::signbit(dl16_to_float(0x8000)));
  for (auto mode : {kIeee, kMerged}) {
    CHECK(std::isnan(dl16_to_float(0x7FFF, mode)));
    CHECK(std::isnan(dl16_to_float(0xFFFF, mode)));
  }
  CHECK_EQ(dl16_to_float(0x7FFE, kMerged), 8573157376.0);
  CHECK_EQ(dl16_to_float(0x7FFD), 8564768768.0);
  CHECK_EQ(dl16_to_float(1), std::ldexp(1 + 1.0 / 512, -31));
}

TEST(dl16_values_encode_to_themselves) {
  for (int bits = 0; bits < 0x10000; ++bits) {
    for (auto mode : {kIeee, kMerged}) {
      const int expected = (bits & 0x7FFF) == 0x7FFF ? 0x7FFF : bits;
      const float value = dl16_to_float(static_cast<std::uint16_t>(bits), mode);
      CHECK_EQ(dl16_from_float(value, mode), expected);
    }
  }
}

TEST(dl16_rounds_once_to_nearest_ties_away) {
  for (double value : dl16_boundaries())
    for (double signed_value : {value, -value})
      for (auto mode : {kIeee, kMerged}) {
        CHECK_EQ(dl16_from_double(signed_value, mode), expected_dl16(signed_value, mode));
        const float narrow = static_cast<float>(signed_value);
        CHECK_EQ(dl16_from_float(narrow, mode), expected_dl16(narrow, mode));
      }
  // Just below the tie: a detour through float would land on the tie and round up.
  CHECK_EQ(dl16_from_double(1 + 1.0 / 1024 - 1e-12), 31 << 9);
  CHECK_EQ(dl16_from_double(1 + 1.0 / 1024), (31 << 9) + 1);
}

TEST(dl16_overflow_and_specials) {
  const double largest = published_dl16(0x7FFD), next = published_dl16(0x7FFE);
  CHECK_EQ(dl16_from_double(std::nextafter((largest + next) / 2, 0)), 0x7FFD);
  CHECK_EQ(dl16_from_double((largest + next) / 2), 0x7FFE);
  CHECK_EQ(dl16_from_double(-1e30), 0xFFFE);
  CHECK_EQ(dl16_from_double(-kInf), 0xFFFE);
  CHECK_EQ(dl16_from_double(-kInf, kMerged), 0x7FFF);
  CHECK_EQ(dl16_from_double(next, kMerged), 0x7FFE);
  CHECK_EQ(dl16_from_double(1e30, kMerged), 0x7FFF);
  for (auto mode : {kIeee, kMerged}) CHECK_EQ(dl16_from_double(-std::nan(""), mode), 0x7FFF);
}

TEST(half_of_the_fp16_patterns_are_exact_in_dl16) {
  int exact = 0;
  for (int bits = 0; bits < 0x7C00; ++bits) {
    const double value = decode_float(kFp16, static_cast<std::uint32_t>(bits));
    const std::uint16_t code = dl16_from_double(value);
    CHECK_EQ(code, expected_dl16(value, kIeee));
    exact += dl16_to_float(code) == value;
    // Back in float16, a value is off by at most the one bit that DLFloat16 lacks.
    const int back =
        convert_element<DataFormat::SEN169_FP16, DataFormat::IEEE_FP16>(code, Narrow::none, kIeee);
    CHECK(back == bits || (bits % 2 == 1 && back == (bits == 0x7BFF ? bits : bits + 1)));
  }
  CHECK_EQ(exact, 16384);
}

TEST(dl16_to_fp16_edges) {
  const auto to_fp16 = [](std::uint16_t bits) {
    return convert_element<DataFormat::SEN169_FP16, DataFormat::IEEE_FP16>(bits, Narrow::none,
                                                                           kIeee);
  };
  CHECK_EQ(to_fp16(dl16_from_double(65504)), 0x7BFF);
  CHECK_EQ(to_fp16(dl16_from_double(-65536)), 0xFBFF);
  CHECK_EQ(to_fp16(dl16_from_double(65664)), 0x7C00);
  CHECK_EQ(to_fp16(0x7FFE), 0x7C00);
  CHECK_EQ(to_fp16(0xFFFE), 0xFC00);
  CHECK_EQ(to_fp16(0x7FFF), 0x7E00);
  CHECK_EQ(to_fp16(dl16_from_double(0x1p-25)), 0);                // tie to even
  CHECK_EQ(to_fp16(dl16_from_double(0x1p-25 * 1.001953125)), 1);  // above it
  CHECK_EQ(to_fp16(dl16_from_double(0x1.8p-24)), 2);              // tie to even
  CHECK_EQ(to_fp16(0x8001), 0x8000);
}

/// Checks decode and encode of a format with subnormals against its definition, by search.
void check_format(const char* name, const FloatSpec& spec, int largest, int overflow, int nan) {
  std::vector<double> grid;
  const double smallest = std::ldexp(1.0, 1 - spec.bias - spec.fraction_bits);
  for (int code = 0; code <= largest + 1; ++code) {  // one more: where overflow begins
    const int field = code >> spec.fraction_bits, fraction = code & ((1 << spec.fraction_bits) - 1);
    grid.push_back(field == 0
                       ? fraction * smallest
                       : std::ldexp(fraction + (1 << spec.fraction_bits), field - 1) * smallest);
    if (code <= largest)
      CHECK_EQ(decode_float(spec, static_cast<std::uint32_t>(code)), grid.back());
  }
  const int sign = 1 << (spec.exponent_bits + spec.fraction_bits);
  const auto check = [&](double value) {
    const double magnitude = std::fabs(value);
    const auto above = std::upper_bound(grid.begin(), grid.end(), magnitude);
    int code = overflow;
    if (above != grid.end()) {
      const int below = static_cast<int>(above - grid.begin()) - 1;
      const double down = magnitude - grid[below], up = grid[below + 1] - magnitude;
      code = down < up || (down == up && below % 2 == 0) ? below : below + 1;
      if (code > largest) code = overflow;
    }
    const bool bare = spec.unsigned_specials && (code == 0 || code == overflow);
    const int expected = bare ? code : code | (std::signbit(value) ? sign : 0);
    if (static_cast<int>(encode_float(spec, value)) != expected) {
      std::cerr << name << " of " << value << "\n";
      CHECK_EQ(encode_float(spec, value), static_cast<std::uint32_t>(expected));
    }
  };
  for (std::size_t code = 0; code + 1 < grid.size(); ++code)
    for (double centre : {grid[code], (grid[code] + grid[code + 1]) / 2})
      for (double value : {centre, std::nextafter(centre, -kInf), std::nextafter(centre, kInf)})
        for (double signed_value : {value, -value}) check(signed_value);
  std::mt19937_64 random(1);
  for (int i = 0; i < 20000; ++i) {
    const double value = from_bits(random_bits(random));
    if (!std::isnan(value)) check(value);
  }
  check(kInf);
  CHECK_EQ(encode_float(spec, std::nan("")), static_cast<std::uint32_t>(nan));
  CHECK(std::isnan(decode_float(spec, static_cast<std::uint32_t>(nan))));
}

TEST(formats_with_subnormals_round_to_nearest_even) {
  check_format("fp16", kFp16, 0x7BFF, 0x7C00, 0x7E00);
  check_format("bf16", kBf16, 0x7F7F, 0x7F80, 0x7FC0);
  check_format("e4m3fn", kE4m3fn, 0x7E, 0x7E, 0x7F);
  check_format("e5m2", kE5m2, 0x7B, 0x7C, 0x7F);
  check_format("e4m3fnuz", kE4m3fnuz, 0x7F, 0x80, 0x80);
  check_format("e5m2fnuz", kE5m2fnuz, 0x7F, 0x80, 0x80);
  CHECK_EQ(decode_float(kFp16, 0xFC00), -kInf);
  CHECK_EQ(decode_float(kE5m2, 0x7C), kInf);
  CHECK(std::isnan(decode_float(kE4m3fn, 0xFF)));
}

TEST(fp32_encoding_is_the_hardware_conversion) {
  std::mt19937_64 random(2);
  for (int i = 0; i < 200000; ++i) {
    const double value = from_bits(random_bits(random));
    if (std::isnan(value)) continue;
    CHECK_EQ(encode_float(kFp32, value), std::bit_cast<std::uint32_t>(static_cast<float>(value)));
    const auto integer = static_cast<std::int64_t>(random_bits(random));
    const float rounded = static_cast<float>(integer);
    CHECK_EQ((encode<DataFormat::IEEE_FP32>(integer, kIeee)),
             std::bit_cast<std::uint32_t>(rounded));
  }
}

TEST(integers_truncate_and_wrap) {
  using enum DataFormat;
  const auto fp64 = [](double value) { return std::bit_cast<std::uint64_t>(value); };
  const auto none = Narrow::none;
  CHECK_EQ((convert_element<IEEE_FP64, IEEE_INT64>(fp64(-2.9), none, kIeee)), std::uint64_t(-2));
  CHECK_EQ((convert_element<IEEE_FP64, IEEE_INT64>(fp64(1e19), none, kIeee)),
           std::uint64_t{1} << 63);
  for (const double beyond : {kInf, -kInf, 4294967297.5, 2147483648.0, -2147483649.0}) {
    CHECK_EQ((convert_element<IEEE_FP64, IEEE_INT32>(fp64(beyond), none, kIeee)), 0x80000000);
    CHECK_EQ((convert_element<IEEE_FP64, SENINT16>(fp64(beyond), none, kIeee)), 0);
  }
  CHECK_EQ((convert_element<IEEE_FP64, IEEE_INT32>(fp64(-2147483648.9), none, kIeee)), 0x80000000);
  CHECK_EQ((convert_element<IEEE_FP64, IEEE_INT32>(fp64(2147483647.9), none, kIeee)), 0x7FFFFFFF);
  CHECK_EQ((convert_element<IEEE_FP64, SENINT8>(fp64(-129), none, kIeee)), 127);
  CHECK_EQ((convert_element<SENINT8, IEEE_INT64>(0xFF, none, kIeee)), ~std::uint64_t{0});
  CHECK_EQ((convert_element<SENUINT32, IEEE_INT64>(0xFFFFFFFF, none, kIeee)), 0xFFFFFFFF);
  CHECK_EQ((convert_element<IEEE_FP64, BOOL>(fp64(std::nan("")), none, kIeee)), 1);
  CHECK_EQ((convert_element<IEEE_FP64, BOOL>(fp64(-0.0), none, kIeee)), 0);
  CHECK_EQ((convert_element<BOOL, SEN169_FP16>(7, none, kIeee)), dl16_from_float(1));
  CHECK_EQ((convert_element<IEEE_FP64, SEN169_FP16>(fp64(0.25), Narrow::boolean, kIeee)), 31 << 9);
  CHECK_EQ((convert_element<IEEE_FP64, SENUINT32>(fp64(-1), Narrow::uint8, kIeee)), 255);
  CHECK_EQ((convert_element<IEEE_FP64, SEN169_FP16>(fp64(257), Narrow::uint8, kIeee)), 31 << 9);
  // Ties of integers: one rounding, whatever the distance between the formats.
  const std::uint64_t tie = (std::uint64_t{1} << 60) + (std::uint64_t{1} << 36);
  const auto fp32 = [](float value) { return std::bit_cast<std::uint32_t>(value); };
  CHECK_EQ((convert_element<HOST_UINT64, IEEE_FP32>(tie, none, kIeee)), fp32(0x1p60f));
  CHECK_EQ((convert_element<HOST_UINT64, IEEE_FP32>(tie + 1, none, kIeee)),
           fp32(std::nextafterf(0x1p60f, INFINITY)));
}

// ---------------------------------------------------------------------------- the fast conversions

using Reference = std::uint64_t (*)(std::uint64_t, Narrow, Dl16Specials);
constexpr int kFormatCount = std::size(kFormats);

template <int pair>
constexpr Reference reference_of() {
  constexpr DataFormat S = kFormats[pair / kFormatCount].format,
                       D = kFormats[pair % kFormatCount].format;
  if constexpr (usable(S) && usable(D)) {
    return [](std::uint64_t bits, Narrow narrow, Dl16Specials specials) -> std::uint64_t {
      return convert_element<S, D>(static_cast<BitsOf<S>>(bits), narrow, specials);
    };
  } else {
    return nullptr;
  }
}

Reference reference(int src, int dst) {
  static const auto table = []<int... pair>(std::integer_sequence<int, pair...>) {
    return std::array<Reference, sizeof...(pair)>{reference_of<pair>()...};
  }(std::make_integer_sequence<int, kFormatCount * kFormatCount>());
  return table[static_cast<std::size_t>(src * kFormatCount + dst)];
}

std::uint64_t load(const std::byte* from, std::int64_t bytes) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, from, static_cast<std::size_t>(bytes));
  return bits;
}

/// Packed source elements: every pattern of the small formats, boundaries and noise of the others.
std::vector<std::uint64_t> patterns(const FormatInfo& format) {
  std::vector<std::uint64_t> bits;
  if (format.bits <= 16) {
    for (std::uint64_t value = 0; value < std::uint64_t{1} << format.bits; ++value)
      bits.push_back(value);
    return bits;
  }
  for (double value :
       {0.0,          0.5,          1.0,          255.0,   256.0,   65504.0,     65519.0,
        65520.0,      65536.0,      0x1p31,       0x1p32,  0x1p62,  0x1p63,      0x1p64,
        8564768768.0, 8568963072.0, 8573157376.0, 0x1p33,  448.0,   464.0,       480.0,
        240.0,        248.0,        57344.0,      61440.0, 0x1p-31, 0x1.004p-31, 0x1p-24,
        0x1p-25,      0x1p-149,     1e38,         1e300,   kInf,    std::nan("")})
    for (double around : {value, std::nextafter(value, 0), std::nextafter(value, kInf)})
      for (double signed_value : {around, -around})
        bits.push_back(format.bits == 64
                           ? std::bit_cast<std::uint64_t>(signed_value)
                           : std::bit_cast<std::uint32_t>(static_cast<float>(signed_value)));
  for (int shift = 0; shift < format.bits; ++shift)
    for (std::uint64_t near : {std::uint64_t(-1), std::uint64_t{0}, std::uint64_t{1}})
      bits.push_back((std::uint64_t{1} << shift) + near);
  // Signalling NaNs whose payload is in the low bits only.
  bits.push_back(format.bits == 64 ? 0x7FF0000000000001 : 0x7F800001);
  bits.push_back(format.bits == 64 ? 0xFFF0000000000001 : 0xFF800001);
  std::mt19937_64 random(static_cast<unsigned>(format.format));
  while (bits.size() < 6000) bits.push_back(random_bits(random));
  return bits;
}

void check_pair(int s, int d, const std::vector<std::uint64_t>& bits, Narrow narrow,
                Dl16Specials specials) {
  const FormatInfo &src = kFormats[s], &dst = kFormats[d];
  const std::int64_t from_bytes = src.bits / 8, to_bytes = dst.bits / 8;
  const std::size_t n = bits.size();
  // An odd address, and a guard behind the last element.
  std::vector<std::byte> from(n * 8 + 1), expected(n * 8), to(n * 8 + 2);
  for (std::size_t i = 0; i < n; ++i) {
    std::memcpy(from.data() + 1 + i * from_bytes, &bits[i], from_bytes);
    const std::uint64_t result = reference(s, d)(bits[i], narrow, specials);
    std::memcpy(expected.data() + i * to_bytes, &result, to_bytes);
  }
  ConvertRun previous = nullptr;
  for (SimdLevel level : {SimdLevel::baseline, SimdLevel::avx2, SimdLevel::avx512}) {
    if (!simd_available(level)) continue;
    const ConvertRun run = converter_at(level, specials, src.format, dst.format, narrow);
    if (run == previous) continue;
    previous = run;
    const std::byte guard{0xA5};
    std::fill(to.begin(), to.end(), guard);
    run(from.data() + 1, to.data() + 1, n - 1);  // not a whole number of vectors
    CHECK(to[1 + (n - 1) * to_bytes] == guard && to[0] == guard);
    run(from.data() + 1, to.data() + 1, n);
    // As rows of any length, the same.
    const ConvertRows rows = row_converter_at(level, specials, src.format, dst.format);
    for (const std::size_t length : {std::size_t{64}, std::size_t{128}, std::size_t{37}}) {
      if (!rows || narrow != Narrow::none) break;
      const std::size_t count = n / length;
      std::vector<std::byte> in_rows(count * length * to_bytes);
      rows(from.data() + 1, static_cast<std::ptrdiff_t>(length * from_bytes), in_rows.data(),
           static_cast<std::ptrdiff_t>(length * to_bytes), length, count);
      CHECK(std::memcmp(in_rows.data(), expected.data(), in_rows.size()) == 0);
    }
    if (std::memcmp(to.data() + 1, expected.data(), n * to_bytes) == 0) continue;
    for (std::size_t i = 0; i < n; ++i) {
      const std::uint64_t got = load(to.data() + 1 + i * to_bytes, to_bytes);
      const std::uint64_t want = load(expected.data() + i * to_bytes, to_bytes);
      if (got == want) continue;
      std::ostringstream message;
      message << src.name << " to " << dst.name << " narrow " << int(narrow) << " level "
              << int(level) << " specials " << int(specials) << std::hex << ": " << bits[i]
              << " gives " << got << ", not " << want;
      check::fail(__FILE__, __LINE__, message.str());
      break;
    }
  }
}

TEST(every_pair_of_formats_converts_like_the_reference_at_every_level) {
  for (int s = 0; s < kFormatCount; ++s) {
    if (!kFormats[s].bits) continue;
    const std::vector<std::uint64_t> bits = patterns(kFormats[s]);
    for (int d = 0; d < kFormatCount; ++d) {
      if (!kFormats[d].bits) continue;
      for (Narrow narrow : {Narrow::none, Narrow::boolean, Narrow::uint8}) {
        check_pair(s, d, bits, narrow, kIeee);
        const bool dl16 = kFormats[s].format == DataFormat::SEN169_FP16 ||
                          kFormats[d].format == DataFormat::SEN169_FP16;
        if (dl16) check_pair(s, d, bits, narrow, kMerged);
      }
    }
  }
}

TEST(fp64_and_fp32_boundaries_of_dl16_at_every_level) {
  std::vector<std::uint64_t> wide, narrow;
  for (double value : dl16_boundaries())
    for (double signed_value : {value, -value}) {
      wide.push_back(std::bit_cast<std::uint64_t>(signed_value));
      narrow.push_back(std::bit_cast<std::uint32_t>(static_cast<float>(signed_value)));
    }
  const auto index = [](DataFormat format) {
    return static_cast<int>(&format_info(format) - kFormats);
  };
  for (auto mode : {kIeee, kMerged}) {
    check_pair(index(DataFormat::IEEE_FP64), 0, wide, Narrow::none, mode);
    check_pair(index(DataFormat::IEEE_FP32), 0, narrow, Narrow::none, mode);
  }
}

TEST(unusable_formats_are_refused) {
  CHECK_THROWS(converter(DataFormat::INVALID, DataFormat::IEEE_FP32), "INVALID");
  CHECK_THROWS(converter(DataFormat::IEEE_FP32, DataFormat::SENINT4), "SENINT4");
  CHECK_THROWS(converter(DataFormat::BOOL, DataFormat::BOOL, static_cast<Narrow>(9)),
               "narrowing 9");
}

TEST(simd_level_is_one_of_the_names) {
  const std::string name = simd_level();
  CHECK(name == "baseline" || name == "avx2" || name == "avx512");
  CHECK(simd_available(simd()));
}

}  // namespace
}  // namespace spyre::card
