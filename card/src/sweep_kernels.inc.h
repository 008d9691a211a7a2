// Several ops on elements, and the fold of the last, in one sweep over lines: 64 elements at a time
// go through all of them in registers. A part of reduce_<level>.cpp, under its rules.

#include "vector_math.inc.h"

namespace spyre::card::SPYRE_SIMD_NAMESPACE {
namespace {

/// As many elements as a fold has lanes.
struct Chunk {
  Lanes16 a, b, c, d;
};

inline void load_chunk(Chunk& chunk, const float* from) {
  const Lanes16* const parts = reinterpret_cast<const Lanes16*>(from);
  chunk.a = parts[0];
  chunk.b = parts[1];
  chunk.c = parts[2];
  chunk.d = parts[3];
}

inline void store_chunk(const Chunk& chunk, float* to) {
  Lanes16* const parts = reinterpret_cast<Lanes16*>(to);
  parts[0] = chunk.a;
  parts[1] = chunk.b;
  parts[2] = chunk.c;
  parts[3] = chunk.d;
}

inline void fill_chunk(Chunk& chunk, float number) {
  chunk.a = number - Lanes16{};  // keeps the sign of a zero
  chunk.b = chunk.c = chunk.d = chunk.a;
}

template <class Op>
[[gnu::always_inline]] inline void each_part(Chunk& x, const Chunk& y, const Op& op) {
  op(x.a, y.a);
  op(x.b, y.b);
  op(x.c, y.c);
  op(x.d, y.d);
}

/// A call rather than inlined: it needs all registers.
[[gnu::noinline]] void exp_lanes(float* lane) {
  for (int64_t i = 0; i < kLanes; ++i) lane[i] = exp32_of(lane[i]);
}
inline void exp_chunk(Chunk& x) {
  float lane[kLanes];
  store_chunk(x, lane);
  exp_lanes(lane);
  load_chunk(x, lane);
}

/// A stage on one line. Stages with elements have codes of their own, so that there is one decision
/// a chunk.
struct LineStage {
  int code;
  float number;
  const float* elements;
};

constexpr int kWithElements = 16;
constexpr int code_of(SweepOp op, bool elements) {
  return static_cast<int>(op) + (elements ? kWithElements : 0);
}

// Types of their own, so that they are surely inlined.
constexpr auto add_to = [](Lanes16& a, const Lanes16& b) { a = a + b; };
constexpr auto subtract_from = [](Lanes16& a, const Lanes16& b) { a = a - b; };
constexpr auto multiply_by = [](Lanes16& a, const Lanes16& b) { a = a * b; };
constexpr auto divide_by = [](Lanes16& a, const Lanes16& b) { a = a / b; };

/// One op on the chunk at position p; `y` has the elements there, if the stage has any.
[[gnu::always_inline]] inline void run_stage(const LineStage& stage, Chunk& x, const float* y) {
  Chunk other;
  const auto with_elements = [&](auto op) {
    load_chunk(other, y);
    each_part(x, other, op);
  };
  const auto with_number = [&](auto op) {
    fill_chunk(other, stage.number);
    each_part(x, other, op);
  };
  switch (stage.code) {
    case code_of(SweepOp::add, true):
      return with_elements(add_to);
    case code_of(SweepOp::add, false):
      return with_number(add_to);
    case code_of(SweepOp::sub, true):
      return with_elements(subtract_from);
    case code_of(SweepOp::sub, false):
      return with_number(subtract_from);
    case code_of(SweepOp::mul, true):
      return with_elements(multiply_by);
    case code_of(SweepOp::mul, false):
      return with_number(multiply_by);
    case code_of(SweepOp::divide, true):
      return with_elements(divide_by);
    case code_of(SweepOp::divide, false):
      return with_number(divide_by);
    case code_of(SweepOp::square, false):
      return each_part(x, x, [](Lanes16& a, const Lanes16& b) { a = b * b; });
    case code_of(SweepOp::where, true): {
      Chunk condition;
      load_chunk(condition, y);
      fill_chunk(other, stage.number);
      x.a = condition.a != 0 ? x.a : other.a;
      x.b = condition.b != 0 ? x.b : other.b;
      x.c = condition.c != 0 ? x.c : other.c;
      x.d = condition.d != 0 ? x.d : other.d;
      return;
    }
    default:
      return exp_chunk(x);
  }
}

/// One line, or a part of it that is folded into one number.
struct LineSweep {
  const float* from;
  float* to;  // null: is not stored
  const LineStage* stages;
  int stage_count;
};

/// The last elements of a line, fewer than a chunk; the others of the chunk become `rest`.
[[gnu::noinline]] void sweep_end(const LineSweep& line, int64_t p, int64_t count, float rest,
                                 Chunk& x) {
  float lane[kLanes] = {};
  for (int64_t i = 0; i < count; ++i) lane[i] = line.from[p + i];
  load_chunk(x, lane);
  for (int k = 0; k < line.stage_count; ++k) {
    const LineStage& stage = line.stages[k];
    for (int64_t i = 0; stage.elements && i < count; ++i) lane[i] = stage.elements[p + i];
    run_stage(stage, x, lane);
  }
  store_chunk(x, lane);
  for (int64_t i = 0; line.to && i < count; ++i) line.to[p + i] = lane[i];
  for (int64_t i = count; i < kLanes; ++i) lane[i] = rest;
  load_chunk(x, lane);
}

/// Positions from `begin` to `end`, folded if Join is not void.
template <class Join>
inline float sweep_piece(const LineSweep& line, int64_t begin, int64_t end) {
  constexpr bool folds = requires { Join::identity; };
  Chunk lanes;
  if constexpr (folds) fill_chunk(lanes, Join::identity);
  int64_t p = begin;
  for (; p + kLanes <= end; p += kLanes) {
    Chunk x;
    load_chunk(x, line.from + p);
    for (int k = 0; k < line.stage_count; ++k)
      run_stage(line.stages[k], x, line.stages[k].elements + p);
    if (line.to) store_chunk(x, line.to + p);
    if constexpr (folds)
      each_part(lanes, x, [](Lanes16& a, const Lanes16& b) { Join::join_all(a, b); });
  }
  if constexpr (folds) {
    Chunk x;
    if (p < end) {
      sweep_end(line, p, end - p, Join::identity, x);
      each_part(lanes, x, [](Lanes16& a, const Lanes16& b) { Join::join_all(a, b); });
    }
    float lane[kLanes];
    store_chunk(lanes, lane);
    return fold_lanes<Join>(lane);
  } else {
    Chunk x;
    if (p < end) sweep_end(line, p, end - p, 0, x);
    return 0;
  }
}

template <class Join>
void sweep(const Sweep& s) {
  LineStage stages[kMaxSweepStages];
  for (int64_t line = 0; line < s.lines; ++line) {
    for (int k = 0; k < s.stage_count; ++k) {
      const SweepStage& stage = s.stages[k];
      stages[k].code = code_of(stage.op, stage.elements);
      stages[k].number = stage.numbers ? stage.numbers[line * stage.number_step] : 0;
      stages[k].elements = stage.elements ? stage.elements + line * stage.line_step : nullptr;
    }
    const LineSweep along{s.x + line * s.length, s.out ? s.out + line * s.length : nullptr, stages,
                          s.stage_count};
    if constexpr (requires { Join::identity; }) {
      for (int64_t piece = 0, begin = 0; begin < s.length; ++piece, begin += kFoldPiece) {
        const int64_t end = begin + kFoldPiece < s.length ? begin + kFoldPiece : s.length;
        s.partials[piece * s.lines + line] = sweep_piece<Join>(along, begin, end);
      }
    } else {
      sweep_piece<Join>(along, 0, s.length);
    }
  }
}

constexpr SweepKernels sweep_kernels() {
  return {sweep<void>, sweep<Sum<float>>, sweep<Largest<float>>};
}

}  // namespace
}  // namespace spyre::card::SPYRE_SIMD_NAMESPACE
