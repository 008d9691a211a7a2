// Whole sticks of DLFloat16 from and to vectors, where instructions do more at once than compilers
// find. A part of reduce_<level>.cpp, under its rules.

#if defined(__AVX512BW__)
#include <immintrin.h>
#endif

namespace spyre::card::SPYRE_SIMD_NAMESPACE {
namespace {

constexpr int64_t kStick = kStickElements;
typedef Packed<2>::Element Dl16;

/// A line, or a piece of one.
template <typename Byte>
struct StickPiece {
  Byte* at;
  int64_t step, next;  // bytes from a stick to the line's next, and to the next line's

  StickPiece(const StickLines<Byte>& lines, int64_t line, int64_t begin)
      : at(lines.first + line * lines.line_step + begin / kStick * lines.stick_step),
        step(lines.stick_step),
        next(lines.line_step) {}
  /// The stick that begins with this element. Sticks of a line are far from each other, so that
  /// hosts do not see what comes next: the same of the next line is fetched.
  Byte* stick(int64_t begin) const {
    constexpr bool write = !__is_same(Byte, const char);
    constexpr int64_t kCacheLine = 64, kStickBytes = kStick * 2;
    Byte* const here = at + begin / kStick * step;
    for (int64_t i = 0; i < kStickBytes; i += kCacheLine)
      __builtin_prefetch(here + next + i, write, 2);
    return here;
  }
};
typedef StickPiece<const char> SourcePiece;
typedef StickPiece<char> TargetPiece;

/// What pieces of a line are folded into: [piece * pitch].
struct Partials {
  float* at;
  int64_t pitch;
};

/// An element of a line.
struct One {
  int64_t i;
  float of(const float* x) const { return x[i]; }
};

/// The larger of `largest` and the magnitude.
inline void note(float x, uint32_t& largest) {
  const uint32_t magnitude = bits_of(x) & 0x7FFFFFFF;
  largest = magnitude > largest ? magnitude : largest;
}

#if defined(__AVX512BW__)

constexpr bool kWholeSticks = true;
typedef uint32_t Bits16 __attribute__((vector_size(64)));  // of Lanes16

/// Sixteen elements of a line.
struct Sixteen {
  int64_t i;
  Lanes16 of(const float* x) const { return *reinterpret_cast<const Lanes16*>(x + i); }
};

inline __m512 plain(const Lanes16& x) { return reinterpret_cast<__m512>(x); }
inline Lanes16 lanes(__m512 x) { return reinterpret_cast<Lanes16>(x); }

inline void note(const Lanes16& x, Bits16& largest) {
  const Bits16 magnitude = reinterpret_cast<Bits16>(x) & 0x7FFFFFFFu;
  largest = reinterpret_cast<Bits16>(
      _mm512_max_epu32(reinterpret_cast<__m512i>(largest), reinterpret_cast<__m512i>(magnitude)));
}
inline bool usual(const Bits16& largest) {
  return _mm512_reduce_max_epu32(reinterpret_cast<__m512i>(largest)) <= kUsualFp32;
}

inline Lanes16 usual_rounded_to_dl16(const Lanes16& value) {
  constexpr uint32_t kNothing = kFp32Shift + 0x2000;
  const Bits16 bits = reinterpret_cast<Bits16>(value);
  const Bits16 rounded = (bits + 0x2000u) & 0xFFFFC000u;
  return reinterpret_cast<Lanes16>((bits & 0x7FFFFFFFu) < kNothing ? bits & 0x80000000u : rounded);
}

inline Lanes16 quotient_of(const Lanes16& x, const Divisor& by) {
  const __m512 of = plain(x), number = _mm512_set1_ps(by.number);
  const __m512 first =
      _mm512_fmadd_ps(of, _mm512_set1_ps(by.high), _mm512_mul_ps(of, _mm512_set1_ps(by.low)));
  return lanes(
      _mm512_fnmadd_ps(_mm512_fmsub_ps(first, number, of), _mm512_set1_ps(by.reciprocal), first));
}

inline Lanes16 mapped(Value<float>, const Lanes16& x) { return x; }
inline Lanes16 mapped(Square<float>, const Lanes16& x) { return x * x; }

/// Neither is NaN.
inline Lanes16 join_numbers(Sum<float>, const Lanes16& a, const Lanes16& b) { return a + b; }
inline Lanes16 join_numbers(Largest<float>, const Lanes16& a, const Lanes16& b) {
  return lanes(_mm512_max_ps(plain(b), plain(a)));
}

/// On the way through, the largest code is noted; from kDl16Infinity on, what was done is void.
class CodeNotes {
 public:
  bool finite() const {
    const __m512i limit = _mm512_set1_epi16(kDl16Infinity);
    return _mm512_cmpge_epi16_mask(largest_, limit) == 0;
  }
  void add(__m512i codes) { largest_ = _mm512_max_epi16(largest_, codes); }

 private:
  __m512i largest_ = _mm512_setzero_si512();
};

/// Half a stick. The bits of a number are put together of two halves, so that 32 numbers are worked
/// on at a time; see fp32_from_usual_dl16().
inline void load_half(const char* from, CodeNotes& notes, Lanes16& first, Lanes16& second) {
  const __m512i order = _mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7);  // for what unpacking does
  const __m512i codes = _mm512_permutexvar_epi64(order, _mm512_loadu_si512(from));
  const __m512i magnitudes = _mm512_and_si512(codes, _mm512_set1_epi16(0x7FFF));
  notes.add(magnitudes);
  const __m512i placed =
      _mm512_and_si512(_mm512_srai_epi16(codes, 2), _mm512_set1_epi16(static_cast<short>(0x9FFF)));
  const __m512i high = _mm512_mask_add_epi16(placed, _mm512_test_epi16_mask(magnitudes, magnitudes),
                                             placed, _mm512_set1_epi16(kFp32Shift >> 16));
  const __m512i low = _mm512_slli_epi16(codes, 14);
  first = reinterpret_cast<Lanes16>(_mm512_unpacklo_epi16(low, high));
  second = reinterpret_cast<Lanes16>(_mm512_unpackhi_epi16(low, high));
}

/// Codes that are too large come out of packing as the largest, and negative ones are 0; see
/// dl16_from_usual_fp32().
inline void store_half(char* to, CodeNotes& notes, const Lanes16& first, const Lanes16& second) {
  const auto code = [](__m512i bits) {
    const __m512i magnitude = _mm512_and_si512(bits, _mm512_set1_epi32(0x7FFFFFFF));
    constexpr auto kZero = static_cast<int>(kFp32Shift - 0x2000);
    return _mm512_srai_epi32(_mm512_sub_epi32(magnitude, _mm512_set1_epi32(kZero)), 14);
  };
  const auto a = reinterpret_cast<__m512i>(first), b = reinterpret_cast<__m512i>(second);
  const __m512i codes = _mm512_packs_epi32(code(a), code(b));
  notes.add(codes);
  const __m512i signs =
      _mm512_and_si512(_mm512_packs_epi32(a, b), _mm512_set1_epi16(static_cast<short>(0x8000)));
  const __m512i packed = _mm512_or_si512(_mm512_max_epi16(codes, _mm512_setzero_si512()), signs);
  const __m512i order = _mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7);  // from what packing does
  _mm512_storeu_si512(to, _mm512_permutexvar_epi64(order, packed));
}

/// fold_lanes() of lanes that are in registers.
template <class Join>
inline float fold_lanes(Lanes16 (&lane)[4]) {
  Join::join_all(lane[0], lane[2]);
  Join::join_all(lane[1], lane[3]);
  Join::join_all(lane[0], lane[1]);
  return fold_sixteen<Join>(lane[0]);
}

/// load_folded() of whole sticks. False if some elements are not finite.
template <class Join, class Map>
inline bool load_whole(const SourcePiece& from, float* x, int64_t n, const Partials& partials) {
  CodeNotes notes;
  float* to = partials.at;
  for (int64_t begin = 0; begin < n; begin += kFoldPiece, to += partials.pitch) {
    Lanes16 lane[4];
    for (Lanes16& each : lane) each = Lanes16{} + Join::identity;
    const int64_t end = begin + kFoldPiece < n ? begin + kFoldPiece : n;
    for (int64_t at = begin; at < end; at += kStick) {
      const char* const stick = from.stick(at);
      Lanes16 value[4];
      load_half(stick, notes, value[0], value[1]);
      load_half(stick + kStick, notes, value[2], value[3]);
      for (int i = 0; i < 4; ++i) {
        *reinterpret_cast<Lanes16*>(x + at + 16 * i) = value[i];
        lane[i] = join_numbers(Join{}, lane[i], mapped(Map{}, value[i]));
      }
    }
    *to = fold_lanes<Join>(lane);
  }
  return notes.finite();
}

/// store_usual() of whole sticks, sixteen elements at a time.
template <class Value>
inline bool store_whole(const TargetPiece& to, int64_t n, const Value& value) {
  CodeNotes notes;
  Bits16 largest = {};
  for (int64_t at = 0; at < n; at += kStick) {
    Lanes16 x[4];
    for (int i = 0; i < 4; ++i) x[i] = value(Sixteen{at + 16 * i}, largest);
    char* const stick = to.stick(at);
    store_half(stick, notes, x[0], x[1]);
    store_half(stick + kStick, notes, x[2], x[3]);
  }
  return notes.finite() && usual(largest);
}

#else

constexpr bool kWholeSticks = false;
template <class Join, class Map>
bool load_whole(const SourcePiece&, float*, int64_t, const Partials&);
template <class Value>
bool store_whole(const TargetPiece&, int64_t, const Value&);

#endif

}  // namespace
}  // namespace spyre::card::SPYRE_SIMD_NAMESPACE
