// Sweeps' pieces of lines from and to sticks of DLFloat16, with ops and folds on the way. A part of
// reduce_<level>.cpp, under its rules.
//
// What does for nearly all numbers does not look at them first: it notes the largest, and where
// that is too large, the piece is done again. So nothing here writes where it reads from.

namespace spyre::card::SPYRE_SIMD_NAMESPACE {
namespace {

/// The length of a whole stick, which loops then know.
struct WholeStick {
  constexpr operator int64_t() const { return kStick; }
};

/// each(begin, count) for the sticks of a piece.
template <class Each>
inline void each_stick(int64_t begin, int64_t end, const Each& each) {
  for (; begin + kStick <= end; begin += kStick) each(begin, WholeStick{});
  if (begin < end) each(begin, end - begin);
}

/// The largest that was noted at each place of a stick.
template <typename T>
struct Noted {
  T at[kStick] = {};

  T largest() const {
    T most = 0;
    for (int64_t i = 0; i < kStick; ++i) most = at[i] > most ? at[i] : most;
    return most;
  }
};

/// Folds of the pieces of a line: each(begin, count, lane) joins the elements of a stick to their
/// lanes.
template <class Join, class Each>
inline void fold_sticks(int64_t n, const Partials& partials, const Each& each) {
  float* to = partials.at;
  for (int64_t begin = 0; begin < n; begin += kFoldPiece, to += partials.pitch) {
    float lane[kLanes];
    for (int64_t i = 0; i < kLanes; ++i) lane[i] = Join::identity;
    each_stick(begin, begin + kFoldPiece < n ? begin + kFoldPiece : n,
               [&](int64_t at, auto count) { each(at, count, lane); });
    *to = fold_lanes<Join>(lane);
  }
}

template <class Join, class Map>
inline void fold_floats(const float* x, int64_t n, const Partials& partials) {
  fold_sticks<Join>(n, partials, [&](int64_t begin, auto count, float* lane) {
    const int64_t end = count;
    for (int64_t i = 0; i < end; ++i) lane[i] = Join::join(lane[i], Map::of(x[begin + i], 0, 0));
  });
}

// ----------------------------------------------------------------------------------- from sticks

template <bool merged>
[[gnu::noinline]] void load_exactly(const SourcePiece& from, float* x, int64_t n) {
  each_stick(0, n, [&](int64_t begin, auto count) {
    const int64_t end = count;
    const auto* const bits = reinterpret_cast<const Dl16*>(from.stick(begin));
    for (int64_t i = 0; i < end; ++i) x[begin + i] = float_of(fp32_from_dl16<merged>(bits[i]));
  });
}

/// Loads again what is not finite, if there is such.
inline bool load_again(const Noted<uint16_t>& noted, const SourcePiece& from, float* x, int64_t n,
                       bool merged) {
  if (noted.largest() < kDl16Infinity) return false;
  merged ? load_exactly<true>(from, x, n) : load_exactly<false>(from, x, n);
  return true;
}

[[gnu::noinline]] void load_sticks(const SourcePiece& from, float* x, int64_t n, bool merged) {
  Noted<uint16_t> noted;
  each_stick(0, n, [&](int64_t begin, auto count) {
    const int64_t end = count;
    const auto* const bits = reinterpret_cast<const Dl16*>(from.stick(begin));
#pragma GCC ivdep
    for (int64_t i = 0; i < end; ++i)
      x[begin + i] = float_of(fp32_from_usual_dl16(bits[i], noted.at[i]));
  });
  load_again(noted, from, x, n, merged);
}

/// Loads a line and folds its elements, or their squares.
template <class Join, class Map>
[[gnu::noinline]] void load_folded(const SourcePiece& from, float* x, int64_t n, bool merged,
                                   const Partials& partials) {
  if constexpr (kWholeSticks) {
    if (n % kStick == 0 && load_whole<Join, Map>(from, x, n, partials)) return;
  }
  Noted<uint16_t> noted;
  fold_sticks<Join>(n, partials, [&](int64_t begin, auto count, float* lane) {
    const int64_t end = count;
    const auto* const bits = reinterpret_cast<const Dl16*>(from.stick(begin));
#pragma GCC ivdep
    for (int64_t i = 0; i < end; ++i) {
      const float value = float_of(fp32_from_usual_dl16(bits[i], noted.at[i]));
      x[begin + i] = value;
      lane[i] = Join::join_numbers(lane[i], Map::of(value, 0, 0));
    }
  });
  if (load_again(noted, from, x, n, merged)) fold_floats<Join, Map>(x, n, partials);
}

// ------------------------------------------------------------------------------------- to sticks

/// Stores value(element, largest) for all elements; `largest` is to note magnitudes before the
/// last. False if some of them are too large for that.
template <class Value>
inline bool store_usual(const TargetPiece& to, int64_t n, const Value& value) {
  if constexpr (kWholeSticks) {
    if (n % kStick == 0) return store_whole(to, n, value);
  }
  Noted<uint32_t> noted;
  each_stick(0, n, [&](int64_t begin, auto count) {
    const int64_t end = count;
    auto* const bits = reinterpret_cast<Dl16*>(to.stick(begin));
#pragma GCC ivdep
    for (int64_t i = 0; i < end; ++i)
      bits[i] = dl16_from_usual_fp32(bits_of(value(One{begin + i}, noted.at[i])), noted.at[i]);
  });
  return noted.largest() <= kUsualFp32;
}

template <bool merged, class Value>
inline void store_exactly(const TargetPiece& to, int64_t n, const Value& value) {
  each_stick(0, n, [&](int64_t begin, auto count) {
    const int64_t end = count;
    auto* const bits = reinterpret_cast<Dl16*>(to.stick(begin));
    for (int64_t i = 0; i < end; ++i)
      bits[i] = dl16_from_fp32<merged>(bits_of(value(One{begin + i})));
  });
}

/// Ops that are computed together: x less a number, times a number, rounded to DLFloat16, times
/// elements, plus elements. Numbers that are not there change nothing.
struct Linear {
  float less = 0, times = 1;
  bool rounds = false;
  const float *factors = nullptr, *addends = nullptr;
};

/// use(of): of(x, at, round) is what becomes of an element, or of sixteen.
template <class Use>
inline void with_linear(const Linear& linear, const Use& use) {
  const float less = linear.less, times = linear.times;
  const float *const factors = linear.factors, *const addends = linear.addends;
  const auto scaled = [=](const float* x, auto at, const auto& round) {
    return round((at.of(x) - less) * times);
  };
  if (factors && addends) {
    use([=](const float* x, auto at, const auto& round) {
      return scaled(x, at, round) * at.of(factors) + at.of(addends);
    });
  } else if (factors) {
    use([=](const float* x, auto at, const auto& round) {
      return scaled(x, at, round) * at.of(factors);
    });
  } else if (addends) {
    use([=](const float* x, auto at, const auto& round) {
      return scaled(x, at, round) + at.of(addends);
    });
  } else {
    use(scaled);
  }
}

constexpr auto kAsIs = [](auto y) { return y; };

[[gnu::noinline]] void linear_to_floats(const Linear& linear, const float* x, float* out,
                                        int64_t n) {
  with_linear(linear, [&](auto of) {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) out[i] = of(x, One{i}, kAsIs);
  });
}

template <bool merged>
[[gnu::noinline]] void linear_to_sticks_exactly(const Linear& linear, const float* x,
                                                const TargetPiece& to, int64_t n) {
  with_linear(linear, [&](auto of) {
    if (linear.rounds) {
      store_exactly<merged>(to, n, [&](One at) { return of(x, at, rounded_to_dl16<merged>); });
    } else {
      store_exactly<merged>(to, n, [&](One at) { return of(x, at, kAsIs); });
    }
  });
}

[[gnu::noinline]] void linear_to_sticks(const Linear& linear, const float* x, const TargetPiece& to,
                                        int64_t n, bool merged) {
  bool usual = false;
  with_linear(linear, [&](auto of) {
    if (linear.rounds) {
      usual = store_usual(to, n, [=](auto at, auto& largest) {
        return of(x, at, [&](auto y) {
          note(y, largest);
          return usual_rounded_to_dl16(y);
        });
      });
    } else {
      usual = store_usual(to, n, [=](auto at, auto&) { return of(x, at, kAsIs); });
    }
  });
  if (usual) return;
  merged ? linear_to_sticks_exactly<true>(linear, x, to, n)
         : linear_to_sticks_exactly<false>(linear, x, to, n);
}

/// x / number. Which numbers quotient_of() does for need not be looked at: too large ones are
/// noted, and where the result is inexact because they are too small, it is 0 in DLFloat16.
[[gnu::noinline]] void quotients_to_sticks(const float* x, float number, const TargetPiece& to,
                                           int64_t n, bool merged) {
  const Divisor by(number);
  if (by.plain() && store_usual(to, n, [=](auto at, auto&) { return quotient_of(at.of(x), by); }))
    return;
  const auto quotient = [=](One at) { return at.of(x) / number; };
  merged ? store_exactly<true>(to, n, quotient) : store_exactly<false>(to, n, quotient);
}

}  // namespace
}  // namespace spyre::card::SPYRE_SIMD_NAMESPACE
