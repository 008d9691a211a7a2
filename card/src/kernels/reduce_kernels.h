// The arithmetic of reductions, row operations and scans on packed blocks of lines: one list of
// functions for each vector width this build has. lines.h gathers the blocks.
//
// All levels give the same bits, and so do both arrangements of a block: the order in which numbers
// are added depends on their positions alone.
//   * A line is cut into pieces of kFoldPiece. In a piece, position p goes to lane p % 64; each
//   lane
//     adds up in order; then lane i takes lane i + 32, then i + 16, ... i + 1.
//   * Pieces are put together in pairs: 0 and 1, 2 and 3, ...; then these in pairs; and so on.
// So the error of a sum grows with the logarithm of its length.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace spyre::card {

inline constexpr int64_t kFoldPiece = 512;
/// Room for so many values a line is what a fold across lines works in.
inline constexpr int64_t kFoldLanes = 64;

/// Element (line, position) of a block lies at line * pitch + position if the block is arranged
/// *along* its lines, and at position * pitch + line if it is arranged *across* them.
struct LineBlock {
  int64_t lines, length, pitch;
  bool across;
};

/// What a line is folded into. Some take a parameter for each line.
enum class Fold : uint8_t {
  sum,
  squares,       ///< sum of squares
  deviations,    ///< sum of (x - parameter)^2; float only
  exponentials,  ///< sum of exp(x - parameter); float only
  nonzeros,      ///< how many are not 0
  product,
  largest,    ///< NaN if there is one
  smallest,   ///< the same
  magnitude,  ///< largest absolute value
  match,      ///< the first position whose value is the parameter; NaN matches NaN
};
inline constexpr int kFolds = 10;

template <typename T>
struct FoldKernels {
  /// Pieces of the block (length at most kFoldPiece) to one value a line. `work` has room for
  /// kFoldLanes values a line, and is only used across.
  typedef void (*Run)(const T* x, LineBlock block, const T* parameters, T* results, T* work);
  /// partials[piece * pitch + line]: pieces are put together, the result is piece 0.
  typedef void (*Combine)(T* partials, int64_t lines, int64_t pitch, int64_t pieces);
  Run run[kFolds];  ///< null where a fold is for floats only
  Combine sum, product, largest, smallest;
};

/// Blocks of tensors of one row operation, all of the same shape, and what goes with them.
struct RowBlock {
  LineBlock shape;
  float *first, *second;       ///< inputs, each of the shape; the result takes the first's place
  const float *weight, *bias;  ///< of `affine_pitch`; null for 1 and 0
  bool one_weight, one_bias;   ///< one line of weights serves all: element p is for position p
  float *means, *scales;  ///< one a line: written by layernorm and rmsnorm, read by layernormbwd
  float epsilon;
  float* work;  ///< lines * (64 + 4 + pieces of a line) floats; only used across
};

struct RowKernels {
  typedef void (*Run)(const RowBlock& block);
  Run softmax, logsoftmax, softmaxbwd, logsoftmaxbwd, layernorm, rmsnorm, layernormbwd;
};

/// Ops that a sweep has: on an element x and, where they have two inputs, its y.
enum class SweepOp : uint8_t {
  add,
  sub,
  mul,
  divide,
  square,
  where,  ///< x where y is not 0, else the line's number
  exp,
  round,  ///< to DLFloat16
};

inline constexpr int kMaxSweepStages = 8;

struct SweepStage {
  SweepOp op;
  const float* elements;  ///< y: of a block like x or, with a step of 0, of one line for all; or
  int64_t line_step;
  const float* numbers;  ///< one for a line or, with a step of 0, one for all
  int64_t number_step;
};

/// Lines of DLFloat16 where the tensor has them: in sticks at one distance, of which only the last
/// may be partial.
template <typename Byte>
struct StickLines {
  Byte* first = nullptr;
  int64_t line_step = 0, stick_step = 0;  ///< bytes
};
inline constexpr int64_t kStickElements = 64;

/// Packed lines whose elements go through all stages. The result is stored, folded, or both.
struct Sweep {
  int64_t lines, length;
  StickLines<const char> from;  ///< if there are any, they are loaded first,
  float* x;                     ///< to here; null: nothing else needs them
  const SweepStage* stages;
  int stage_count;
  /// Null: is not stored as floats; may be x, but neither what a stage has as elements nor, if a
  /// stage is exp, x.
  float* out;
  StickLines<char> to;  ///< instead of `out`, if nothing is folded
  float* partials;      ///< [piece * pitch + line]: what pieces of kFoldPiece were folded into
  int64_t pitch;
  bool merged;  ///< Infinity and NaN of DLFloat16 are one
};

struct SweepKernels {
  typedef void (*Run)(const Sweep& sweep);
  Run plain, sum, largest;  ///< by fold
};

/// Scans work on blocks arranged across, in place; the state goes from one block to the next.
struct ScanState {
  double* sums;      ///< one a line; cumsum, cumprod of floats, logcumsumexp
  void* values;      ///< one a line, of the block's type; the others
  int64_t* indices;  ///< one a line; cummax, cummin
};

template <typename T>
struct ScanKernels {
  /// `indices` is a block like x, or null; `position` is that of the block's first elements.
  typedef void (*Run)(T* x, int64_t* indices, LineBlock block, int64_t position, ScanState state);
  Run cumsum, cumprod, cummax, cummin, logcumsumexp;
};

struct LineKernels {
  FoldKernels<float> floats;
  FoldKernels<int64_t> integers;
  RowKernels rows;
  ScanKernels<float> float_scans;
  ScanKernels<int64_t> integer_scans;
  SweepKernels sweeps;
  void (*exponential)(float* x, int64_t n);
  void (*logarithm)(float* x, int64_t n);
};

namespace baseline {
const LineKernels& line_kernels();
}
#if defined(__x86_64__)
namespace avx2 {
const LineKernels& line_kernels();
}
namespace avx512 {
const LineKernels& line_kernels();
}
#endif

}  // namespace spyre::card
