// Several ops on elements, and the fold of the last, in one sweep over lines: piece after piece
// goes through all of them. A part of reduce_<level>.cpp, under its rules.

namespace spyre::card::SPYRE_SIMD_NAMESPACE {
namespace {

/// What a stage does with elements: y is one for each, or one number for all.
template <class Op, class Y>
inline void each_element(const float* x, float* out, int64_t n, const Op& op, const Y& y) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) out[i] = op(x[i], y(i));
}

/// One stage on a piece of one line. `out` may be x, but not the stage's elements.
inline void run_stage(const SweepStage& stage, int64_t line, int64_t begin, const float* x,
                      float* out, int64_t n) {
  const float number = stage.numbers ? stage.numbers[line * stage.number_step] : 0;
  const float* const elements =
      stage.elements ? stage.elements + line * stage.line_step + begin : nullptr;
  const auto with_other = [&](auto op) {
    if (elements) {
      each_element(x, out, n, op, [=](int64_t i) { return elements[i]; });
    } else {
      each_element(x, out, n, op, [=](int64_t) { return number; });
    }
  };
  switch (stage.op) {
    case SweepOp::add:
      return with_other([](float a, float b) { return a + b; });
    case SweepOp::sub:
      return with_other([](float a, float b) { return a - b; });
    case SweepOp::mul:
      return with_other([](float a, float b) { return a * b; });
    case SweepOp::divide:
      if (!elements) return divide_run(x, number, out, n);
      return with_other([](float a, float b) { return a / b; });
    case SweepOp::square:
      return each_element(
          x, out, n, [](float a, float) { return a * a; }, [](int64_t) { return 0.0f; });
    case SweepOp::where:
      return each_element(
          x, out, n, [=](float a, float condition) { return condition != 0 ? a : number; },
          [=](int64_t i) { return elements[i]; });
    case SweepOp::exp:
      return exp_run(x, out, n);
  }
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
      for (int k = 0; k < s.stage_count; ++k, x = out)
        run_stage(s.stages[k], line, begin, x, out, n);
      if constexpr (requires { Join::identity; })
        s.partials[piece * s.lines + line] = fold_piece<float, Join, Value<float>>(x, n, 0);
    }
}

constexpr SweepKernels sweep_kernels() {
  return {sweep<void>, sweep<Sum<float>>, sweep<Largest<float>>};
}

}  // namespace
}  // namespace spyre::card::SPYRE_SIMD_NAMESPACE
