#include "kernels/matmul.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

namespace spyre::card {
namespace {

// Sizes of a block. Its unpacked left operand (rows x kBlockStride) should stay in the second-level
// cache while the panels of the right operand go by; the wider it is, the less often is unpacked.
constexpr std::int64_t kBlockRows = 336, kBlockColumns = 512, kStreamedColumns = 4096;
// Up to so many rows the right operand is streamed: once from memory, for each kStreamRows rows
// once from the cache.
constexpr std::int64_t kStreamedRows = 8;
// So many columns at once are multiplied with all rows while they are in the first-level cache.
constexpr std::int64_t kDotColumns = 64;
// Numbers of unpacked left operand that may be kept for all of K.
constexpr std::int64_t kKeptNumbers = 256 * 1024;
constexpr std::int64_t kChunk = 64;  // products in a sum of DLFloat16
// Multiply-adds from which on a second thread is worth waking.
constexpr double kParallelWork = 200'000;

constexpr std::int64_t divide_up(std::int64_t value, std::int64_t by) {
  return (value + by - 1) / by;
}
constexpr std::int64_t round_up(std::int64_t value, std::int64_t to) {
  return divide_up(value, to) * to;
}

const MatmulKernels& kernels_at(SimdLevel level) {
#if defined(__x86_64__)
  if (level == SimdLevel::avx512) return avx512::matmul_kernels();
  if (level == SimdLevel::avx2) return avx2::matmul_kernels();
#else
  (void)level;
#endif
  return baseline::matmul_kernels();
}

bool integer(DataFormat format) { return format_info(format).kind != FormatKind::floating; }

/// Whether the card's own units multiply this format, rather than our float.
bool small_float(DataFormat format) {
  return format == DataFormat::SEN169_FP16 || format == DataFormat::SEN143_FP8 ||
         format == DataFormat::SEN152_FP8;
}

/// The same product with what means nothing set to harmless values: sizes if there is no C, strides
/// that nothing steps along. So the loops below may step once too often.
Matmul normal(Matmul matmul) {
  bool empty = matmul.m == 0 || matmul.n == 0;
  for (const Matmul::Batch& dim : matmul.batch) empty |= dim.size == 0;
  if (empty) return {};
  if (matmul.bias.operand < 0) {
    matmul.bias = {};
    for (Matmul::Batch& dim : matmul.batch) dim.bias = 0;
  }
  if (matmul.k == 0) {
    matmul.a.m_stride = 0;
    for (Matmul::Batch& dim : matmul.batch) dim.a = dim.b = 0;
  }
  const auto one_stick = [](std::int64_t size, DataFormat format, std::int64_t& stick_stride) {
    const std::int64_t lanes = format_info(format).elems_per_stick;
    if (size <= lanes) stick_stride = lanes;
  };
  const bool along_n = matmul.b.sticks == Matmul::Sticks::along_n;
  one_stick(matmul.k, matmul.a.format, matmul.a.k_stick_stride);
  one_stick(along_n ? matmul.n : matmul.k, matmul.b.format, matmul.b.stick_stride);
  one_stick(matmul.n, matmul.c.format, matmul.c.n_stick_stride);
  one_stick(matmul.n, matmul.bias.format, matmul.bias.n_stick_stride);
  if (matmul.m <= 1) matmul.a.m_stride = matmul.c.m_stride = matmul.bias.m_stride = 0;
  if ((along_n ? matmul.k : matmul.n) <= 1) matmul.b.stride = 0;
  if (matmul.k <= 1) matmul.a.k_lane_stride = 1;
  if (matmul.n <= 1) matmul.bias.n_lane_stride = 1;
  std::erase_if(matmul.batch, [](const Matmul::Batch& dim) { return dim.size == 1; });
  return matmul;
}

/// So many numbers for a thread to calculate with, aligned to a page; what was there before is
/// lost. They stay the thread's: no allocation in steady state.
float* scratch_of(std::int64_t numbers) {
  struct Free {
    void operator()(float* memory) const { std::free(memory); }
  };
  thread_local std::unique_ptr<float, Free> memory;
  thread_local std::int64_t size = 0;
  if (numbers > size) {
    memory.reset();
    size = round_up(numbers, 1024);
    memory.reset(static_cast<float*>(std::aligned_alloc(4096, static_cast<std::size_t>(size) * 4)));
    if (!memory) size = 0, throw std::bad_alloc();
  }
  return memory.get();
}

}  // namespace

bool multiplies(DataFormat format) {
  return format_info(format).elems_per_stick % kMaxPanelColumns == 0 && usable(format) &&
         format_info(format).kind != FormatKind::boolean && format_info(format).bits <= 32;
}

bool integer_product(const Matmul& matmul) {
  return integer(matmul.a.format) && integer(matmul.b.format) && integer(matmul.c.format) &&
         (matmul.bias.operand < 0 || integer(matmul.bias.format));
}

// --------------------------------------------------------------------------------------- planning

MatmulPlan::MatmulPlan(const Matmul& given, const MatmulMode& mode)
    : matmul_(normal(given)),
      integers_(integer_product(matmul_)),
      chunked_(mode.accumulation == Accumulation::chunked && small_float(matmul_.a.format) &&
               small_float(matmul_.b.format)),
      merged_(mode.specials == Dl16Specials::merged),
      kernels_(kernels_at(mode.simd)),
      c_lanes_(format_info(matmul_.c.format).elems_per_stick) {
  const Matmul& matmul = matmul_;
  // Sticks that follow each other are one long stick.
  if (matmul.c.n_stick_stride == c_lanes_) c_lanes_ = std::max(c_lanes_, matmul.n);
  const auto convert = [&](DataFormat src, DataFormat dst, Narrow narrow = Narrow::none) {
    return converter_at(mode.simd, mode.specials, src, dst, narrow);
  };
  const DataFormat number = integers_ ? DataFormat::IEEE_INT32 : DataFormat::IEEE_FP32;
  const auto line = [&](DataFormat format, std::int64_t stick_stride, std::int64_t lane_stride) {
    Line result;
    result.lanes = format_info(format).elems_per_stick;
    result.stick_stride = stick_stride;
    result.lane_stride = lane_stride;
    Unpacking& unpacking = result.unpacking;
    unpacking.width = element_bytes(format);
    if (format == DataFormat::SEN169_FP16) {
      unpacking.kind = merged_ ? Unpacking::dl16_merged : Unpacking::dl16;
    } else if (format == number || (integers_ && format == DataFormat::SENUINT32)) {
      unpacking.kind = Unpacking::words;
    } else if (unpacking.width == 1) {
      std::array<std::uint8_t, 256> all;
      for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::uint8_t>(i);
      result.table = std::make_unique<std::array<std::uint32_t, 256>>();
      convert(format, number)(all.data(), result.table->data(), all.size());
      unpacking.kind = Unpacking::bytes;
      unpacking.table = result.table->data();
    } else {
      unpacking.kind = Unpacking::by_function;
      unpacking.function = convert(format, number);
    }
    return result;
  };
  a_ = line(matmul.a.format, matmul.a.k_stick_stride, matmul.a.k_lane_stride);
  b_ = line(matmul.b.format, matmul.b.stick_stride, 1);
  if (matmul.bias.operand >= 0)
    bias_ = line(matmul.bias.format, matmul.bias.n_stick_stride, matmul.bias.n_lane_stride);
  encode_ = convert(number, matmul.c.format, matmul.c.narrow);
  to_dl16_ = convert(DataFormat::IEEE_FP32, DataFormat::SEN169_FP16);
  from_dl16_ = convert(DataFormat::SEN169_FP16, DataFormat::IEEE_FP32);

  // Batches that share B are but more rows: B is read once for all of them.
  rows_.push_back({matmul.m, matmul.a.m_stride, 0, matmul.c.m_stride, matmul.bias.m_stride});
  for (const Matmul::Batch& batch : matmul.batch)
    (batch.b == 0 ? rows_ : batches_).push_back(batch);
  if (rows_.size() > 1 && matmul.m == 1) rows_.erase(rows_.begin());
  for (const Matmul::Batch& dim : rows_) row_count_ *= dim.size;
  for (const Matmul::Batch& dim : batches_) batch_count_ *= dim.size;
  work_ = static_cast<double>(row_count_) * static_cast<double>(matmul.n) *
          static_cast<double>(matmul.k + 1) * static_cast<double>(batch_count_);
  streamed_ = row_count_ <= kStreamedRows && matmul.b.format == DataFormat::SEN169_FP16 &&
              small_float(matmul.a.format) && !chunked_;
  if (work_ > 0) few_blocks_ = split(1);
  // Where there is nothing to do with sums but to store them, and panels of B make sticks of C.
  const std::int64_t panel = kernels_.panel_columns;
  in_place_ = float_c() && !streamed_ && !chunked_ && matmul.k > 0 && matmul.bias.operand < 0 &&
              matmul.alpha == 1 && rows_.size() == 1 && matmul.n % panel == 0 &&
              (matmul.n <= c_lanes_ || c_lanes_ == panel);
}

MatmulPlan::Place MatmulPlan::place(const std::vector<Matmul::Batch>& dims, std::int64_t index) {
  Place result;
  for (const Matmul::Batch& dim : dims) {
    const std::int64_t i = dims.size() == 1 ? index : index % dim.size;
    if (dims.size() > 1) index /= dim.size;
    result.a += i * dim.a;
    result.b += i * dim.b;
    result.c += i * dim.c;
    result.bias += i * dim.bias;
  }
  return result;
}

MatmulPlan::Split MatmulPlan::split(int threads) const {
  // Columns come in sticks of DLFloat16, rows in tiles.
  const std::int64_t n = std::max<std::int64_t>(matmul_.n, 1), tile = kernels_.tile_rows;
  const auto even = [](std::int64_t size, std::int64_t most, std::int64_t unit) {
    return std::min(round_up(divide_up(size, divide_up(size, most)), unit), round_up(most, unit));
  };
  std::int64_t rows = even(row_count_, kBlockRows, tile);
  std::int64_t columns = even(n, streamed_ ? kStreamedColumns : kBlockColumns, kStreamColumns);
  if (threads > 1) {
    // More blocks than threads, so that a slow thread does not hold the others up; of small ones
    // many, as all of such a product takes no longer than some threads need to wake up.
    const std::int64_t wanted = (streamed_ ? 8 : 3) * threads;
    const auto blocks = [&] {
      return batch_count_ * divide_up(row_count_, rows) * divide_up(n, columns);
    };
    while (blocks() < wanted) {
      if (columns > kStreamColumns && (columns >= rows || rows <= 4 * tile)) {
        columns = round_up(columns / 2, kStreamColumns);
      } else if (rows > 4 * tile) {
        rows = round_up(rows / 2, tile);
      } else {
        break;
      }
    }
  }
  return {rows, columns, divide_up(row_count_, rows), divide_up(n, columns)};
}

void MatmulPlan::run(const Operands& operands, ThreadPool& pool) const {
  if (work_ == 0) return;
  const bool alone = work_ < kParallelWork;
  const Split parts = alone ? few_blocks_ : split(pool.size());
  const auto task = [&](std::int64_t index) {
    const std::int64_t column = index % parts.column_blocks * parts.columns;
    index /= parts.column_blocks;
    const std::int64_t row = index % parts.row_blocks * parts.rows;
    run(operands, Block{place(batches_, index / parts.row_blocks), row,
                        std::min(parts.rows, row_count_ - row), column,
                        std::min(parts.columns, matmul_.n - column)});
  };
  const std::int64_t tasks = batch_count_ * parts.row_blocks * parts.column_blocks;
  if (alone) {
    for (std::int64_t index = 0; index < tasks; ++index) task(index);
  } else {
    pool.parallel_for(tasks, task);
  }
}

// ------------------------------------------------------------------------------------ one block

void MatmulPlan::unpack_line(const Line& line, const std::byte* from, std::int64_t first,
                             std::int64_t count, float* numbers) const {
  const std::int64_t width = line.unpacking.width;
  if (line.lane_stride == 1 && line.stick_stride == line.lanes)
    return kernels_.unpack(line.unpacking, from + first * width, numbers, count);
  while (count > 0) {
    const std::int64_t lane = first % line.lanes, run = std::min(count, line.lanes - lane);
    const std::int64_t offset = first / line.lanes * line.stick_stride + lane * line.lane_stride;
    const std::byte* elements = from + offset * width;
    std::byte gathered[kStickBytes];
    if (line.lane_stride != 1) {
      for (std::int64_t i = 0; i < run; ++i)
        std::memcpy(gathered + i * width, elements + i * line.lane_stride * width,
                    static_cast<std::size_t>(width));
      elements = gathered;
    }
    kernels_.unpack(line.unpacking, elements, numbers, run);
    numbers += run, first += run, count -= run;
  }
}

void MatmulPlan::unpack_rows(const Operands& operands, const Block& block, std::int64_t k,
                             std::int64_t depth, std::int64_t row_stride, float* a) const {
  const std::byte* const base =
      operands.a + (matmul_.a.offset + block.batch.a) * a_.unpacking.width;
  for (std::int64_t row = 0; row < block.rows; ++row)
    unpack_line(a_, base + place(rows_, block.row + row).a * a_.unpacking.width, k, depth,
                a + row * row_stride);
}

/// `b` is the start of the batch. Whether all numbers are known to be finite.
bool MatmulPlan::pack_panel(const std::byte* b, std::int64_t column, std::int64_t columns,
                            std::int64_t k, std::int64_t depth, const Workspace& space) const {
  const std::int64_t width = b_.unpacking.width, stride = matmul_.b.stride;
  if (matmul_.b.sticks == Matmul::Sticks::along_n) {
    const std::int64_t offset = k * stride + column / b_.lanes * b_.stick_stride;
    const std::byte* const from = b + (offset + column % b_.lanes) * width;
    return kernels_.pack(b_.unpacking, reinterpret_cast<const char*>(from), stride * width, depth,
                         columns, space.panel);
  }
  for (std::int64_t i = 0; i < kernels_.panel_columns; ++i) {
    float* const numbers = space.column + i * kBlockStride;
    if (i < columns) {
      unpack_line(b_, b + (column + i) * stride * width, k, depth, numbers);
    } else {
      std::fill_n(numbers, depth, 0.0f);
    }
  }
  kernels_.transpose(space.column, depth, space.panel);
  return false;
}

void MatmulPlan::multiply(const Operands& operands, const Block& block,
                          const Workspace& space) const {
  const std::byte* const b = operands.b + (matmul_.b.offset + block.batch.b) * b_.unpacking.width;
  const auto kernel = integers_ ? kernels_.multiply_integers : kernels_.multiply;
  const std::int64_t step = chunked_ ? kChunk : kBlockDepth;
  float* const target = chunked_ ? space.chunk : space.sums;
  const auto unpack_a = [&](std::int64_t k, float* a) {
    unpack_rows(operands, block, k, std::min(step, matmul_.k - k), kBlockStride, a);
  };
  const auto panel = [&](std::int64_t column, std::int64_t k, const float* a) {
    const std::int64_t depth = std::min(step, matmul_.k - k);
    const bool finite =
        pack_panel(b, block.column + column,
                   std::min(kernels_.panel_columns, block.columns - column), k, depth, space);
    kernel(block.rows, depth, a, space.panel,
           target + column / kernels_.panel_columns * space.panel_stride, space.stride,
           chunked_ || k == 0, finite && small_float(matmul_.a.format));
  };
  if (keeps_rows(block)) {
    // Few rows: the right operand is what takes time. Read it in the order of memory.
    const std::int64_t a_block = block.rows * kBlockStride;
    for (std::int64_t k = 0; k < matmul_.k; k += step) unpack_a(k, space.a + k / step * a_block);
    for (std::int64_t column = 0; column < block.columns; column += kernels_.panel_columns)
      for (std::int64_t k = 0; k < matmul_.k; k += step)
        panel(column, k, space.a + k / step * a_block);
    return;
  }
  for (std::int64_t k = 0; k < matmul_.k; k += step) {
    unpack_a(k, space.a);
    for (std::int64_t column = 0; column < block.columns; column += kernels_.panel_columns)
      panel(column, k, space.a);
    if (chunked_) add_chunk(block, space, k == 0);
  }
}

bool MatmulPlan::keeps_rows(const Block& block) const {
  return !chunked_ && block.rows * round_up(matmul_.k, kBlockDepth) <= kKeptNumbers;
}

void MatmulPlan::add_chunk(const Block& block, const Workspace& space, bool first) const {
  std::uint16_t codes[kChunk];
  const auto round = [&](float* numbers, std::int64_t count) {
    to_dl16_(numbers, codes, static_cast<std::size_t>(count));
    from_dl16_(codes, numbers, static_cast<std::size_t>(count));
  };
  for (std::int64_t row = 0; row < block.rows; ++row) {
    for (std::int64_t column = 0; column < block.columns; column += kChunk) {
      const std::int64_t count = std::min(kChunk, block.columns - column);
      float* const sums = space.sums + row * space.stride + column;
      float* const chunk = space.chunk + row * space.stride + column;
      round(chunk, count);
      for (std::int64_t i = 0; i < count; ++i) sums[i] = first ? chunk[i] : sums[i] + chunk[i];
      if (!first) round(sums, count);
    }
  }
}

/// Few rows, sticks along n. The columns are whole sticks of DLFloat16.
void MatmulPlan::stream(const Operands& operands, const Block& block,
                        const Workspace& space) const {
  const std::byte* const b = operands.b + (matmul_.b.offset + block.batch.b) * b_.unpacking.width;
  for (std::int64_t k = 0; k < matmul_.k; k += kStreamDepth) {
    const std::int64_t depth = std::min(kStreamDepth, matmul_.k - k);
    unpack_rows(operands, block, k, depth, kStreamDepth, space.a);
    for (std::int64_t column = 0; column < block.columns; column += kStreamColumns) {
      const std::int64_t stick = (block.column + column) / kStreamColumns;
      const std::int64_t offset = k * matmul_.b.stride + stick * b_.stick_stride;
      for (std::int64_t row = 0; row < block.rows; row += kStreamRows)
        kernels_.stream(merged_, std::min(kStreamRows, block.rows - row), depth,
                        space.a + row * kStreamDepth, b + offset * b_.unpacking.width,
                        matmul_.b.stride, space.sums + row * space.stride + column, space.stride,
                        k == 0);
    }
  }
}

/// Few rows, sticks along k.
void MatmulPlan::dot(const Operands& operands, const Block& block, const Workspace& space) const {
  const std::int64_t width = b_.unpacking.width, lanes = b_.lanes, stride = matmul_.b.stride;
  const std::byte* const b =
      operands.b + (matmul_.b.offset + block.batch.b + block.column * stride) * width;
  const std::int64_t group = kernels_.dot_columns, sticks = divide_up(matmul_.k, lanes);
  const auto multiply = [&](std::int64_t k, std::int64_t column, std::int64_t columns,
                            std::int64_t depth, const void* from, std::int64_t from_stride) {
    for (std::int64_t row = 0; row < block.rows; row += kStreamRows)
      kernels_.dot(merged_, std::min(kStreamRows, block.rows - row), columns, depth,
                   space.a + row * kStreamDepth + k % kStreamDepth, from, from_stride,
                   space.sums + row * space.stride + column, space.stride, k == 0);
  };
  const auto run = [&](std::int64_t k, std::int64_t column) {
    const std::int64_t columns = std::min(kDotColumns, block.columns - column);
    const std::int64_t depth = std::min(lanes, matmul_.k - k);
    const std::byte* const from = b + (column * stride + k / lanes * b_.stick_stride) * width;
    const std::int64_t whole = depth == lanes ? columns / group * group : 0;
    if (whole > 0) multiply(k, column, whole, depth, from, stride);
    // Zeros in place of columns and steps that are not there.
    std::uint16_t padded[kMaxPanelColumns][kMaxPanelColumns * 2];
    for (std::int64_t first = whole; first < columns; first += group) {
      const std::int64_t count = std::min(group, columns - first);
      std::memset(padded, 0, sizeof padded);
      for (std::int64_t i = 0; i < count; ++i)
        std::memcpy(padded[i], from + (first + i) * stride * width,
                    static_cast<std::size_t>(depth * width));
      multiply(k, column + first, group, depth, padded, lanes);
    }
  };
  // In the order of memory: all columns of a stick of K, or all of K of some columns.
  const bool by_sticks = std::abs(b_.stick_stride) > std::abs(stride);
  constexpr std::int64_t kDepthSticks = kStreamDepth / (2 * kMaxPanelColumns);
  for (std::int64_t first = 0; first < sticks; first += kDepthSticks) {
    const std::int64_t end = std::min(first + kDepthSticks, sticks);
    unpack_rows(operands, block, first * lanes, std::min(end * lanes, matmul_.k) - first * lanes,
                kStreamDepth, space.a);
    for (std::int64_t start = first; start < end; start = by_sticks ? start + 1 : end)
      for (std::int64_t column = 0; column < block.columns; column += kDotColumns)
        for (std::int64_t stick = start; stick < (by_sticks ? start + 1 : end); ++stick)
          run(stick * lanes, column);
  }
}

/// What is streamed comes out divided by kStreamScale.
void MatmulPlan::unscale(const Block& block, const Workspace& space) const {
  for (std::int64_t row = 0; row < block.rows; ++row)
    kernels_.finish(space.sums + row * space.stride, nullptr, block.columns, kStreamScale, 0);
}

void MatmulPlan::finish(const Operands& operands, const Block& block,
                        const Workspace& space) const {
  const std::int64_t c_width = element_bytes(matmul_.c.format);
  // As in torch, a beta of zero also means that the bias is not looked at.
  const bool biased = matmul_.bias.operand >= 0 && matmul_.beta != 0;
  const auto wrapped = [](double value) {
    return static_cast<std::uint32_t>(static_cast<std::int64_t>(value));
  };
  for (std::int64_t row = 0; row < block.rows; ++row) {
    const Place at = place(rows_, block.row + row);
    float* const sums = space.sums + row * space.stride;
    const float* bias = nullptr;
    if (biased) {
      const std::int64_t offset = matmul_.bias.offset + block.batch.bias + at.bias;
      unpack_line(bias_, operands.bias + offset * bias_.unpacking.width, block.column,
                  block.columns, space.column);
      bias = space.column;
    }
    if (integers_) {
      kernels_.finish_integers(sums, bias, block.columns, wrapped(matmul_.alpha),
                               wrapped(matmul_.beta));
    } else {
      kernels_.finish(sums, bias, block.columns, static_cast<float>(matmul_.alpha),
                      static_cast<float>(matmul_.beta));
      if (float_c()) kernels_.quiet(sums, block.columns);
    }
    std::byte* const c = operands.c + (matmul_.c.offset + block.batch.c + at.c) * c_width;
    for (std::int64_t done = 0; done < block.columns;) {
      const std::int64_t column = block.column + done, lane = column % c_lanes_;
      const std::int64_t run = std::min(block.columns - done, c_lanes_ - lane);
      std::byte* const to = c + (column / c_lanes_ * matmul_.c.n_stick_stride + lane) * c_width;
      encode_(sums + done, to, static_cast<std::size_t>(run));
      done += run;
    }
  }
}

MatmulPlan::Workspace MatmulPlan::workspace(const Operands& operands, const Block& block) const {
  // A whole cache line more a row: rows do not compete for places of the cache.
  const std::int64_t stride = round_up(block.columns, kStreamColumns) + 16;
  const std::int64_t sums = in_place_ ? 0 : block.rows * stride, chunk = chunked_ ? sums : 0;
  const std::int64_t depth = std::max(streamed_ ? kStreamDepth : 0,
                                      keeps_rows(block) ? round_up(matmul_.k, kBlockDepth) : 0);
  const std::int64_t a = block.rows * std::max(depth / kBlockDepth, std::int64_t{1}) * kBlockStride;
  const std::int64_t panel = kBlockDepth * kMaxPanelColumns;
  const std::int64_t column = std::max(kMaxPanelColumns * kBlockStride, stride);
  float* next = scratch_of(sums + chunk + a + panel + column);
  const auto take = [&](std::int64_t numbers) { return std::exchange(next, next + numbers); };
  Workspace space{};
  space.stride = stride;
  space.panel_stride = kernels_.panel_columns;
  space.panel = take(panel);
  space.a = take(a);
  space.sums = take(sums);
  space.chunk = take(chunk);
  space.column = take(column);
  if (in_place_) {
    space.stride = rows_[0].c;
    if (matmul_.n > c_lanes_) space.panel_stride = matmul_.c.n_stick_stride;
    space.sums = reinterpret_cast<float*>(operands.c) + matmul_.c.offset + block.batch.c +
                 block.row * space.stride +
                 block.column / kernels_.panel_columns * space.panel_stride;
  }
  return space;
}

/// All that is left to do with sums that are elements of C.
void MatmulPlan::quiet_in_place(const Block& block, const Workspace& space) const {
  // Rows of a stick mostly follow each other.
  const std::int64_t columns = kernels_.panel_columns;
  const std::int64_t together = space.stride == columns ? block.rows : 1;
  for (std::int64_t panel = 0; panel < block.columns / columns; ++panel)
    for (std::int64_t row = 0; row < block.rows; row += together)
      kernels_.quiet(space.sums + panel * space.panel_stride + row * space.stride,
                     together * columns);
}

void MatmulPlan::run(const Operands& operands, const Block& block) const {
  const Workspace space = workspace(operands, block);
  if (matmul_.k == 0) {
    std::fill_n(space.sums, block.rows * space.stride, 0.0f);
  } else if (!streamed_) {
    multiply(operands, block, space);
  } else if (matmul_.b.sticks == Matmul::Sticks::along_k) {
    dot(operands, block, space);
    unscale(block, space);
  } else {
    Block sticks = block, rest = block;
    sticks.columns = block.columns / kStreamColumns * kStreamColumns;
    rest.column += sticks.columns, rest.columns -= sticks.columns;
    if (sticks.columns > 0) stream(operands, sticks, space);
    unscale(sticks, space);
    if (rest.columns > 0) {
      Workspace behind = space;
      behind.sums += sticks.columns;
      multiply(operands, rest, behind);
    }
  }
  in_place_ ? quiet_in_place(block, space) : finish(operands, block, space);
}

}  // namespace spyre::card
