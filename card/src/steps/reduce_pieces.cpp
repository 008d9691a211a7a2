#include "steps/reduce_pieces.h"

#include <iterator>
#include <limits>

#include "formats/formats.h"

namespace spyre::card {
namespace {

constexpr std::int64_t kChunk = 64;  // elements summed before rounding when chunked

constexpr ReduceRecipe kRecipes[] = {
    {.op = OpFunc::sum, .first = Fold::sum},
    {.op = OpFunc::mean, .first = Fold::sum},
    {.op = OpFunc::sumsq, .first = Fold::squares},
    {.op = OpFunc::prod, .first = Fold::product},
    {.op = OpFunc::max, .first = Fold::largest, .needs_elements = true},
    {.op = OpFunc::min, .first = Fold::smallest, .needs_elements = true},
    {.op = OpFunc::amaxabs, .first = Fold::magnitude, .needs_elements = true},
    {.op = OpFunc::any, .first = Fold::nonzeros},
    {.op = OpFunc::all, .first = Fold::nonzeros},
    {.op = OpFunc::countnonzero, .first = Fold::nonzeros},
    {.op = OpFunc::exx2, .first = Fold::sum, .second = Fold::squares},
    {.op = OpFunc::argmax,
     .first = Fold::largest,
     .second = Fold::match,
     .parameter = FoldParameter::value,
     .needs_elements = true,
     .needs_all = true},
    {.op = OpFunc::argmin,
     .first = Fold::smallest,
     .second = Fold::match,
     .parameter = FoldParameter::value,
     .needs_elements = true,
     .needs_all = true},
    {.op = OpFunc::logsumexp,
     .first = Fold::largest,
     .second = Fold::exponentials,
     .parameter = FoldParameter::shift},
    {.op = OpFunc::var,
     .first = Fold::sum,
     .second = Fold::deviations,
     .parameter = FoldParameter::mean,
     .needs_all = true},
};

float without_payload(float value) {
  return value != value ? std::numeric_limits<float>::quiet_NaN() : value;
}

float rounded_to_dl16(float value, Dl16Specials specials) {
  return dl16_to_float(dl16_from_float(value, specials), specials);
}

}  // namespace

const ReduceRecipe& reduce_recipe(OpFunc op) {
  return *std::find_if(std::begin(kRecipes), std::end(kRecipes),
                       [&](const ReduceRecipe& each) { return each.op == op; });
}

void ReducePieces::cut(std::int64_t line_length) {
  length = line_length;
  piece_length = chunked ? kChunk : kFoldPiece;
  pieces = std::max<std::int64_t>(1, (length + piece_length - 1) / piece_length);
}

template <typename T>
void ReducePieces::fold(const T* x, const LineBlock& piece, T* parameters, T* first, T* second,
                        T* work) const {
  const FoldKernels<T>& kernels = fold_kernels<T>();
  kernels.run[static_cast<int>(recipe.first)](x, piece, nullptr, first, work);
  if (!recipe.second) return;
  set_parameters(first, piece, parameters);
  kernels.run[static_cast<int>(*recipe.second)](
      x, piece, recipe.parameter == FoldParameter::none ? nullptr : parameters, second, work);
}

template <typename T>
void ReducePieces::set_parameters(const T* values, const LineBlock& piece, T* parameters) const {
  for (std::int64_t i = 0; i < piece.lines; ++i) {
    if constexpr (std::is_same_v<T, float>) {
      if (recipe.parameter == FoldParameter::mean) {
        parameters[i] = values[i] / static_cast<float>(piece.length);
        continue;
      }
      if (recipe.parameter == FoldParameter::shift) {
        parameters[i] = shift_of(values[i]);
        continue;
      }
    }
    parameters[i] = values[i];
  }
}

template <typename T>
void ReducePieces::finish(T* first, T* second, std::int64_t* integers, std::int64_t n,
                          std::int64_t pitch) const {
  if (recipe.first == Fold::nonzeros) return finish_counts(first, integers, n, pitch);
  if (recipe.second == Fold::match) return finish_matches(first, second, integers, n, pitch);
  const FoldKernels<T>& kernels = fold_kernels<T>();
  switch (recipe.first) {
    case Fold::product:
      kernels.product(first, n, pitch, pieces);
      break;
    case Fold::smallest:
      kernels.smallest(first, n, pitch, pieces);
      break;
    case Fold::magnitude:
      kernels.largest(first, n, pitch, pieces);
      break;
    case Fold::largest:
      if (recipe.op == OpFunc::logsumexp) {
        if constexpr (std::is_same_v<T, float>) finish_logsumexp(first, second, n, pitch);
      } else {
        kernels.largest(first, n, pitch, pieces);
      }
      break;
    default:
      if constexpr (std::is_same_v<T, float>) {
        if (recipe.op == OpFunc::var) {
          finish_var(first, second, n, pitch);
          break;
        }
        if (chunked) {
          add_chunks(first, n, pitch);
          break;
        }
      }
      kernels.sum(first, n, pitch, pieces);
      if (recipe.op == OpFunc::exx2) kernels.sum(second, n, pitch, pieces);
  }
  if constexpr (std::is_same_v<T, float>) scale(first, second, n);
}

void ReducePieces::scale(float* first, float* second, std::int64_t n) const {
  const bool scaled = recipe.op == OpFunc::mean || recipe.op == OpFunc::exx2;
  const float factor = scaled ? static_cast<float>(constants[0]) : 1.0f;
  const bool zero_mean = recipe.op == OpFunc::exx2 && constants[1] != 0;
  for (std::int64_t i = 0; i < n; ++i) {
    if (scaled) first[i] = first[i] * factor;
    if (zero_mean) first[i] = 0;
    first[i] = without_payload(first[i]);
  }
  if (!two_results) return;
  for (std::int64_t i = 0; i < n; ++i) {
    if (scaled) second[i] = second[i] * factor;
    second[i] = without_payload(second[i]);
  }
}

/// Pieces have at most kFoldPiece nonzeros, exact in float; lines may have more than float holds.
template <typename T>
void ReducePieces::finish_counts(const T* first, std::int64_t* counts, std::int64_t n,
                                 std::int64_t pitch) const {
  for (std::int64_t i = 0; i < n; ++i) {
    std::int64_t found = 0;
    for (std::int64_t piece = 0; piece < pieces; ++piece)
      found += static_cast<std::int64_t>(first[piece * pitch + i]);
    if (recipe.op == OpFunc::any) found = found > 0;
    if (recipe.op == OpFunc::all) found = found == length;
    counts[i] = found;
  }
}

/// The first piece with the line's extreme value says where it is.
template <typename T>
void ReducePieces::finish_matches(T* first, const T* second, std::int64_t* indices, std::int64_t n,
                                  std::int64_t pitch) const {
  for (std::int64_t i = 0; i < n; ++i) {
    T best = first[i];
    std::int64_t index = static_cast<std::int64_t>(second[i]);
    for (std::int64_t piece = 1; piece < pieces; ++piece) {
      const std::int64_t at = piece * pitch + i;
      const T value = first[at];
      const bool better = recipe.first == Fold::largest ? value > best : value < best;
      if (best != best || !(better || value != value)) continue;
      best = value;
      index = piece * piece_length + static_cast<std::int64_t>(second[at]);
    }
    first[i] = best;
    if constexpr (std::is_same_v<T, float>) first[i] = without_payload(best);
    indices[i] = index;
  }
}

void ReducePieces::finish_logsumexp(float* first, float* second, std::int64_t n,
                                    std::int64_t pitch) const {
  const Scratch<float> shifts(ScratchSlot::work, 2 * n);
  float* const shift = shifts.data();
  float* const factor = shift + n;
  for (std::int64_t i = 0; i < n; ++i) {
    float largest = first[i];
    for (std::int64_t piece = 1; piece < pieces; ++piece) {
      const float value = first[piece * pitch + i];
      largest = value > largest || value != value ? value : largest;
    }
    shift[i] = shift_of(largest);
  }
  for (std::int64_t piece = 0; piece < pieces; ++piece) {
    float* const sums = second + piece * pitch;
    for (std::int64_t i = 0; i < n; ++i) factor[i] = shift_of(first[piece * pitch + i]) - shift[i];
    line_kernels().exponential(factor, n);
    for (std::int64_t i = 0; i < n; ++i)
      if (sums[i] != 0) sums[i] *= factor[i];  // 0 stays, whatever it would be multiplied by
  }
  fold_kernels<float>().sum(second, n, pitch, pieces);
  line_kernels().logarithm(second, n);
  for (std::int64_t i = 0; i < n; ++i) first[i] = second[i] + shift[i];
}

/// Deviations from the means of the pieces to deviations from the mean of the line.
void ReducePieces::finish_var(float* first, float* second, std::int64_t n,
                              std::int64_t pitch) const {
  const Scratch<float> totals(ScratchSlot::work, pieces * n);
  float* const mean = totals.data();
  for (std::int64_t piece = 0; piece < pieces; ++piece)
    std::copy_n(first + piece * pitch, n, mean + piece * n);
  fold_kernels<float>().sum(mean, n, n, pieces);
  for (std::int64_t i = 0; i < n; ++i) mean[i] /= static_cast<float>(length);
  for (std::int64_t piece = 0; piece < pieces; ++piece) {
    const auto elements = static_cast<float>(length_of(piece));
    for (std::int64_t i = 0; i < n; ++i) {
      const std::int64_t at = piece * pitch + i;
      const float apart = first[at] / elements - mean[i];
      if (pieces > 1) second[at] += elements * (apart * apart);
    }
  }
  fold_kernels<float>().sum(second, n, pitch, pieces);
  const double divisor = static_cast<double>(length) - constants[0];
  for (std::int64_t i = 0; i < n; ++i) {
    first[i] = second[i] / static_cast<float>(std::max(0.0, divisor));
    second[i] = mean[i];
  }
}

void ReducePieces::add_chunks(float* first, std::int64_t n, std::int64_t pitch) const {
  const Dl16Specials specials = dl16_specials();
  for (std::int64_t i = 0; i < n; ++i) {
    float sum = rounded_to_dl16(first[i], specials);
    for (std::int64_t piece = 1; piece < pieces; ++piece)
      sum = rounded_to_dl16(sum + rounded_to_dl16(first[piece * pitch + i], specials), specials);
    first[i] = sum;
  }
}

template void ReducePieces::fold(const float*, const LineBlock&, float*, float*, float*,
                                 float*) const;
template void ReducePieces::fold(const std::int64_t*, const LineBlock&, std::int64_t*,
                                 std::int64_t*, std::int64_t*, std::int64_t*) const;
template void ReducePieces::finish(float*, float*, std::int64_t*, std::int64_t, std::int64_t) const;
template void ReducePieces::finish(std::int64_t*, std::int64_t*, std::int64_t*, std::int64_t,
                                   std::int64_t) const;

}  // namespace spyre::card
