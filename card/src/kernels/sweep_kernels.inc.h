// Several ops on elements, and the fold of the last, in one sweep over lines: piece after piece
// goes through all of them. A part of reduce_<level>.cpp, under its rules.

namespace spyre::card::SPYRE_SIMD_NAMESPACE {
namespace {

/// What a stage has beside x on a piece of one line: a number, or elements.
struct StageInput {
  float number;
  const float* elements;

  StageInput(const SweepStage& stage, int64_t line, int64_t begin)
      : number(stage.numbers ? stage.numbers[line * stage.number_step] : 0),
        elements(stage.elements ? stage.elements + line * stage.line_step + begin : nullptr) {}
};

/// use(op, y) for a cheap stage: x becomes op(x, y(i)). False for one that is not cheap.
template <class Use>
inline bool with_cheap(SweepOp op, const StageInput& in, const Use& use) {
  const float number = in.number;
  const float* const elements = in.elements;
  const auto with_other = [&](auto function) {
    if (elements) {
      use(function, [=](int64_t i) { return elements[i]; });
    } else {
      use(function, [=](int64_t) { return number; });
    }
    return true;
  };
  switch (op) {
    case SweepOp::add:
      return with_other([](float a, float b) { return a + b; });
    case SweepOp::sub:
      return with_other([](float a, float b) { return a - b; });
    case SweepOp::mul:
      return with_other([](float a, float b) { return a * b; });
    case SweepOp::square:
      use([](float a, float) { return a * a; }, [](int64_t) { return 0.0f; });
      return true;
    default:
      return false;
  }
}

/// A piece of a line on its way through the stages.
struct SweptPiece {
  const Sweep& sweep;
  int64_t line, begin, n;

  StageInput input(int k) const { return {sweep.stages[k], line, begin}; }
  bool has(int k, SweepOp op, bool elements) const {
    return k < sweep.stage_count && sweep.stages[k].op == op &&
           (sweep.stages[k].elements != nullptr) == elements;
  }
};

/// The other stages. `out` may be x, but not the stage's elements.
inline void run_stage(const SweptPiece& p, int k, const float* x, float* out) {
  const SweepOp op = p.sweep.stages[k].op;
  const StageInput in = p.input(k);
  const float number = in.number;
  const float* const elements = in.elements;
  const int64_t n = p.n;
  if (op == SweepOp::exp) {
    exp_run(x, out, n);
  } else if (op == SweepOp::round) {
    p.sweep.merged ? round_run<true>(x, out, n) : round_run<false>(x, out, n);
  } else if (op == SweepOp::where) {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) out[i] = elements[i] != 0 ? x[i] : number;
  } else if (!elements) {
    divide_run(x, number, out, n);
  } else {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) out[i] = x[i] / elements[i];
  }
}

/// Less a number, if the next stage is that.
inline int take_less(const SweptPiece& p, int k, float& less) {
  if (p.has(k, SweepOp::sub, false)) {
    less = p.input(k).number;
  } else if (p.has(k, SweepOp::add, false)) {
    less = -p.input(k).number;
  } else {
    return k;
  }
  return k + 1;
}

/// How far stages from k on are such as Linear has.
inline int take_linear(const SweptPiece& p, int k, bool may_round, Linear& linear) {
  k = take_less(p, k, linear.less);
  if (p.has(k, SweepOp::mul, false)) linear.times = p.input(k++).number;
  if (may_round && p.has(k, SweepOp::round, false)) {
    linear.rounds = true;
    ++k;
  }
  if (p.has(k, SweepOp::mul, true)) linear.factors = p.input(k++).elements;
  if (p.has(k, SweepOp::add, true)) linear.addends = p.input(k++).elements;
  return k;
}

/// exp(x - less) if exp32_of<true> does for that.
inline float usual_exp_of(float x, float less, uint32_t& largest) {
  const float y = x - less;
  note(y, largest);
  return exp32_of<true>(y);
}

inline void any_exponentials(const float* x, float less, float* out, int64_t n) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) out[i] = x[i] - less;
  exp_run(out, out, n);
}

/// Takes the exponentials of the -infinities that a line ends in, as under a causal mask: zeros,
/// without arithmetic. How many elements there are before them. Infinity less infinity would be
/// another matter.
inline int64_t without_hidden(const float* x, float less, float* out, int64_t n) {
  constexpr float hidden = -__builtin_inff();
  if (!__builtin_isfinite(less)) return n;
  const auto all_hidden = [](const float* at) {
    int32_t count = 0;
    for (int64_t i = 0; i < kLanes; ++i) count += at[i] == hidden;
    return count == kLanes;
  };
  int64_t seen = n;
  while (seen >= kLanes && all_hidden(x + seen - kLanes)) seen -= kLanes;
  while (seen > 0 && x[seen - 1] == hidden) --seen;
  for (int64_t i = seen; i < n; ++i) out[i] = 0;
  return seen;
}

/// exp(x - less). `out` may be x, but that takes longer.
[[gnu::noinline]] void exponentials(const float* x, float less, float* out, int64_t n) {
  n = without_hidden(x, less, out, n);
  if (x != out) {
    Noted<uint32_t> noted;
    each_stick(0, n, [&](int64_t begin, auto count) {
      const int64_t end = count;
#pragma GCC ivdep
      for (int64_t i = 0; i < end; ++i)
        out[begin + i] = usual_exp_of(x[begin + i], less, noted.at[i]);
    });
    if (noted.largest() <= bits_of(kExpUsual)) return;
  }
  any_exponentials(x, less, out, n);
}

/// The same and its sum.
[[gnu::noinline]] void exponentials_folded(const float* x, float less, float* out, int64_t n,
                                           const Partials& partials) {
  const int64_t seen = without_hidden(x, less, out, n);
  for (int64_t piece = (seen + kFoldPiece - 1) / kFoldPiece; piece * kFoldPiece < n; ++piece)
    partials.at[piece * partials.pitch] = 0;
  n = seen;
  if (x != out) {
    Noted<uint32_t> noted;
    fold_sticks<FloatSum>(n, partials, [&](int64_t begin, auto count, float* lane) {
      const int64_t end = count;
#pragma GCC ivdep
      for (int64_t i = 0; i < end; ++i) {
        const float power = usual_exp_of(x[begin + i], less, noted.at[i]);
        out[begin + i] = power;
        lane[i] = FloatSum::join(lane[i], power);
      }
    });
    if (noted.largest() <= bits_of(kExpUsual)) return;
  }
  any_exponentials(x, less, out, n);
  fold_floats<FloatSum, Value<float>>(out, n, partials);
}

/// The sum of (x - less)^2.
[[gnu::noinline]] void deviations_folded(const float* x, float less, int64_t n,
                                         const Partials& partials) {
  fold_sticks<FloatSum>(n, partials, [&](int64_t begin, auto count, float* lane) {
    const int64_t end = count;
    for (int64_t i = 0; i < end; ++i) {
      const float y = x[begin + i] - less;
      lane[i] = FloatSum::join(lane[i], y * y);
    }
  });
}

/// One stage from k on, or several at once: the next one. `last` is where the result of the last
/// stage goes, `between` that of others.
[[gnu::noinline]] int run_stages(const SweptPiece& p, int k, const float* x, float* between,
                                 float* last) {
  const Sweep& s = p.sweep;
  const int64_t n = p.n;
  const auto target = [&](int next) { return next == s.stage_count ? last : between; };
  float less = 0;
  int next = take_less(p, k, less);
  if (p.has(next, SweepOp::exp, false)) {
    exponentials(x, less, target(next + 1), n);
    return next + 1;
  }
  Linear linear;
  next = take_linear(p, k, false, linear);
  if (next > k + 2) {
    linear_to_floats(linear, x, target(next), n);
    return next;
  }
  next = k + 1;
  const bool cheap = with_cheap(s.stages[k].op, p.input(k), [&](auto op, auto y) {
    const bool two = next < s.stage_count && with_cheap(
                                                 s.stages[next].op, p.input(next),
                                                 [&](auto next_op, auto next_y) {
                                                   float* const out = target(next + 1);
#pragma GCC ivdep
                                                   for (int64_t i = 0; i < n; ++i)
                                                     out[i] = next_op(op(x[i], y(i)), next_y(i));
                                                 });
    if (two) {
      ++next;
      return;
    }
    float* const out = target(next);
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) out[i] = op(x[i], y(i));
  });
  if (!cheap) run_stage(p, k, x, target(next));
  return next;
}

/// The stages from k on, if there is a way to do them together with storing to sticks.
inline bool store_stages(const SweptPiece& p, int k, const float* x) {
  const Sweep& s = p.sweep;
  const TargetPiece to(s.to, p.line, p.begin);
  Linear linear;
  if (take_linear(p, k, true, linear) == s.stage_count) {
    linear_to_sticks(linear, x, to, p.n, s.merged);
    return true;
  }
  if (k + 1 == s.stage_count && p.has(k, SweepOp::divide, false)) {
    quotients_to_sticks(x, p.input(k).number, to, p.n, s.merged);
    return true;
  }
  return false;
}

/// The stages from k on, if there is a way to do them together with the fold. `out` is null where
/// there is no room for a result.
template <class Join>
inline bool fold_stages(const SweptPiece& p, int k, const float* x, float* out,
                        const Partials& partials) {
  if (!__is_same(Join, FloatSum)) return false;
  float less = 0;
  const int next = take_less(p, k, less);
  if (next + 1 != p.sweep.stage_count) return false;
  if (out && p.has(next, SweepOp::exp, false)) {
    exponentials_folded(x, less, out, p.n, partials);
    return true;
  }
  if (p.sweep.out || !p.has(next, SweepOp::square, false)) return false;
  deviations_folded(x, less, p.n, partials);
  return true;
}

/// Loads and folds, if that is all there is to do.
template <class Join>
inline bool fold_loaded(const SweptPiece& p, float* x, const Partials& partials) {
  const Sweep& s = p.sweep;
  const SourcePiece from(s.from, p.line, p.begin);
  if (s.stage_count == 0) {
    load_folded<Join, Value<float>>(from, x, p.n, s.merged, partials);
    return true;
  }
  if (!__is_same(Join, FloatSum) || s.stage_count > 1 || s.out || !p.has(0, SweepOp::square, false))
    return false;
  load_folded<Join, Square<float>>(from, x, p.n, s.merged, partials);
  return true;
}

/// A whole line, if it can be done in one go.
template <class Join>
inline bool sweep_line(const Sweep& s, int64_t line) {
  const SweptPiece p{s, line, 0, s.length};
  if (!s.x) return false;
  float* const x = s.x + line * s.length;
  if constexpr (__is_same(Join, void)) {
    return s.to.first && !s.from.first && store_stages(p, 0, x);
  } else {
    const Partials partials{s.partials + line, s.pitch};
    if (s.from.first) return fold_loaded<Join>(p, x, partials);
    return fold_stages<Join>(p, 0, x, s.out ? s.out + line * s.length : nullptr, partials);
  }
}

/// A piece of a line, through all stages while it is in the nearest cache.
template <class Join>
inline void sweep_piece(const SweptPiece& p) {
  constexpr bool folds = !__is_same(Join, void);
  const Sweep& s = p.sweep;
  const int64_t at = p.line * s.length + p.begin;
  const Partials partials{s.partials + p.begin / kFoldPiece * s.pitch + p.line, s.pitch};
  alignas(64) float loaded[kFoldPiece], work[kFoldPiece];
  float* const first = s.x ? s.x + at : loaded;
  float* const out = s.out ? s.out + at : work;
  if (s.from.first) {
    if constexpr (folds)
      if (fold_loaded<Join>(p, first, partials)) return;
    load_sticks(SourcePiece(s.from, p.line, p.begin), first, p.n, s.merged);
  }
  const float* x = first;
  for (int k = 0; k < s.stage_count; x = k == s.stage_count ? out : work) {
    if constexpr (folds) {
      if (fold_stages<Join>(p, k, x, out, partials)) return;
    } else {
      if (s.to.first && store_stages(p, k, x)) return;
    }
    k = run_stages(p, k, x, work, out);
  }
  if constexpr (folds) {
    *partials.at = fold_piece<float, Join, Value<float>>(x, p.n, 0);
  } else if (s.to.first) {
    linear_to_sticks({}, x, TargetPiece(s.to, p.line, p.begin), p.n, s.merged);
  }
}

template <class Join>
void sweep(const Sweep& s) {
  for (int64_t line = 0; line < s.lines; ++line) {
    if (sweep_line<Join>(s, line)) continue;
    for (int64_t begin = 0; begin < s.length; begin += kFoldPiece) {
      const int64_t n = s.length - begin < kFoldPiece ? s.length - begin : kFoldPiece;
      sweep_piece<Join>({s, line, begin, n});
    }
  }
}

constexpr SweepKernels sweep_kernels() {
  return {sweep<void>, sweep<FloatSum>, sweep<FloatLargest>};
}

}  // namespace
}  // namespace spyre::card::SPYRE_SIMD_NAMESPACE
