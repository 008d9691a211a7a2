// Folds: lines to numbers. Included once by each reduce_<level>.cpp, which is compiled for its
// vector width; reduce_kernels.h says in which order numbers are put together. The rules for such
// files are those of convert_kernels.inc.h: nothing with external linkage, no inline function of
// another header.

#include <stddef.h>
#include <stdint.h>

#include "kernels/reduce_kernels.h"

#ifndef SPYRE_SIMD_NAMESPACE
#error "define SPYRE_SIMD_NAMESPACE: this file is a part of reduce_<level>.cpp"
#endif

// clang-format off: each needs what comes before it
#include "formats/dl16_math.inc.h"
#include "kernels/vector_math.inc.h"
#include "kernels/run_math.inc.h"
// clang-format on

namespace spyre::card::SPYRE_SIMD_NAMESPACE {
namespace {

constexpr int kLanes = static_cast<int>(kFoldLanes);

// Integers wrap.
inline float plus(float a, float b) { return a + b; }
inline float times(float a, float b) { return a * b; }
inline float minus(float a, float b) { return a - b; }
inline int64_t plus(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
}
inline int64_t times(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
}
inline int64_t minus(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) - static_cast<uint64_t>(b));
}

template <typename T>
struct Limits;
template <>
struct Limits<float> {
  static constexpr float low = -__builtin_inff(), high = __builtin_inff();
};
template <>
struct Limits<int64_t> {
  static constexpr int64_t low = INT64_MIN, high = INT64_MAX;
};

// ------------------------------------------------------------------ how two numbers are put
// together

/// The last lanes of a fold of floats: what the compiler would else do one by one.
typedef float Lanes16 __attribute__((vector_size(64), aligned(4), may_alias));

template <typename T>
struct Sum {
  static constexpr T identity = 0;
  static T join(T a, T b) { return plus(a, b); }
  static T join_numbers(T a, T b) { return plus(a, b); }
  static void join_all(Lanes16& a, const Lanes16& b) { a = a + b; }
};

template <typename T>
struct Product {
  static constexpr T identity = 1;
  static T join(T a, T b) { return times(a, b); }
  static void join_all(Lanes16& a, const Lanes16& b) { a = a * b; }
};

template <typename T>
struct Largest {
  static constexpr T identity = Limits<T>::low;
  static T join(T a, T b) {
    const T larger = b > a ? b : a;
    return b == b ? larger : b;
  }
  static T join_numbers(T a, T b) { return b > a ? b : a; }  // neither is NaN
  static void join_all(Lanes16& a, const Lanes16& b) { a = b == b ? (b > a ? b : a) : b; }
};

template <typename T>
struct Smallest {
  static constexpr T identity = Limits<T>::high;
  static T join(T a, T b) {
    const T smaller = b < a ? b : a;
    return b == b ? smaller : b;
  }
  static void join_all(Lanes16& a, const Lanes16& b) { a = b == b ? (b < a ? b : a) : b; }
};

// ------------------------------------------------------- what an element is before that: of its
// value, the line's parameter and its position

template <typename T>
struct Value {
  static T of(T x, T, T) { return x; }
};

template <typename T>
struct Square {
  static T of(T x, T, T) { return times(x, x); }
};

template <typename T>
struct Deviation {
  static T of(T x, T mean, T) { return times(minus(x, mean), minus(x, mean)); }
};

struct Exponential {
  static float of(float x, float largest, float) { return exp32_of(x - largest); }
};

template <typename T>
struct NonZero {
  static T of(T x, T, T) { return x != 0 ? T{1} : T{0}; }
};

template <typename T>
struct Magnitude {
  static T of(T x, T, T) { return x < 0 ? minus(0, x) : x; }
};

template <typename T>
struct Match {
  // Selections rather than conditions joined by "or": these become vector code, those branches.
  static T of(T x, T wanted, T position) {
    constexpr T kNone = kFoldPiece;
    const T equal = x == wanted ? position : kNone;
    const T both_nan = wanted == wanted ? kNone : position;
    return x == x ? equal : both_nan;
  }
};

// ---------------------------------------------------------------------------------------------
// folds

/// Of sixteen lanes, lane i takes lane i + 8, then i + 4, and so on; lane 0 is the result.
template <class Join>
inline float fold_sixteen(Lanes16& all) {
  Join::join_all(
      all, __builtin_shufflevector(all, all, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7));
  Join::join_all(all,
                 __builtin_shufflevector(all, all, 4, 5, 6, 7, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3));
  Join::join_all(all,
                 __builtin_shufflevector(all, all, 2, 3, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1));
  Join::join_all(all,
                 __builtin_shufflevector(all, all, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0));
  return all[0];
}

/// Lane i takes lane i + 32, then i + 16, and so on.
template <class Join>
inline float fold_lanes(float* lane) {
  for (int i = 0; i < 32; ++i) lane[i] = Join::join(lane[i], lane[i + 32]);
  for (int i = 0; i < 16; ++i) lane[i] = Join::join(lane[i], lane[i + 16]);
  Lanes16 all = *reinterpret_cast<Lanes16*>(lane);
  return fold_sixteen<Join>(all);
}

template <class Join>
inline int64_t fold_lanes(int64_t* lane) {
  for (int width = kLanes / 2; width > 0; width /= 2)
    for (int i = 0; i < width; ++i) lane[i] = Join::join(lane[i], lane[i + width]);
  return lane[0];
}

/// A piece of one line.
template <typename T, class Join, class Map>
inline T fold_piece(const T* x, int64_t length, T parameter) {
  T lane[kLanes];
  for (int64_t i = 0; i < kLanes; ++i) lane[i] = Join::identity;
  int64_t p = 0;
  for (; p + kLanes <= length; p += kLanes)
    for (int64_t i = 0; i < kLanes; ++i)
      lane[i] = Join::join(
          lane[i], Map::of(x[p + i], parameter, static_cast<T>(static_cast<int32_t>(p + i))));
  for (int64_t i = 0; i < length - p; ++i)
    lane[i] = Join::join(lane[i],
                         Map::of(x[p + i], parameter, static_cast<T>(static_cast<int32_t>(p + i))));
  return fold_lanes<Join>(lane);
}

template <typename T, class Join>
void combine(T* partials, int64_t lines, int64_t pitch, int64_t pieces) {
  for (int64_t step = 1; step < pieces; step *= 2)
    for (int64_t piece = 0; piece + step < pieces; piece += 2 * step) {
      T* __restrict into = partials + piece * pitch;
      const T* __restrict from = partials + (piece + step) * pitch;
      for (int64_t i = 0; i < lines; ++i) into[i] = Join::join(into[i], from[i]);
    }
}

/// A piece of every line; lane i of all lines is row i of `work`.
template <typename T, class Join, class Map>
void fold_across(const T* x, const LineBlock& block, const T* parameters, T* results, T* work) {
  const int64_t lines = block.lines;
  const int64_t rows = block.length < kLanes ? block.length : kLanes;
  for (int64_t i = 0; i < rows * lines; ++i) work[i] = Join::identity;
  for (int64_t p = 0; p < block.length; ++p) {
    const T* __restrict row = x + p * block.pitch;
    T* __restrict lane = work + p % kLanes * lines;
    const T position = static_cast<T>(p);
    if (parameters) {
      const T* __restrict parameter = parameters;
      for (int64_t i = 0; i < lines; ++i)
        lane[i] = Join::join(lane[i], Map::of(row[i], parameter[i], position));
    } else {
      for (int64_t i = 0; i < lines; ++i)
        lane[i] = Join::join(lane[i], Map::of(row[i], T{0}, position));
    }
  }
  for (int64_t width = kLanes / 2; width > 0; width /= 2)
    for (int64_t r = 0; r < width && r + width < rows; ++r) {
      T* __restrict into = work + r * lines;
      const T* __restrict from = work + (r + width) * lines;
      for (int64_t i = 0; i < lines; ++i) into[i] = Join::join(into[i], from[i]);
    }
  for (int64_t i = 0; i < lines; ++i) results[i] = rows > 0 ? work[i] : Join::identity;
}

template <typename T, class Join, class Map>
void fold(const T* x, LineBlock block, const T* parameters, T* results, T* work) {
  if (block.across) return fold_across<T, Join, Map>(x, block, parameters, results, work);
  for (int64_t line = 0; line < block.lines; ++line)
    results[line] = fold_piece<T, Join, Map>(x + line * block.pitch, block.length,
                                             parameters ? parameters[line] : T{0});
}

/// Pieces of a line in the order of combine(), without room for all of them: partial results wait
/// on a stack, one for each bit of the number of pieces so far.
template <typename T, class Join>
struct Pairing {
  T waiting[64];
  int depth = 0;
  int64_t pieces = 0;

  void add(T value) {
    for (int64_t bits = pieces++; bits & 1; bits >>= 1) value = Join::join(waiting[--depth], value);
    waiting[depth++] = value;
  }
  T result() {
    if (depth == 0) return Join::identity;
    T value = waiting[--depth];
    while (depth > 0) value = Join::join(waiting[--depth], value);
    return value;
  }
};

template <typename T>
constexpr FoldKernels<T> fold_kernels() {
  FoldKernels<T> kernels{};
  const auto set = [&](Fold kind, typename FoldKernels<T>::Run run) {
    kernels.run[static_cast<int>(kind)] = run;
  };
  set(Fold::sum, fold<T, Sum<T>, Value<T>>);
  set(Fold::squares, fold<T, Sum<T>, Square<T>>);
  set(Fold::nonzeros, fold<T, Sum<T>, NonZero<T>>);
  set(Fold::product, fold<T, Product<T>, Value<T>>);
  set(Fold::largest, fold<T, Largest<T>, Value<T>>);
  set(Fold::smallest, fold<T, Smallest<T>, Value<T>>);
  set(Fold::magnitude, fold<T, Largest<T>, Magnitude<T>>);
  set(Fold::match, fold<T, Smallest<T>, Match<T>>);
  kernels.sum = combine<T, Sum<T>>;
  kernels.product = combine<T, Product<T>>;
  kernels.largest = combine<T, Largest<T>>;
  kernels.smallest = combine<T, Smallest<T>>;
  return kernels;
}

constexpr FoldKernels<float> float_fold_kernels() {
  FoldKernels<float> kernels = fold_kernels<float>();
  kernels.run[static_cast<int>(Fold::deviations)] = fold<float, Sum<float>, Deviation<float>>;
  kernels.run[static_cast<int>(Fold::exponentials)] = fold<float, Sum<float>, Exponential>;
  return kernels;
}

void exponential(float* x, int64_t n) { exp_run(x, x, n); }

void logarithm(float* x, int64_t n) {
  for (int64_t i = 0; i < n; ++i) x[i] = log32_of(x[i]);
}

}  // namespace
}  // namespace spyre::card::SPYRE_SIMD_NAMESPACE
