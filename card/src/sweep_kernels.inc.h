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

/// The other stages. `out` may be x, but not the stage's elements.
inline void run_stage(SweepOp op, const StageInput& in, const float* x, float* out, int64_t n) {
  const float number = in.number;
  const float* const elements = in.elements;
  if (op == SweepOp::exp) {
    exp_run(x, out, n);
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

/// x less a number, and whether exp32_of<true> does for all of that.
inline bool subtract_for_exp(const float* x, float number, float* out, int64_t n) {
  uint32_t largest = 0;
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    out[i] = x[i] - number;
    const uint32_t magnitude = __builtin_bit_cast(uint32_t, out[i]) & 0x7FFFFFFF;
    largest = magnitude > largest ? magnitude : largest;
  }
  return largest <= __builtin_bit_cast(uint32_t, kExpUsual);
}

/// Not inline: the compiler would take it for code that hardly ever runs.
[[gnu::noinline]] void affine_run(const float* x, float mean, float scale, const float* weight,
                                  const float* bias, float* out, int64_t n) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) out[i] = (x[i] - mean) * scale * weight[i] + bias[i];
}

/// Whether the next four stages are those that norms end with.
inline bool is_affine(const SweptPiece& p, int k) {
  return p.has(k, SweepOp::sub, false) && p.has(k + 1, SweepOp::mul, false) &&
         p.has(k + 2, SweepOp::mul, true) && p.has(k + 3, SweepOp::add, true);
}

/// One stage, or several at once if that is known to be quicker: how many.
[[gnu::noinline]] int run_stages(const SweptPiece& p, int k, const float* x, float* out) {
  const Sweep& s = p.sweep;
  const StageInput in = p.input(k);
  const int64_t n = p.n;
  if (p.has(k, SweepOp::sub, false) && p.has(k + 1, SweepOp::exp, false)) {
    if (subtract_for_exp(x, in.number, out, n)) {
      each_of_run<exp32_of<true>>(out, out, n);
    } else {
      exp_run(out, out, n);
    }
    return 2;
  }
  if (is_affine(p, k)) {
    affine_run(x, in.number, p.input(k + 1).number, p.input(k + 2).elements,
               p.input(k + 3).elements, out, n);
    return 4;
  }
  int done = 1;
  const bool cheap = with_cheap(s.stages[k].op, in, [&](auto op, auto y) {
    const bool two = k + 1 < s.stage_count &&
                     with_cheap(s.stages[k + 1].op, p.input(k + 1), [&](auto next_op, auto next_y) {
#pragma GCC ivdep
                       for (int64_t i = 0; i < n; ++i) out[i] = next_op(op(x[i], y(i)), next_y(i));
                     });
    if (two) {
      done = 2;
      return;
    }
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) out[i] = op(x[i], y(i));
  });
  if (!cheap) run_stage(s.stages[k].op, in, x, out, n);
  return done;
}

/// value(i) for a piece, folded as fold_piece() does.
template <class Join, class Each>
inline float fold_values(int64_t n, const Each& value) {
  float lane[kLanes];
  for (int64_t i = 0; i < kLanes; ++i) lane[i] = Join::identity;
  int64_t p = 0;
  for (; p + kLanes <= n; p += kLanes) {
#pragma GCC ivdep
    for (int64_t i = 0; i < kLanes; ++i) lane[i] = Join::join(lane[i], value(p + i));
  }
#pragma GCC ivdep
  for (int64_t i = 0; i < n - p; ++i) lane[i] = Join::join(lane[i], value(p + i));
  return fold_lanes<Join>(lane);
}

/// The sum of squares of differences from a number, which nothing else needs, as of a variance: if
/// that is what is left.
template <class Join>
inline bool fold_squares(const SweptPiece& p, int k, const float* x, float& folded) {
  if (!__is_same(Join, Sum<float>) || p.sweep.out || k + 2 != p.sweep.stage_count ||
      !p.has(k, SweepOp::sub, false) || !p.has(k + 1, SweepOp::square, false))
    return false;
  const float number = p.input(k).number;
  folded = fold_values<Join>(p.n, [=](int64_t i) { return (x[i] - number) * (x[i] - number); });
  return true;
}

/// Piece after piece, each through all stages while it is in the nearest cache.
template <class Join>
void sweep(const Sweep& s) {
  constexpr bool folds = !__is_same(Join, void);
  for (int64_t line = 0; line < s.lines; ++line)
    for (int64_t piece = 0, begin = 0; begin < s.length; ++piece, begin += kFoldPiece) {
      const int64_t n = s.length - begin < kFoldPiece ? s.length - begin : kFoldPiece;
      const SweptPiece swept{s, line, begin, n};
      const float* x = s.x + line * s.length + begin;
      float work[kFoldPiece], folded = 0;
      float* const out = s.out ? s.out + line * s.length + begin : work;
      bool done = false;
      for (int k = 0; k < s.stage_count && !done; x = out) {
        if constexpr (folds) done = fold_squares<Join>(swept, k, x, folded);
        if (!done) k += run_stages(swept, k, x, out);
      }
      if constexpr (folds) {
        if (!done) folded = fold_piece<float, Join, Value<float>>(x, n, 0);
        s.partials[piece * s.lines + line] = folded;
      }
    }
}

constexpr SweepKernels sweep_kernels() {
  return {sweep<void>, sweep<Sum<float>>, sweep<Largest<float>>};
}

}  // namespace
}  // namespace spyre::card::SPYRE_SIMD_NAMESPACE
