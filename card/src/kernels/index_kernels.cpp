#include "kernels/index_kernels.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <type_traits>

namespace spyre::card {
namespace {

// ------------------------------------------------------------------------------------------- moves

constexpr std::int64_t kAhead = 8;  // runs that are fetched before they are read

template <typename Element>
void move_elements(const IndexRuns& target, const IndexRuns& source, std::int64_t positions) {
  for (std::int64_t p = 0; p < positions; ++p)
    std::memcpy(target.base + target.offset[p], source.base + source.offset[p], sizeof(Element));
}

template <typename Element>
void move_strided(const IndexRuns& target, const IndexRuns& source, std::int64_t positions,
                  std::int64_t length) {
  for (std::int64_t p = 0; p < positions; ++p) {
    std::byte* to = target.base + target.offset[p];
    const std::byte* from = source.base + source.offset[p];
    for (std::int64_t i = 0; i < length; ++i, to += target.stride, from += source.stride)
      std::memcpy(to, from, sizeof(Element));
  }
}

/// `size` says the bytes of a run; a constant one lets the compiler write the copy out.
template <typename Size>
void move_packed(const IndexRuns& target, const IndexRuns& source, std::int64_t positions,
                 Size size) {
  const std::size_t bytes = size;
  for (std::int64_t p = 0; p < positions; ++p) {
    if (p + kAhead < positions) {
      const std::byte* next = source.base + source.offset[p + kAhead];
      __builtin_prefetch(next);
      if (bytes > 64) __builtin_prefetch(next + 64);
    }
    std::memcpy(target.base + target.offset[p], source.base + source.offset[p], bytes);
  }
}

template <typename Element>
void move_runs_of(const IndexRuns& target, const IndexRuns& source, std::int64_t positions,
                  std::int64_t length) {
  constexpr auto kWidth = static_cast<std::int64_t>(sizeof(Element));
  if (length == 1) {
    move_elements<Element>(target, source, positions);
  } else if (target.stride != kWidth || source.stride != kWidth) {
    move_strided<Element>(target, source, positions, length);
  } else if (length * kWidth == 128) {
    move_packed(target, source, positions, std::integral_constant<std::size_t, 128>{});
  } else {
    move_packed(target, source, positions, static_cast<std::size_t>(length * kWidth));
  }
}

// --------------------------------------------------------------------------------------- combining

constexpr std::int64_t kPiece = 512;  // elements that are converted at once

template <typename T>
T combined(OpFunc op, T a, T b) {
  if constexpr (std::is_same_v<T, float>) {
    switch (op) {
      case OpFunc::scattermul:
        return a * b;
      case OpFunc::scattermin:
        return a != a || b != b ? std::numeric_limits<float>::quiet_NaN() : std::min(a, b);
      case OpFunc::scattermax:
        return a != a || b != b ? std::numeric_limits<float>::quiet_NaN() : std::max(a, b);
      default:
        return a + b;
    }
  } else {
    const auto x = static_cast<std::uint64_t>(a), y = static_cast<std::uint64_t>(b);
    switch (op) {
      case OpFunc::scattermul:
        return static_cast<T>(x * y);
      case OpFunc::scattermin:
        return std::min(a, b);
      case OpFunc::scattermax:
        return std::max(a, b);
      default:
        return static_cast<T>(x + y);
    }
  }
}

float clean(float value) {
  return value != value ? std::numeric_limits<float>::quiet_NaN() : value;
}
std::int64_t clean(std::int64_t value) { return value; }

void pack(const std::byte* from, std::int64_t stride, std::int64_t count, std::size_t width,
          std::byte* to) {
  for (std::int64_t i = 0; i < count; ++i, from += stride, to += width)
    std::memcpy(to, from, width);
}

/// Elements of `Stored` are combined where they lie: no conversion.
template <typename T, typename Stored, OpFunc op>
void combine_stored(std::byte* at, std::int64_t stride, const T* values, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i, at += stride) {
    Stored old;
    std::memcpy(&old, at, sizeof old);
    const auto fresh = static_cast<Stored>(clean(combined<T>(op, static_cast<T>(old), values[i])));
    std::memcpy(at, &fresh, sizeof fresh);
  }
}

template <typename T, OpFunc op>
void combine_converted(const IndexCombination& how, std::byte* at, std::int64_t stride,
                       const T* values, std::int64_t count) {
  const auto width = static_cast<std::size_t>(element_bytes(how.indexed_format));
  alignas(64) std::byte packed[kPiece * 8];
  T old[kPiece];
  pack(at, stride, count, width, packed);
  how.load_indexed(packed, old, static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) old[i] = clean(combined<T>(op, old[i], values[i]));
  how.store_indexed(old, packed, static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i, at += stride)
    std::memcpy(at, packed + static_cast<std::size_t>(i) * width, width);
}

template <typename T, OpFunc op>
void combine_run(const IndexCombination& how, std::byte* at, std::int64_t stride, const T* values,
                 std::int64_t count) {
  if constexpr (std::is_same_v<T, float>) {
    if (how.indexed_format == DataFormat::IEEE_FP32)
      return combine_stored<T, float, op>(at, stride, values, count);
  } else {
    if (how.indexed_format == DataFormat::IEEE_INT32)
      return combine_stored<T, std::int32_t, op>(at, stride, values, count);
  }
  combine_converted<T, op>(how, at, stride, values, count);
}

template <typename T, OpFunc op>
void combine(const IndexCombination& how, const IndexRuns& indexed, const IndexRuns& dense,
             std::int64_t positions, std::int64_t length) {
  const auto width = static_cast<std::size_t>(element_bytes(how.dense_format));
  alignas(64) std::byte packed[kPiece * 8];
  T values[kPiece];
  if (length == 1) {
    for (std::int64_t first = 0; first < positions; first += kPiece) {
      const std::int64_t count = std::min(kPiece, positions - first);
      for (std::int64_t i = 0; i < count; ++i)
        std::memcpy(packed + static_cast<std::size_t>(i) * width,
                    dense.base + dense.offset[first + i], width);
      how.load_dense(packed, values, static_cast<std::size_t>(count));
      for (std::int64_t i = 0; i < count; ++i)
        combine_run<T, op>(how, indexed.base + indexed.offset[first + i], 0, values + i, 1);
    }
    return;
  }
  for (std::int64_t p = 0; p < positions; ++p) {
    for (std::int64_t first = 0; first < length; first += kPiece) {
      const std::int64_t count = std::min(kPiece, length - first);
      const std::byte* from = dense.base + dense.offset[p] + first * dense.stride;
      if (dense.stride != static_cast<std::int64_t>(width)) {
        pack(from, dense.stride, count, width, packed);
        from = packed;
      }
      how.load_dense(from, values, static_cast<std::size_t>(count));
      combine_run<T, op>(how, indexed.base + indexed.offset[p] + first * indexed.stride,
                         indexed.stride, values, count);
    }
  }
}

template <typename T>
void combine_in(const IndexCombination& how, const IndexRuns& indexed, const IndexRuns& dense,
                std::int64_t positions, std::int64_t length) {
  switch (how.op) {
    case OpFunc::scattermul:
      return combine<T, OpFunc::scattermul>(how, indexed, dense, positions, length);
    case OpFunc::scattermin:
      return combine<T, OpFunc::scattermin>(how, indexed, dense, positions, length);
    case OpFunc::scattermax:
      return combine<T, OpFunc::scattermax>(how, indexed, dense, positions, length);
    default:
      return combine<T, OpFunc::scatteradd>(how, indexed, dense, positions, length);
  }
}

}  // namespace

void move_runs(const IndexRuns& target, const IndexRuns& source, std::int64_t positions,
               std::int64_t length, std::int64_t width) {
  switch (width) {
    case 1:
      return move_runs_of<std::uint8_t>(target, source, positions, length);
    case 2:
      return move_runs_of<std::uint16_t>(target, source, positions, length);
    case 4:
      return move_runs_of<std::uint32_t>(target, source, positions, length);
    default:
      return move_runs_of<std::uint64_t>(target, source, positions, length);
  }
}

IndexCombination::IndexCombination(OpFunc op_func, Compute in, DataFormat dense, DataFormat indexed,
                                   Narrow narrow)
    : op(op_func), compute(in), dense_format(dense), indexed_format(indexed) {
  const DataFormat value = in == Compute::fp32 ? DataFormat::IEEE_FP32 : DataFormat::IEEE_INT64;
  load_dense = converter(dense, value);
  load_indexed = converter(indexed, value);
  store_indexed = converter(value, indexed, narrow);
}

void combine_runs(const IndexCombination& combination, const IndexRuns& indexed,
                  const IndexRuns& dense, std::int64_t positions, std::int64_t length) {
  if (combination.compute == Compute::fp32) {
    combine_in<float>(combination, indexed, dense, positions, length);
  } else {
    combine_in<std::int64_t>(combination, indexed, dense, positions, length);
  }
}

}  // namespace spyre::card
