// The fast conversions. Included once by each convert_<level>.cpp, which is compiled for its vector
// width; the loops are plain C++ that the compiler turns into vector code. GCC does so for all of
// them only with -fno-trapping-math: it takes a float operation whose result is not always used for
// one that must not always be executed. No result depends on that flag.
//
// Nothing here may have external linkage but fast_kernels(), and no inline function of another
// header may be called: the linker could take this file's copy, made for a wide machine, for the
// whole program. Hence the C headers and the hand-written minimum.
//
// Floating constants and the meaning of each conversion: formats.h. The code works on bits; where
// it adds floats, it does so to let the hardware round to nearest even.

#include <stddef.h>
#include <stdint.h>

#include "formats/convert_kernels.h"

#ifndef SPYRE_SIMD_NAMESPACE
#error "define SPYRE_SIMD_NAMESPACE: this file is a part of convert_<level>.cpp"
#endif

#include "formats/dl16_math.inc.h"

namespace spyre::card::SPYRE_SIMD_NAMESPACE {
namespace {

inline uint64_t bits_of(double value) { return __builtin_bit_cast(uint64_t, value); }

constexpr size_t kBlock = 64;  // elements; a stick of DL16

// ------------------------------------------------------------------- single elements, branch-free

template <bool merged>
inline uint16_t dl16_from_fp64(uint64_t bits) {
  const uint64_t magnitude = bits & 0x7FFFFFFFFFFFFFFF;
  const int32_t code = static_cast<int32_t>((magnitude + (uint64_t{1} << 42)) >> 43);
  return finish_dl16<merged>(code - ((1023 - 31) << 9), magnitude > 0x7FF0000000000000,
                             static_cast<uint32_t>(bits >> 48));
}

template <bool merged>
inline uint64_t fp64_from_dl16(uint16_t bits) {
  return bits_of(static_cast<double>(float_of(fp32_from_dl16<merged>(bits))));
}

template <bool merged>
inline uint16_t dl16_from_bf16(uint16_t bits) {
  const int16_t magnitude = bits & 0x7FFF;
  int16_t above =
      static_cast<int16_t>(magnitude - (96 << 7));  // exact: bf16 has the shorter fraction
  above = above < 0 ? 0 : above;
  above = above > 0x1FFF ? 0x1FFF : above;
  int16_t code = static_cast<int16_t>(above << 2);
  const bool over = magnitude >= (160 << 7), nan = magnitude > 0x7F80;
  if (merged) return over ? kDl16Nan : static_cast<uint16_t>((bits & 0x8000) | code);
  code = over ? kDl16Infinity : code;
  return nan ? kDl16Nan : static_cast<uint16_t>((bits & 0x8000) | code);
}

template <bool merged>
inline uint16_t bf16_from_dl16(uint16_t bits) {
  const uint16_t magnitude = bits & 0x7FFF, sign = bits & 0x8000;
  const uint16_t odd = (magnitude >> 2) & 1, nudged = static_cast<uint16_t>(magnitude + 1 + odd);
  uint16_t result = static_cast<uint16_t>((nudged >> 2) + (96 << 7));
  result = magnitude == 0 ? 0 : result;
  if (!merged) result = magnitude == kDl16Infinity ? 0x7F80 : result;
  return magnitude == kDl16Nan ? 0x7FC0 : static_cast<uint16_t>(result | sign);
}

/// Subnormals and special values too; 32-bit lanes.
template <bool merged>
inline uint16_t dl16_from_fp16(uint16_t bits) {
  const int32_t magnitude = bits & 0x7FFF;
  int32_t code = ((magnitude + 1) >> 1) + (16 << 9);
  // Subnormals have at most ten significant bits: exact. Units of 2^-24.
  const int32_t tiny = static_cast<int32_t>(bits_of(static_cast<float>(magnitude)) >> 14);
  code = magnitude < 0x400 ? tiny - ((127 + 24 - 31) << 9) : code;
  code = magnitude >= 0x7C00 ? 0x8000 : code;
  return finish_dl16<merged>(code, magnitude > 0x7C00, bits);
}

template <bool merged>
inline uint16_t fp16_from_dl16(uint16_t bits) {
  const uint32_t magnitude = bits & 0x7FFF, sign = bits & 0x8000;
  uint32_t result = (magnitude - (16 << 9)) << 1;
  // The sum's last bit weighs 2^-24, as fp16's subnormals do: the addition rounds for us.
  const float value = float_of((magnitude << 14) + kFp32Shift);
  result = magnitude < (17 << 9) ? bits_of(value + 0.5f) - bits_of(0.5f) : result;
  result = magnitude == (47 << 9) ? 0x7BFF : result;  // 65536 is the image of 65504
  result = magnitude > (47 << 9) ? 0x7C00 : result;
  return static_cast<uint16_t>(magnitude == kDl16Nan ? 0x7E00 : result | sign);
}

inline uint16_t fp16_from_fp32(uint32_t bits) {
  const uint32_t magnitude = bits & 0x7FFFFFFF, sign = (bits >> 16) & 0x8000;
  uint32_t result = (magnitude - (112u << 23) + 0xFFF + ((magnitude >> 13) & 1)) >> 13;
  const uint32_t tiny = bits_of(float_of(magnitude) + 0.5f) - bits_of(0.5f);
  result = magnitude < (113u << 23) ? tiny : result;
  result = magnitude >= (143u << 23) ? 0x7C00 : result;
  return static_cast<uint16_t>(magnitude > 0x7F800000 ? 0x7E00 : result | sign);
}

inline uint32_t fp32_from_fp16(uint16_t bits) {
  const uint32_t magnitude = bits & 0x7FFF, sign = (bits & 0x8000u) << 16;
  uint32_t result = (magnitude << 13) + (112u << 23);
  const float tiny = static_cast<float>(static_cast<int32_t>(magnitude)) * 0x1p-24f;
  result = magnitude < 0x400 ? bits_of(tiny) : result;
  result = magnitude >= 0x7C00 ? 0x7F800000 : result;
  return magnitude > 0x7C00 ? 0x7FC00000 : result | sign;
}

inline uint16_t bf16_from_fp32(uint32_t bits) {
  const uint32_t rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16;
  return static_cast<uint16_t>((bits & 0x7FFFFFFF) > 0x7F800000 ? 0x7FC0 : rounded);
}

inline uint32_t fp32_from_bf16(uint16_t bits) {
  return (bits & 0x7FFF) > 0x7F80 ? 0x7FC00000 : static_cast<uint32_t>(bits) << 16;
}

/// e4m3fn: 4 bits of exponent with bias 7, 3 of fraction; 0x7F is NaN.
inline uint16_t dl16_from_e4m3fn(uint8_t bits) {
  const int32_t magnitude = bits & 0x7F;
  const int32_t tiny = static_cast<int32_t>(bits_of(static_cast<float>(magnitude)) >> 14);
  int32_t code = (magnitude << 6) + ((31 - 7) << 9);
  code = magnitude < 8 ? tiny - ((127 + 9 - 31) << 9) : code;
  return finish_dl16<false>(code, magnitude == 0x7F, static_cast<uint32_t>(bits) << 8);
}

/// e5m2fnuz: 5 bits of exponent with bias 16, 2 of fraction; 0x80 is NaN.
inline uint16_t dl16_from_e5m2fnuz(uint8_t bits) {
  const int32_t magnitude = bits & 0x7F;
  const int32_t tiny = static_cast<int32_t>(bits_of(static_cast<float>(magnitude)) >> 14);
  int32_t code = (magnitude << 7) + ((31 - 16) << 9);
  code = magnitude < 4 ? tiny - ((127 + 17 - 31) << 9) : code;
  return finish_dl16<false>(code, bits == 0x80, static_cast<uint32_t>(bits) << 8);
}

template <bool merged>
inline uint16_t dl16_from_int64(uint64_t bits) {
  // What is beyond 2^40 overflows DL16 anyhow, and what is not is exact in double.
  constexpr int64_t limit = int64_t{1} << 40;
  int64_t value = static_cast<int64_t>(bits);
  value = value > limit ? limit : value;
  value = value < -limit ? -limit : value;
  return dl16_from_fp64<merged>(bits_of(static_cast<double>(value)));
}

template <bool merged>
inline uint16_t dl16_from_int32(uint32_t bits) {
  return dl16_from_fp64<merged>(bits_of(static_cast<double>(static_cast<int32_t>(bits))));
}

template <bool merged>
inline uint64_t int64_from_dl16(uint16_t bits) {
  const uint64_t magnitude = bits & 0x7FFF, significand = 512 | (magnitude & 0x1FF);
  const uint64_t whole = (significand << 23) >> (63 - (magnitude >> 9));
  const uint64_t result = bits & 0x8000 ? 0 - whole : whole;
  return magnitude >= (merged ? kDl16Nan : kDl16Infinity) ? uint64_t{1} << 63 : result;
}

template <bool merged>
inline uint32_t int32_from_dl16(uint16_t bits) {
  const auto value = static_cast<int64_t>(int64_from_dl16<merged>(bits));
  return value == static_cast<int32_t>(value) ? static_cast<uint32_t>(value) : 0x80000000;
}

inline uint32_t int32_from_fp32_slow(uint32_t bits) {
  const float value = float_of(bits);
  const bool fits = value >= -0x1p31f && value < 0x1p31f;
  return fits ? static_cast<uint32_t>(static_cast<int32_t>(value)) : 0x80000000;
}

inline uint32_t fp32_from_int32(uint32_t bits) {
  return bits_of(static_cast<float>(static_cast<int32_t>(bits)));
}

inline uint16_t dl16_from_bool(uint8_t bits) { return bits ? 31 << 9 : 0; }
inline uint8_t bool_from_dl16(uint16_t bits) { return (bits & 0x7FFF) != 0; }
inline uint32_t low_32_bits(uint64_t bits) { return static_cast<uint32_t>(bits); }
inline uint8_t low_8_bits(uint32_t bits) { return static_cast<uint8_t>(bits); }
inline uint32_t zero_extend(uint8_t bits) { return bits; }
inline uint64_t sign_extend(uint32_t bits) {
  return static_cast<uint64_t>(static_cast<int64_t>(static_cast<int32_t>(bits)));
}

// ---------------------------------------------------------------------------------------- runs

template <int from_bytes, int to_bytes, auto element>
void each(const void* src, void* dst, size_t n) {
  using From = typename Packed<from_bytes>::Element;
  using To = typename Packed<to_bytes>::Element;
  const From* __restrict from = static_cast<const From*>(src);
  To* __restrict to = static_cast<To*>(dst);
  for (size_t i = 0; i < n; ++i) to[i] = element(from[i]);
}

/// 16-bit lanes do for zeros and normal values, which is what nearly every block consists of; a
/// block with others is done again. `usual` returns the result and ORs trouble into its argument.
template <auto usual, auto exact>
void mostly(const void* src, void* dst, size_t n) {
  using Element = Packed<2>::Element;
  const Element* __restrict from = static_cast<const Element*>(src);
  Element* __restrict to = static_cast<Element*>(dst);
  for (; n >= kBlock; n -= kBlock, from += kBlock, to += kBlock) {
    int16_t trouble = 0;
    for (size_t i = 0; i < kBlock; ++i) to[i] = usual(from[i], trouble);
    if (trouble) {
      for (size_t i = 0; i < kBlock; ++i) to[i] = exact(from[i]);
    }
  }
  for (size_t i = 0; i < n; ++i) to[i] = exact(from[i]);
}

inline uint16_t dl16_from_usual_fp16(uint16_t bits, int16_t& trouble) {
  const int16_t magnitude = bits & 0x7FFF;
  const int16_t code =
      static_cast<int16_t>((static_cast<uint16_t>(magnitude + 1) >> 1) + (16 << 9));
  const int16_t result = magnitude == 0 ? int16_t{0} : code;
  const bool subnormal = magnitude < 0x400 && magnitude != 0;
  trouble |= static_cast<int16_t>(subnormal | (magnitude >= 0x7C00));
  return static_cast<uint16_t>(result | (bits & 0x8000));
}

inline uint16_t fp16_from_usual_dl16(uint16_t bits, int16_t& trouble) {
  const int16_t magnitude = bits & 0x7FFF;
  int16_t result = static_cast<int16_t>((magnitude - (16 << 9)) << 1);
  result = magnitude == (47 << 9) ? int16_t{0x7BFF} : result;
  result = magnitude == 0 ? int16_t{0} : result;
  const bool tiny = magnitude < (17 << 9) && magnitude != 0;
  trouble |= static_cast<int16_t>(tiny | (magnitude > (47 << 9)));
  return static_cast<uint16_t>(result | (bits & 0x8000));
}

/// Most blocks have neither NaN nor Infinity.
template <bool merged>
void fp32_from_dl16_run(const void* src, void* dst, size_t n) {
  const Packed<2>::Element* __restrict from = static_cast<const Packed<2>::Element*>(src);
  Packed<4>::Element* __restrict to = static_cast<Packed<4>::Element*>(dst);
  while (n > 0) {
    const size_t count = n < 16 * kBlock ? n : 16 * kBlock;
    uint16_t largest = 0;
    for (size_t i = 0; i < count; ++i) to[i] = fp32_from_usual_dl16(from[i], largest);
    if (largest >= kDl16Infinity) {
      for (size_t i = 0; i < count; ++i) to[i] = fp32_from_dl16<merged>(from[i]);
    }
    n -= count, from += count, to += count;
  }
}

/// The same for rows of whole blocks: what is special is looked for once for all of them.
template <bool merged>
void fp32_from_dl16_rows(const void* src, ptrdiff_t src_pitch, void* dst, ptrdiff_t dst_pitch,
                         size_t n, size_t rows) {
  typedef const char* From;
  typedef char* To;
  if (n % kBlock != 0) {
    for (size_t row = 0; row < rows; ++row)
      fp32_from_dl16_run<merged>(static_cast<From>(src) + static_cast<ptrdiff_t>(row) * src_pitch,
                                 static_cast<To>(dst) + static_cast<ptrdiff_t>(row) * dst_pitch, n);
    return;
  }
  uint16_t largest[kBlock] = {};
  for (size_t row = 0; row < rows; ++row) {
    const Packed<2>::Element* __restrict from = reinterpret_cast<const Packed<2>::Element*>(
        static_cast<From>(src) + static_cast<ptrdiff_t>(row) * src_pitch);
    Packed<4>::Element* __restrict to = reinterpret_cast<Packed<4>::Element*>(
        static_cast<To>(dst) + static_cast<ptrdiff_t>(row) * dst_pitch);
    for (size_t begin = 0; begin < n; begin += kBlock)
      for (size_t i = 0; i < kBlock; ++i)
        to[begin + i] = fp32_from_usual_dl16(from[begin + i], largest[i]);
  }
  uint16_t most = 0;
  for (size_t i = 0; i < kBlock; ++i) most = largest[i] > most ? largest[i] : most;
  if (most < kDl16Infinity) return;
  for (size_t row = 0; row < rows; ++row)
    each<2, 4, fp32_from_dl16<merged>>(
        static_cast<From>(src) + static_cast<ptrdiff_t>(row) * src_pitch,
        static_cast<To>(dst) + static_cast<ptrdiff_t>(row) * dst_pitch, n);
}

/// Rows of whole blocks: what is not usual is looked for once for all of them.
template <bool merged>
void dl16_from_fp32_rows(const void* src, ptrdiff_t src_pitch, void* dst, ptrdiff_t dst_pitch,
                         size_t n, size_t rows) {
  const auto from = [&](size_t row) {
    return static_cast<const char*>(src) + static_cast<ptrdiff_t>(row) * src_pitch;
  };
  const auto to = [&](size_t row) {
    return static_cast<char*>(dst) + static_cast<ptrdiff_t>(row) * dst_pitch;
  };
  if (n % kBlock == 0) {
    uint32_t largest[kBlock] = {};
    for (size_t row = 0; row < rows; ++row) {
      const Packed<4>::Element* __restrict in =
          reinterpret_cast<const Packed<4>::Element*>(from(row));
      Packed<2>::Element* __restrict out = reinterpret_cast<Packed<2>::Element*>(to(row));
      for (size_t begin = 0; begin < n; begin += kBlock)
        for (size_t i = 0; i < kBlock; ++i)
          out[begin + i] = dl16_from_usual_fp32(in[begin + i], largest[i]);
    }
    uint32_t most = 0;
    for (size_t i = 0; i < kBlock; ++i) most = largest[i] > most ? largest[i] : most;
    if (most <= kUsualFp32) return;
  }
  for (size_t row = 0; row < rows; ++row) each<4, 2, dl16_from_fp32<merged>>(from(row), to(row), n);
}

inline uint32_t same_32_bits(uint32_t bits) { return bits; }

/// Sticks of 32 elements, whose length the compiler then knows, and other short rows.
void copy_32_bits_rows(const void* src, ptrdiff_t src_pitch, void* dst, ptrdiff_t dst_pitch,
                       size_t n, size_t rows) {
  constexpr size_t kStick32 = 32;
  for (size_t row = 0; row < rows; ++row) {
    const char* const from =
        static_cast<const char*>(src) + static_cast<ptrdiff_t>(row) * src_pitch;
    char* const to = static_cast<char*>(dst) + static_cast<ptrdiff_t>(row) * dst_pitch;
    if (n == kStick32) {
      each<4, 4, same_32_bits>(from, to, kStick32);
    } else {
      each<4, 4, same_32_bits>(from, to, n);
    }
  }
}

/// Nearly always the value fits into int32, for which there is an instruction everywhere.
void int32_from_fp32(const void* src, void* dst, size_t n) {
  using Element = Packed<4>::Element;
  const Element* __restrict from = static_cast<const Element*>(src);
  Element* __restrict to = static_cast<Element*>(dst);
  while (n > 0) {
    const size_t count = n < kBlock ? n : kBlock;
    int32_t trouble = 0;
    for (size_t i = 0; i < count; ++i) {
      const uint32_t bits = from[i];
      const bool fits = (bits & 0x7FFFFFFF) < (158u << 23);
      trouble |= !fits;
      to[i] = static_cast<uint32_t>(static_cast<int32_t>(float_of(fits ? bits : 0)));
    }
    if (trouble) {
      for (size_t i = 0; i < count; ++i) to[i] = int32_from_fp32_slow(from[i]);
    }
    n -= count, from += count, to += count;
  }
}

template <int from_bytes, int to_bytes, auto ieee, auto merged = ieee>
constexpr FastKernel kernel(DataFormat src, DataFormat dst) {
  return {src, dst, each<from_bytes, to_bytes, ieee>, each<from_bytes, to_bytes, merged>};
}

using F = DataFormat;

constexpr FastKernel kKernels[] = {
    {F::IEEE_FP16, F::SEN169_FP16, mostly<dl16_from_usual_fp16, dl16_from_fp16<false>>,
     mostly<dl16_from_usual_fp16, dl16_from_fp16<true>>},
    {F::SEN169_FP16, F::IEEE_FP16, mostly<fp16_from_usual_dl16, fp16_from_dl16<false>>,
     mostly<fp16_from_usual_dl16, fp16_from_dl16<true>>},
    kernel<2, 2, dl16_from_bf16<false>, dl16_from_bf16<true>>(F::BFLOAT16, F::SEN169_FP16),
    kernel<2, 2, bf16_from_dl16<false>, bf16_from_dl16<true>>(F::SEN169_FP16, F::BFLOAT16),
    {F::IEEE_FP32, F::SEN169_FP16, each<4, 2, dl16_from_fp32<false>>,
     each<4, 2, dl16_from_fp32<true>>, dl16_from_fp32_rows<false>, dl16_from_fp32_rows<true>},
    {F::SEN169_FP16, F::IEEE_FP32, fp32_from_dl16_run<false>, fp32_from_dl16_run<true>,
     fp32_from_dl16_rows<false>, fp32_from_dl16_rows<true>},
    {F::IEEE_FP32, F::IEEE_FP32, each<4, 4, same_32_bits>, each<4, 4, same_32_bits>,
     copy_32_bits_rows, copy_32_bits_rows},
    kernel<8, 2, dl16_from_fp64<false>, dl16_from_fp64<true>>(F::IEEE_FP64, F::SEN169_FP16),
    kernel<2, 8, fp64_from_dl16<false>, fp64_from_dl16<true>>(F::SEN169_FP16, F::IEEE_FP64),
    kernel<4, 2, dl16_from_int32<false>, dl16_from_int32<true>>(F::IEEE_INT32, F::SEN169_FP16),
    kernel<2, 4, int32_from_dl16<false>, int32_from_dl16<true>>(F::SEN169_FP16, F::IEEE_INT32),
    kernel<8, 2, dl16_from_int64<false>, dl16_from_int64<true>>(F::IEEE_INT64, F::SEN169_FP16),
    kernel<2, 8, int64_from_dl16<false>, int64_from_dl16<true>>(F::SEN169_FP16, F::IEEE_INT64),
    kernel<1, 2, dl16_from_bool>(F::BOOL, F::SEN169_FP16),
    kernel<2, 1, bool_from_dl16>(F::SEN169_FP16, F::BOOL),
    kernel<1, 2, dl16_from_e4m3fn>(F::SEN143_FP8, F::SEN169_FP16),
    kernel<1, 2, dl16_from_e5m2fnuz>(F::SEN152_FP8, F::SEN169_FP16),
    kernel<4, 2, fp16_from_fp32>(F::IEEE_FP32, F::IEEE_FP16),
    kernel<2, 4, fp32_from_fp16>(F::IEEE_FP16, F::IEEE_FP32),
    kernel<4, 2, bf16_from_fp32>(F::IEEE_FP32, F::BFLOAT16),
    kernel<2, 4, fp32_from_bf16>(F::BFLOAT16, F::IEEE_FP32),
    {F::IEEE_FP32, F::IEEE_INT32, int32_from_fp32, int32_from_fp32},
    kernel<4, 4, fp32_from_int32>(F::IEEE_INT32, F::IEEE_FP32),
    kernel<8, 4, low_32_bits>(F::IEEE_INT64, F::IEEE_INT32),
    kernel<4, 8, sign_extend>(F::IEEE_INT32, F::IEEE_INT64),
    kernel<1, 4, zero_extend>(F::HOST_UINT8, F::SENUINT32),
    kernel<4, 1, low_8_bits>(F::SENUINT32, F::HOST_UINT8),
    {F::INVALID, F::INVALID, nullptr, nullptr},
};

}  // namespace

const FastKernel* fast_kernels() { return kKernels; }

}  // namespace spyre::card::SPYRE_SIMD_NAMESPACE
