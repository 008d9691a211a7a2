#include "nests/move.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string>
#include <utility>

#include "formats/convert.h"
#include "host/thread_pool.h"

namespace spyre::card {
namespace {

// ------------------------------------------------------------------------------------------- nests

/// Strides in bytes.
struct Dim {
  std::int64_t size, src, dst;
};

/// A loop nest ready to run, innermost dimension first, without dimensions of size one. Sixty-four
/// dimensions of at least two elements are more than the element count allows.
struct Nest {
  int rank = 0;
  Dim dims[64];
  const std::byte* src;
  std::byte* dst;
  bool in_order = false;  ///< elements share places: keep the order of the descriptor, one thread
};

/// Joins each dimension with its outer neighbour if the two together are linear on both sides.
void merge_neighbours(Nest& nest) {
  int kept = 0;
  for (int i = 1; i < nest.rank; ++i) {
    Dim& inner = nest.dims[kept];
    const Dim& outer = nest.dims[i];
    if (outer.src == inner.src * inner.size && outer.dst == inner.dst * inner.size) {
      inner.size *= outer.size;
    } else {
      nest.dims[++kept] = outer;
    }
  }
  if (nest.rank > 0) nest.rank = kept + 1;
}

/// From the descriptor's loops, which have at least one element. `src_bytes` is zero for fills.
void normalise(const StrideInfo& loops, std::int64_t src_bytes, std::int64_t dst_bytes,
               const std::byte* src, std::byte* dst, Nest& nest) {
  nest.rank = 0;
  nest.in_order = false;
  nest.src = src + loops.offset_src * src_bytes;
  nest.dst = dst + loops.offset_dst * dst_bytes;
  for (std::size_t i = 0; i < loops.size.size(); ++i) {
    const std::int64_t size = loops.size[i];
    if (size == 1) continue;
    const std::int64_t stride_src = src_bytes ? loops.stride_src[i] * src_bytes : 0;
    const std::int64_t stride_dst = loops.stride_dst[i] * dst_bytes;
    if (stride_dst == 0) {
      nest.src +=
          (size - 1) * stride_src;  // every round writes the same places: only the last stays
    } else {
      nest.dims[nest.rank++] = {size, stride_src, stride_dst};
    }
  }
  // Does every element have a place of its own? Surely so if each dimension, in the order of their
  // strides, steps over all that the smaller ones span.
  Dim* const dims = nest.dims;
  Dim* const end = dims + nest.rank;
  Dim given[64];
  std::copy(dims, end, given);
  const std::byte* const given_src = nest.src;
  std::byte* const given_dst = nest.dst;
  for (Dim* dim = dims; dim != end; ++dim) {
    if (dim->dst >= 0) continue;
    nest.src += (dim->size - 1) * dim->src;
    nest.dst += (dim->size - 1) * dim->dst;
    dim->src = -dim->src;
    dim->dst = -dim->dst;
  }
  std::sort(dims, end, [](const Dim& a, const Dim& b) { return a.dst < b.dst; });
  std::int64_t span = 0;
  for (const Dim* dim = dims; dim != end; ++dim) {
    if (dim->dst <= span) {
      std::copy_n(given, nest.rank, dims);
      nest.src = given_src;
      nest.dst = given_dst;
      nest.in_order = true;
      break;
    }
    span += (dim->size - 1) * dim->dst;
  }
  merge_neighbours(nest);
}

// --------------------------------------------------------------------------------------- execution

/// What to do with the elements of a nest: convert them or, in fills, write a pattern.
struct Transfer {
  std::int64_t src_bytes, dst_bytes;  ///< of an element; fills have no source
  ConvertRun run = nullptr;
  const std::byte* pattern = nullptr;  ///< kPattern bytes of the element over and over
};

constexpr std::int64_t kGather = 512;               // elements gathered before they are converted
constexpr std::int64_t kTile = 64;                  // edge of a transposed tile, in elements
constexpr std::int64_t kInnerBlock = 16;            // runs along dims[1] and
constexpr std::int64_t kOuterBlock = 16;            // along dims[2] before going on
constexpr std::int64_t kPattern = 4096;             // bytes
constexpr std::int64_t kShortRun = 16;              // what is contiguous for less is gathered
constexpr std::uint64_t kParallelBytes = 64 << 10;  // work worth waking a thread for

/// Calls body(src, dst) for every position of the given dimensions, the first one fastest.
template <typename Body>
void for_each_position(const Dim* dims, int rank, const std::byte* src, std::byte* dst,
                       const Body& body) {
  if (rank == 0) return body(src, dst);
  std::int64_t position[64];
  std::fill_n(position, rank, 0);
  for (;;) {
    const std::byte* s = src;
    std::byte* d = dst;
    for (std::int64_t i = dims[0].size; i > 0; --i, s += dims[0].src, d += dims[0].dst) body(s, d);
    int k = 1;
    for (; k < rank; ++k) {
      src += dims[k].src;
      dst += dims[k].dst;
      if (++position[k] < dims[k].size) break;
      src -= dims[k].size * dims[k].src;
      dst -= dims[k].size * dims[k].dst;
      position[k] = 0;
    }
    if (k == rank) return;
  }
}

template <int bytes>
void copy_strided(const std::byte* src, std::int64_t src_stride, std::byte* dst,
                  std::int64_t dst_stride, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i)
    std::memcpy(dst + i * dst_stride, src + i * src_stride, bytes);
}

void copy_elements(std::int64_t bytes, const std::byte* src, std::int64_t src_stride,
                   std::byte* dst, std::int64_t dst_stride, std::int64_t n) {
  if (src_stride == bytes && dst_stride == bytes) {
    std::memcpy(dst, src, static_cast<std::size_t>(n * bytes));
    return;
  }
  switch (bytes) {
    case 1:
      return copy_strided<1>(src, src_stride, dst, dst_stride, n);
    case 2:
      return copy_strided<2>(src, src_stride, dst, dst_stride, n);
    case 4:
      return copy_strided<4>(src, src_stride, dst, dst_stride, n);
    default:
      return copy_strided<8>(src, src_stride, dst, dst_stride, n);
  }
}

/// Both sides contiguous along dims[0]. If the two sides disagree on what comes next, as when rows
/// are cut into tiles, blocks of dims[1] and dims[2] keep the pages and prefetch streams in use few
/// on both; going along either side alone takes two to five times as long.
void move_runs(const Nest& nest, const Transfer& transfer) {
  const std::size_t n = nest.rank ? static_cast<std::size_t>(nest.dims[0].size) : 1;
  const ConvertRun run = transfer.run;
  if (nest.rank < 3 || nest.in_order || nest.dims[1].src <= nest.dims[2].src) {
    for_each_position(nest.dims + 1, std::max(0, nest.rank - 1), nest.src, nest.dst,
                      [=](const std::byte* src, std::byte* dst) { run(src, dst, n); });
    return;
  }
  const Dim inner = nest.dims[1], outer = nest.dims[2];
  for_each_position(
      nest.dims + 3, nest.rank - 3, nest.src, nest.dst, [=](const std::byte* src, std::byte* dst) {
        for (std::int64_t i = 0; i < inner.size; i += kInnerBlock)
          for (std::int64_t j = 0; j < outer.size; j += kOuterBlock) {
            const Dim block[] = {{std::min(kInnerBlock, inner.size - i), inner.src, inner.dst},
                                 {std::min(kOuterBlock, outer.size - j), outer.src, outer.dst}};
            for_each_position(block, 2, src + i * inner.src + j * outer.src,
                              dst + i * inner.dst + j * outer.dst,
                              [=](const std::byte* s, std::byte* d) { run(s, d, n); });
          }
      });
}

/// Any strides: pieces of the two inner dimensions go through buffers in which they are packed.
void move_gathered(const Nest& nest, const Transfer& transfer) {
  const Dim inner = nest.dims[0], outer = nest.rank > 1 ? nest.dims[1] : Dim{1, 0, 0};
  const std::int64_t columns = std::min(inner.size, kGather);
  const std::int64_t rows = std::min(outer.size, std::max<std::int64_t>(1, kGather / columns));
  for_each_position(nest.dims + 2, std::max(0, nest.rank - 2), nest.src, nest.dst,
                    [&](const std::byte* src, std::byte* dst) {
                      alignas(64) std::byte from[kGather * 8], to[kGather * 8];
                      for (std::int64_t row = 0; row < outer.size; row += rows) {
                        const std::int64_t r = std::min(rows, outer.size - row);
                        for (std::int64_t column = 0; column < inner.size; column += columns) {
                          const std::int64_t c = std::min(columns, inner.size - column);
                          const std::byte* s = src + row * outer.src + column * inner.src;
                          std::byte* d = dst + row * outer.dst + column * inner.dst;
                          for (std::int64_t i = 0; i < r; ++i)
                            copy_elements(transfer.src_bytes, s + i * outer.src, inner.src,
                                          from + i * c * transfer.src_bytes, transfer.src_bytes, c);
                          transfer.run(from, to, static_cast<std::size_t>(r * c));
                          for (std::int64_t i = 0; i < r; ++i)
                            copy_elements(transfer.dst_bytes, to + i * c * transfer.dst_bytes,
                                          transfer.dst_bytes, d + i * outer.dst, inner.dst, c);
                        }
                      }
                    });
}

/// a[0] b[0] a[1] b[1] .. from the lower (half = 0) or upper (half = 1) halves of two vectors.
template <int half, typename Vector, int... i>
Vector interleave(Vector a, Vector b, std::integer_sequence<int, i...>) {
  constexpr int lanes = sizeof...(i);
  return __builtin_shufflevector(a, b, (i / 2 + half * lanes / 2 + i % 2 * lanes)...);
}

/// Square blocks of 16-byte vectors: log2(lanes) rounds of interleaving the first half of the rows
/// with the second transpose them.
template <typename Element>
void transpose_block(const Element* from, Element* to) {
  constexpr int lanes = 16 / sizeof(Element);
  typedef Element Vector __attribute__((vector_size(16)));
  constexpr std::make_integer_sequence<int, lanes> order;
  Vector rows[lanes], next[lanes];
  for (int i = 0; i < lanes; ++i) std::memcpy(&rows[i], from + i * kTile, 16);
  for (int round = 1; round < lanes; round *= 2) {
    for (int i = 0; i < lanes / 2; ++i) {
      next[2 * i] = interleave<0>(rows[i], rows[i + lanes / 2], order);
      next[2 * i + 1] = interleave<1>(rows[i], rows[i + lanes / 2], order);
    }
    for (int i = 0; i < lanes; ++i) rows[i] = next[i];
  }
  for (int i = 0; i < lanes; ++i) std::memcpy(to + i * kTile, &rows[i], 16);
}

/// dst[j][i] = tile[i][j]; the rows of the tile are kTile elements apart.
template <typename Element>
void transpose_tile(const std::byte* tile, std::byte* dst, std::int64_t dst_stride,
                    std::int64_t rows, std::int64_t columns) {
  constexpr std::int64_t lanes = 16 / sizeof(Element);
  const Element* const from = reinterpret_cast<const Element*>(tile);
  alignas(64) Element turned[kTile * kTile];
  for (std::int64_t j = 0; j < columns; j += lanes) {
    for (std::int64_t i = 0; i < rows; i += lanes)
      transpose_block(from + i * kTile + j, turned + j * kTile + i);
    for (std::int64_t k = j; k < std::min(j + lanes, columns); ++k)
      std::memcpy(dst + k * dst_stride, turned + k * kTile,
                  static_cast<std::size_t>(rows) * sizeof(Element));
  }
}

/// The source is contiguous along dims[1], the destination along dims[0]: tile by tile, so that
/// both sides are touched in whole cache lines.
void move_transposed(const Nest& nest, const Transfer& transfer) {
  const Dim across = nest.dims[0], along = nest.dims[1];
  alignas(64) std::byte tile[kTile * kTile * 8];
  // Blocks at the edges read a little beyond what was written.
  std::memset(tile, 0, static_cast<std::size_t>(kTile * kTile * transfer.dst_bytes));
  for_each_position(nest.dims + 2, nest.rank - 2, nest.src, nest.dst,
                    [&](const std::byte* src, std::byte* dst) {
                      for (std::int64_t i = 0; i < across.size; i += kTile) {
                        const std::int64_t rows = std::min(kTile, across.size - i);
                        for (std::int64_t j = 0; j < along.size; j += kTile) {
                          const std::int64_t columns = std::min(kTile, along.size - j);
                          for (std::int64_t row = 0; row < rows; ++row)
                            transfer.run(src + (i + row) * across.src + j * along.src,
                                         tile + row * kTile * transfer.dst_bytes,
                                         static_cast<std::size_t>(columns));
                          std::byte* const d = dst + i * across.dst + j * along.dst;
                          switch (transfer.dst_bytes) {
                            case 1:
                              transpose_tile<std::uint8_t>(tile, d, along.dst, rows, columns);
                              break;
                            case 2:
                              transpose_tile<std::uint16_t>(tile, d, along.dst, rows, columns);
                              break;
                            case 4:
                              transpose_tile<std::uint32_t>(tile, d, along.dst, rows, columns);
                              break;
                            default:
                              transpose_tile<std::uint64_t>(tile, d, along.dst, rows, columns);
                              break;
                          }
                        }
                      }
                    });
}

void fill_nest(const Nest& nest, const Transfer& transfer) {
  const std::int64_t bytes = transfer.dst_bytes;
  const Dim inner = nest.rank ? nest.dims[0] : Dim{1, 0, bytes};
  for_each_position(nest.dims + 1, std::max(0, nest.rank - 1), nullptr, nest.dst,
                    [&](const std::byte*, std::byte* dst) {
                      if (inner.dst != bytes)
                        return copy_elements(bytes, transfer.pattern, 0, dst, inner.dst,
                                             inner.size);
                      const std::int64_t total = inner.size * bytes;
                      for (std::int64_t done = 0; done < total; done += kPattern)
                        std::memcpy(dst + done, transfer.pattern,
                                    static_cast<std::size_t>(std::min(kPattern, total - done)));
                    });
}

using Method = void (*)(const Nest&, const Transfer&);

/// Chooses how to run a nest and puts its dimensions into the order that the method expects.
Method plan(Nest& nest, const Transfer& transfer) {
  if (transfer.pattern) return fill_nest;
  if (nest.rank == 0) return move_runs;
  const Dim& first = nest.dims[0];
  const bool dst_unit = first.dst == transfer.dst_bytes;
  if (dst_unit && first.src == transfer.src_bytes && (first.size >= kShortRun || nest.rank == 1)) {
    if (nest.rank > 3 && !nest.in_order) {
      // What comes next on the destination is dims[1]; put what comes next on the source behind it.
      Dim* const next = std::min_element(
          nest.dims + 2, nest.dims + nest.rank,
          [](const Dim& a, const Dim& b) { return std::abs(a.src) < std::abs(b.src); });
      std::rotate(nest.dims + 2, next, next + 1);
    }
    return move_runs;
  }
  if (nest.in_order || !dst_unit || first.size < kShortRun) return move_gathered;
  for (int k = 1; k < nest.rank; ++k) {
    if (nest.dims[k].src != transfer.src_bytes || nest.dims[k].size < kShortRun) continue;
    std::rotate(nest.dims + 1, nest.dims + k, nest.dims + k + 1);
    return move_transposed;
  }
  return move_gathered;
}

/// Runs a planned nest on the pool: one dimension is cut into pieces. No two pieces write the same
/// element, since every element has a place of its own.
void run_parallel(const Nest& nest, const Transfer& transfer, Method method, std::uint64_t bytes) {
  ThreadPool& pool = ThreadPool::shared();
  const std::int64_t wanted = std::min<std::int64_t>(
      static_cast<std::int64_t>(bytes / kParallelBytes) + 1, std::int64_t{4} * pool.size());
  int cut = nest.rank - 1;
  for (int k = nest.rank - 1; k >= 0 && nest.dims[cut].size < wanted; --k)
    if (nest.dims[k].size > nest.dims[cut].size) cut = k;
  const Dim& dim = nest.dims[cut];
  std::int64_t piece = (dim.size + wanted - 1) / wanted;
  // Inner dimensions are cut at whole tiles and cache lines.
  if (cut < 2 && piece > kTile) piece = (piece + kTile - 1) / kTile * kTile;
  pool.parallel_for((dim.size + piece - 1) / piece, [&](std::int64_t task) {
    Nest part = nest;
    part.src += task * piece * dim.src;
    part.dst += task * piece * dim.dst;
    part.dims[cut].size = std::min(piece, dim.size - task * piece);
    method(part, transfer);
  });
}

std::uint64_t count_of(const StrideInfo& loops) {
  std::uint64_t count = 1;
  for (std::int64_t size : loops.size) count *= static_cast<std::uint64_t>(size);
  return count;
}

void run_nest(const StrideInfo& loops, const Transfer& transfer, const std::byte* src,
              std::byte* dst, bool parallel) {
  const std::uint64_t count = count_of(loops);
  if (count == 0) return;
  Nest nest;
  normalise(loops, transfer.src_bytes, transfer.dst_bytes, src, dst, nest);
  const Method method = plan(nest, transfer);
  const std::uint64_t bytes =
      count * static_cast<std::uint64_t>(std::max(transfer.src_bytes, transfer.dst_bytes));
  if (parallel && !nest.in_order && nest.rank > 0 && bytes > kParallelBytes) {
    run_parallel(nest, transfer, method, bytes);
  } else {
    method(nest, transfer);
  }
}

/// Whether the nests write one behind the other, so that several may run at once. (Nests that
/// interleave may be independent, too, but that is expensive to find out.)
bool ascending(std::span<const StrideInfo> nests) {
  std::int64_t end = std::numeric_limits<std::int64_t>::min();
  for (const StrideInfo& loops : nests) {
    if (count_of(loops) == 0) continue;
    std::int64_t low = loops.offset_dst, high = low;
    for (std::size_t i = 0; i < loops.size.size(); ++i) {
      const std::int64_t extent = (loops.size[i] - 1) * loops.stride_dst[i];
      (extent < 0 ? low : high) += extent;
    }
    if (low < end) return false;
    end = high + 1;
  }
  return true;
}

void run(std::span<const StrideInfo> nests, const Transfer& transfer, const std::byte* src,
         std::byte* dst) {
  std::uint64_t total = 0, largest = 0;
  for (const StrideInfo& loops : nests) {
    const std::uint64_t count = count_of(loops);
    total += count;
    largest = std::max(largest, count);
  }
  const std::uint64_t bytes =
      total * static_cast<std::uint64_t>(std::max(transfer.src_bytes, transfer.dst_bytes));
  ThreadPool& pool = ThreadPool::shared();
  const bool parallel = bytes > kParallelBytes && pool.size() > 1;
  // Many small nests are shared out; large ones are cut, one after the other.
  const std::uint64_t threads = static_cast<std::uint64_t>(pool.size());
  if (parallel && largest * threads * 2 < total && ascending(nests)) {
    const std::size_t piece = nests.size() / (threads * 8) + 1;
    const std::size_t tasks = (nests.size() + piece - 1) / piece;
    pool.parallel_for(static_cast<std::int64_t>(tasks), [&](std::int64_t task) {
      const std::size_t begin = static_cast<std::size_t>(task) * piece;
      const std::size_t end = std::min(begin + piece, nests.size());
      for (std::size_t i = begin; i < end; ++i) run_nest(nests[i], transfer, src, dst, false);
    });
    return;
  }
  for (const StrideInfo& loops : nests) run_nest(loops, transfer, src, dst, parallel);
}

}  // namespace

// --------------------------------------------------------------------------------------- interface

std::uint64_t element_count(const DataConversion& conversion) {
  std::uint64_t total = 0;
  for (const StrideInfo& loops : conversion.loops) total += count_of(loops);
  return total;
}

void move(const DataConversion& conversion, const std::byte* src, std::byte* dst) {
  const Transfer transfer{element_bytes(conversion.src), element_bytes(conversion.dst),
                          converter(conversion.src, conversion.dst, conversion.narrow)};
  run(conversion.loops, transfer, src, dst);
}

void fill(std::span<const StrideInfo> loops, DataFormat format, std::uint64_t bits,
          std::byte* dst) {
  const std::int64_t bytes = element_bytes(format);
  std::uint64_t word = bytes == 8 ? bits : bits & ((std::uint64_t{1} << (8 * bytes)) - 1);
  for (std::int64_t width = bytes; width < 8; width *= 2) word |= word << (8 * width);
  alignas(64) std::uint64_t words[kPattern / 8];
  std::fill_n(words, kPattern / 8, word);
  const auto* const pattern = reinterpret_cast<const std::byte*>(words);
  run(loops, {0, bytes, nullptr, pattern}, nullptr, dst);
}

}  // namespace spyre::card
