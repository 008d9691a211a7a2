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

/// One stage, or two at once if both are cheap: how many.
[[gnu::noinline]] int run_stages(const Sweep& s, int k, int64_t line, int64_t begin, const float* x,
                                 float* out, int64_t n) {
  const SweepStage& stage = s.stages[k];
  const StageInput in(stage, line, begin);
  int done = 1;
  const bool cheap = with_cheap(stage.op, in, [&](auto op, auto y) {
    const bool two = k + 1 < s.stage_count &&
                     with_cheap(s.stages[k + 1].op, StageInput(s.stages[k + 1], line, begin),
                                [&](auto next_op, auto next_y) {
#pragma GCC ivdep
                                  for (int64_t i = 0; i < n; ++i)
                                    out[i] = next_op(op(x[i], y(i)), next_y(i));
                                });
    if (two) {
      done = 2;
      return;
    }
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) out[i] = op(x[i], y(i));
  });
  if (!cheap) run_stage(stage.op, in, x, out, n);
  return done;
}

/// Piece after piece, each through all stages while it is in the nearest cache.
template <class Join>
void sweep(const Sweep& s) {
  for (int64_t line = 0; line < s.lines; ++line)
    for (int64_t piece = 0, begin = 0; begin < s.length; ++piece, begin += kFoldPiece) {
      const int64_t n = s.length - begin < kFoldPiece ? s.length - begin : kFoldPiece;
      const float* x = s.x + line * s.length + begin;
      float work[kFoldPiece];
      float* const out = s.out ? s.out + line * s.length + begin : work;
      for (int k = 0; k < s.stage_count; x = out) k += run_stages(s, k, line, begin, x, out, n);
      if constexpr (requires { Join::identity; })
        s.partials[piece * s.lines + line] = fold_piece<float, Join, Value<float>>(x, n, 0);
    }
}

constexpr SweepKernels sweep_kernels() {
  return {sweep<void>, sweep<Sum<float>>, sweep<Largest<float>>};
}

}  // namespace
}  // namespace spyre::card::SPYRE_SIMD_NAMESPACE
