#include "nests/pointwise_tile.h"

#include <algorithm>
#include <cstring>

#include "nests/convert_plane.h"

namespace spyre::card {
namespace {

constexpr std::int64_t kChunk = 1024;   // elements of a tile
constexpr std::int64_t kAcross = 32;    // edge of a tile that is transposed: a cache line of DL16
constexpr std::int64_t kShortRun = 16;  // what is contiguous for less is gathered first

/// Elements of one tensor in a tile: `rows` times `columns`, strides in bytes.
struct Tile {
  std::byte* at;
  std::int64_t columns, rows, column_stride, row_stride;

  std::int64_t elements() const { return columns * rows; }
  bool packed(std::int64_t width) const {
    return (columns == 1 || column_stride == width) && (rows == 1 || row_stride == columns * width);
  }
  bool in_runs(std::int64_t width) const { return column_stride == width && columns >= kShortRun; }
};

bool slender(const Tile& tile) { return tile.columns < 8 && tile.columns < tile.rows; }

void gather(std::int64_t width, const Tile& tile, std::byte* packed) {
  const bool along_rows = tile.row_stride == width;  // these are the cache lines
  for (std::int64_t j = 0; along_rows && j < tile.columns; ++j)
    __builtin_prefetch(tile.at + j * tile.column_stride);
  const PlaneSide<const std::byte> from{tile.at, width, tile.column_stride, tile.row_stride};
  const PlaneSide<std::byte> to{packed, width, width, tile.columns * width};
  if (along_rows || slender(tile)) {
    copy_plane(from.turned(), to.turned(), tile.rows, tile.columns);
  } else {
    copy_plane(from, to, tile.columns, tile.rows);
  }
}

/// In order: where elements share a place, the last one stays.
void scatter(std::int64_t width, const std::byte* packed, const Tile& tile, bool in_order) {
  const PlaneSide<const std::byte> from{packed, width, width, tile.columns * width};
  const PlaneSide<std::byte> to{tile.at, width, tile.column_stride, tile.row_stride};
  if (!in_order && slender(tile)) {
    copy_plane(from.turned(), to.turned(), tile.rows, tile.columns);
  } else {
    copy_plane(from, to, tile.columns, tile.rows);
  }
}

/// Asks for the bytes behind a packed tile, where the next one most likely lies: while one tile is
/// computed, the next is on its way. The hardware by itself stops at the end of every tile and
/// page.
template <int write>
void prefetch_behind(const std::byte* at, std::int64_t bytes) {
  for (std::int64_t line = 0; line < bytes; line += 64)
    __builtin_prefetch(at + bytes + line, write);
}

/// rows x columns from one value a row.
template <typename Value>
void spread(const std::byte* values, std::byte* out, std::int64_t rows, std::int64_t columns) {
  for (std::int64_t i = 0; i < rows; ++i) {
    Value value;
    std::memcpy(&value, values + i * static_cast<std::int64_t>(sizeof value), sizeof value);
    Value* const row = reinterpret_cast<Value*>(out) + i * columns;
    for (std::int64_t j = 0; j < columns; ++j) row[j] = value;
  }
}

/// The buffers of one thread, and what is in them.
class Worker {
 public:
  /// For tiles of up to `elements`.
  Worker(const PointwiseOp& op, std::int64_t elements)
      : op_(op), bytes_(op.compute == Compute::fp32 ? 4 : 8) {
    for (int input = 0; input < op_.inputs; ++input) {
      if (op_.tensor_of[input] >= 0) continue;
      std::byte value[8];
      if (op_.compute == Compute::fp32) {
        const float scalar = static_cast<float>(op_.scalar[input]);
        std::memcpy(value, &scalar, sizeof scalar);
      } else {
        const std::int64_t scalar = truncate(op_.scalar[input]);
        std::memcpy(value, &scalar, sizeof scalar);
      }
      in_[input] = buffer_[input];
      spread_rows(value, buffer_[input], 1, elements);
    }
  }

  /// `at` are the first elements of the tile.
  void run(const LoopNest& loops, std::byte* const* at, std::int64_t columns, std::int64_t rows,
           bool in_order) {
    const auto tile = [&](int tensor) {
      const auto k = static_cast<std::size_t>(tensor);
      return Tile{at[tensor], columns, rows, loops.stride_or_0(0, k), loops.stride_or_0(1, k)};
    };
    for (int input = 0; input < op_.inputs; ++input) {
      const int tensor = op_.tensor_of[input];
      if (tensor >= 0) in_[input] = load(input, op_.tensor[tensor], tile(tensor));
    }
    const auto n = static_cast<std::size_t>(columns * rows);
    op_.run(in_, result_, op_.constants, n);
    if (op_.narrow) op_.narrow(result_, n);
    store(op_.tensor[op_.tensors - 1], tile(op_.tensors - 1), in_order);
  }

 private:
  void spread_rows(const std::byte* values, std::byte* out, std::int64_t rows,
                   std::int64_t columns) const {
    if (bytes_ == 4) {
      spread<float>(values, out, rows, columns);
    } else {
      spread<std::int64_t>(values, out, rows, columns);
    }
  }

  /// Values of an input, packed: in its buffer, or where they are.
  const std::byte* load(int input, const PointwiseOp::Tensor& tensor, const Tile& tile) {
    std::byte* const values = buffer_[input];
    const auto convert = [&](const std::byte* from, std::byte* to, std::int64_t n) {
      tensor.convert(from, to, static_cast<std::size_t>(n));
    };
    Repeated& last = repeated_[input];
    if (tile.packed(tensor.width)) {
      prefetch_behind<0>(tile.at, tile.elements() * tensor.width);
      if (tensor.native) return tile.at;
      convert(tile.at, values, tile.elements());
      last = {};
      return values;
    }
    // What does not change from row to row is often the same for the next tile, too.
    const bool same_rows = tile.rows == 1 || tile.row_stride == 0;
    const bool repeats = same_rows && (tile.rows > 1 || tile.column_stride == 0);
    if (repeats && last.at == tile.at && last.columns == tile.columns && last.rows == tile.rows)
      return values;
    last = repeats ? Repeated{tile.at, tile.columns, tile.rows} : Repeated{};
    if (tile.column_stride == 0) {
      const std::int64_t rows = same_rows ? 1 : tile.rows;
      gather(tensor.width, {tile.at, rows, 1, tile.row_stride, 0}, packed_);
      convert(packed_, row_values_, rows);
      spread_rows(row_values_, values, rows, tile.elements() / rows);
    } else if (same_rows) {
      const bool contiguous = tile.column_stride == tensor.width;
      if (!contiguous)
        gather(tensor.width, {tile.at, tile.columns, 1, tile.column_stride, 0}, packed_);
      convert(contiguous ? tile.at : packed_, values, tile.columns);
      const std::int64_t row = tile.columns * bytes_;
      for (std::int64_t i = 1; i < tile.rows; ++i)
        std::memcpy(values + i * row, values, static_cast<std::size_t>(row));
    } else if (tile.in_runs(tensor.width)) {
      for (std::int64_t i = 0; i < tile.rows; ++i)
        convert(tile.at + i * tile.row_stride, values + i * tile.columns * bytes_, tile.columns);
    } else {
      gather(tensor.width, tile, packed_);
      convert(packed_, values, tile.elements());
    }
    return values;
  }

  void store(const PointwiseOp::Tensor& tensor, const Tile& tile, bool in_order) {
    const auto convert = [&](const std::byte* from, std::byte* to, std::int64_t n) {
      tensor.convert(from, to, static_cast<std::size_t>(n));
    };
    if (tile.packed(tensor.width)) {
      prefetch_behind<1>(tile.at, tile.elements() * tensor.width);
      convert(result_, tile.at, tile.elements());
    } else if (tile.in_runs(tensor.width)) {
      for (std::int64_t i = 0; i < tile.rows; ++i)
        convert(result_ + i * tile.columns * bytes_, tile.at + i * tile.row_stride, tile.columns);
    } else {
      convert(result_, packed_, tile.elements());
      scatter(tensor.width, packed_, tile, in_order);
    }
  }

  /// A tile in a buffer that may be asked for again.
  struct Repeated {
    const std::byte* at = nullptr;
    std::int64_t columns = 0, rows = 0;
  };

  const PointwiseOp& op_;
  const std::int64_t bytes_;  // of a value
  const void* in_[kMaxInputs];
  Repeated repeated_[kMaxInputs];
  alignas(64) std::byte buffer_[kMaxInputs][kChunk * 8];
  alignas(64) std::byte result_[kChunk * 8];
  alignas(64) std::byte packed_[kChunk * 8];      // elements in the format of their tensor
  alignas(64) std::byte row_values_[kChunk * 8];  // one value a row
};

}  // namespace

void run_pointwise(const PointwiseOp& op, const PointwiseNest& nest, const LoopNest& loops,
                   std::byte* const* tensors) {
  const std::int64_t width = loops.rank() > 0 ? loops.size(0) : 1;
  const std::int64_t height = loops.rank() > 1 ? loops.size(1) : 1;
  const std::int64_t columns = std::min(width, nest.across ? kAcross : kChunk);
  const bool several_rows = columns == width || nest.across;
  const std::int64_t rows = several_rows ? std::min(height, kChunk / columns) : 1;

  Worker worker(op, columns * rows);
  const auto run_plane = [&](std::byte* const* base) {
    for (std::int64_t i = 0; i < height; i += rows)
      for (std::int64_t j = 0; j < width; j += columns) {
        std::byte* at[kMaxTensors];
        for (std::size_t k = 0; k < loops.tensors(); ++k)
          at[k] = base[k] + j * loops.stride_or_0(0, k) + i * loops.stride_or_0(1, k);
        worker.run(loops, at, std::min(columns, width - j), std::min(rows, height - i),
                   nest.in_order);
      }
  };
  std::byte* base[kMaxTensors];
  const auto start_at = [&](std::span<const std::int64_t> places) {
    for (std::size_t k = 0; k < places.size(); ++k) base[k] = tensors[k] + places[k];
  };
  start_at(loops.offsets());
  if (loops.rank() <= 2) return run_plane(base);
  std::int64_t places[kMaxTensors];
  std::copy_n(loops.offsets().data(), loops.tensors(), places);
  each_row(loops, 2, std::span(places, loops.tensors()),
           [&](std::span<const std::int64_t> row, std::int64_t count) {
             start_at(row);
             for (;;) {
               run_plane(base);
               if (--count == 0) break;
               for (std::size_t k = 0; k < row.size(); ++k) base[k] += loops.stride(2, k);
             }
           });
}

}  // namespace spyre::card
