#include "nests/move.h"

#include <array>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "nests/convert_plane.h"
#include "nests/share.h"

namespace spyre::card {
namespace {

constexpr std::int64_t kTile = 64;                 // edge of a transposed tile, in elements
constexpr std::int64_t kInnerBlock = 16;           // runs along loop 1 and
constexpr std::int64_t kOuterBlock = 16;           // along loop 2 before going on
constexpr std::size_t kPattern = 4096;             // bytes
constexpr std::int64_t kShortRun = 16;             // what is contiguous for less is gathered
constexpr std::int64_t kParallelBytes = 64 << 10;  // work worth waking a thread for

constexpr std::size_t kSrc = 0, kDst = 1;

/// Calls body(place of the source, of the destination) for all iterations of the loops from `inner`
/// on.
template <typename Body>
void each_place(const LoopNest& loops, std::size_t inner, const Body& body) {
  const std::int64_t src = loops.stride_or_0(inner, kSrc), dst = loops.stride_or_0(inner, kDst);
  each_row(loops, inner, std::array{loops.offset(kSrc), loops.offset(kDst)},
           [&](const std::array<std::int64_t, 2>& at, std::int64_t count) {
             std::int64_t s = at[kSrc], d = at[kDst];
             for (; count > 0; --count, s += src, d += dst) body(s, d);
           });
}

/// A function of its own, whose few numbers stay in registers from run to run.
[[gnu::noinline]] void move_row(ConvertRun run, std::size_t n, const std::byte* src,
                                std::int64_t src_step, std::byte* dst, std::int64_t dst_step,
                                std::int64_t runs) {
  for (; runs > 0; --runs, src += src_step, dst += dst_step) run(src, dst, n);
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

void transpose_tile(std::int64_t bytes, const std::byte* tile, std::byte* dst,
                    std::int64_t dst_stride, std::int64_t rows, std::int64_t columns) {
  switch (bytes) {
    case 1:
      return transpose_tile<std::uint8_t>(tile, dst, dst_stride, rows, columns);
    case 2:
      return transpose_tile<std::uint16_t>(tile, dst, dst_stride, rows, columns);
    case 4:
      return transpose_tile<std::uint32_t>(tile, dst, dst_stride, rows, columns);
    default:
      return transpose_tile<std::uint64_t>(tile, dst, dst_stride, rows, columns);
  }
}

}  // namespace

// ---------------------------------------------------------------------------------------- planning

LoopNest nest_of(const StrideInfo& loops) {
  LoopNest nest(2, loops.size.size());
  nest.offset(kSrc) = loops.offset_src;
  nest.offset(kDst) = loops.offset_dst;
  for (std::size_t d = 0; d < loops.size.size(); ++d)
    if (loops.size[d] != 1) nest.add(loops.size[d], {loops.stride_src[d], loops.stride_dst[d]});
  return nest;
}

std::uint64_t element_count(const DataConversion& conversion) {
  std::uint64_t total = 0;
  for (const StrideInfo& loops : conversion.loops) {
    std::uint64_t count = 1;
    for (const std::int64_t size : loops.size) count *= static_cast<std::uint64_t>(size);
    total += count;
  }
  return total;
}

Mover::Mover(DataFormat src, DataFormat dst, Narrow narrow)
    : src_bytes_(element_bytes(src)),
      dst_bytes_(element_bytes(dst)),
      run_(converter(src, dst, narrow)) {}

Mover::Mover(DataFormat dst, std::uint64_t bits)
    : dst_bytes_(element_bytes(dst)), pattern_(kPattern) {
  for (std::size_t at = 0; at < kPattern; at += static_cast<std::size_t>(dst_bytes_))
    std::memcpy(pattern_.data() + at, &bits, static_cast<std::size_t>(dst_bytes_));
}

void Mover::add(LoopNest nest) {
  if (nest.empty()) return;
  const std::size_t written = run_ ? kDst : 0;
  const std::int64_t both[] = {src_bytes_, dst_bytes_};
  nest.drop_single();
  nest.scale(std::span(both).subspan(1 - written));
  const LoopNest::Reach reach = *nest.reach(written);
  apart_ &= nests_.empty() || reach.first >= end_;
  end_ = reach.last + 1;
  const bool in_order = !nest.shorten_for(written);
  const Method method = choose_method(nest, in_order);
  nests_.push_back({std::move(nest), in_order, method});
}

/// Puts the loops into the order that the method expects.
Mover::Method Mover::choose_method(LoopNest& loops, bool in_order) const {
  if (!run_) return &Mover::fill;
  const std::size_t rank = loops.rank();
  if (rank == 0) return &Mover::move_runs;
  const auto contiguous = [&](std::size_t loop, std::size_t side, std::int64_t bytes) {
    return loops.stride(loop, side) == bytes;
  };
  const bool dst_unit = contiguous(0, kDst, dst_bytes_), is_long = loops.size(0) >= kShortRun;
  if (dst_unit && contiguous(0, kSrc, src_bytes_) && (is_long || rank == 1)) {
    if (in_order) return &Mover::move_runs;
    if (rank > 3) {
      // What comes next on the destination is loop 1; put what comes next on the source behind it.
      std::size_t next = 2;
      for (std::size_t loop = 3; loop < rank; ++loop)
        if (std::abs(loops.stride(loop, kSrc)) < std::abs(loops.stride(next, kSrc))) next = loop;
      loops.bring(next, 2);
    }
    return rank > 2 && loops.stride(1, kSrc) > loops.stride(2, kSrc) ? &Mover::move_runs_in_blocks
                                                                     : &Mover::move_runs;
  }
  if (in_order || !dst_unit || !is_long) return &Mover::move_gathered;
  for (std::size_t loop = 1; loop < rank; ++loop) {
    if (!contiguous(loop, kSrc, src_bytes_) || loops.size(loop) < kShortRun) continue;
    loops.bring(loop, 1);
    return &Mover::move_transposed;
  }
  return &Mover::move_gathered;
}

// --------------------------------------------------------------------------------------- execution

void Mover::run(const std::byte* src, std::byte* dst) const {
  const Ends ends{src, dst};
  const ShareRules rules{std::max(src_bytes_, dst_bytes_), kParallelBytes, kParallelBytes, 2,
                         kTile};
  share_nests(std::span(nests_), apart_, rules,
              [&](const Nest& nest, const LoopNest& loops) { (this->*nest.method)(loops, ends); });
}

/// Both sides contiguous along loop 0.
void Mover::move_runs(const LoopNest& loops, const Ends& ends) const {
  const auto n = static_cast<std::size_t>(loops.rank() == 0 ? 1 : loops.size(0));
  const std::int64_t src = loops.stride_or_0(1, kSrc), dst = loops.stride_or_0(1, kDst);
  each_row(loops, 1, std::array{loops.offset(kSrc), loops.offset(kDst)},
           [&](const std::array<std::int64_t, 2>& at, std::int64_t runs) {
             move_row(run_, n, ends.src + at[kSrc], src, ends.dst + at[kDst], dst, runs);
           });
}

/// The same, where the two sides disagree on what comes next, as when rows are cut into tiles:
/// blocks of loops 1 and 2 keep the pages and prefetch streams in use few on both; going along
/// either side alone takes two to five times as long.
void Mover::move_runs_in_blocks(const LoopNest& loops, const Ends& ends) const {
  const auto n = static_cast<std::size_t>(loops.size(0));
  const std::int64_t inner = loops.size(1), outer = loops.size(2);
  const std::int64_t src1 = loops.stride(1, kSrc), dst1 = loops.stride(1, kDst);
  const std::int64_t src2 = loops.stride(2, kSrc), dst2 = loops.stride(2, kDst);
  each_place(loops, 3, [&](std::int64_t src, std::int64_t dst) {
    for (std::int64_t i = 0; i < inner; i += kInnerBlock)
      for (std::int64_t j = 0; j < outer; j += kOuterBlock)
        for (std::int64_t k = j; k < std::min(j + kOuterBlock, outer); ++k)
          move_row(run_, n, ends.src + src + i * src1 + k * src2, src1,
                   ends.dst + dst + i * dst1 + k * dst2, dst1, std::min(kInnerBlock, inner - i));
  });
}

/// Any strides.
void Mover::move_gathered(const LoopNest& loops, const Ends& ends) const {
  const std::int64_t inner = loops.size(0), outer = loops.rank() > 1 ? loops.size(1) : 1;
  each_place(loops, 2, [&](std::int64_t src, std::int64_t dst) {
    convert_pieces({ends.src + src, src_bytes_, loops.stride(0, kSrc), loops.stride_or_0(1, kSrc)},
                   {ends.dst + dst, dst_bytes_, loops.stride(0, kDst), loops.stride_or_0(1, kDst)},
                   inner, outer, run_);
  });
}

/// The source is contiguous along loop 1, the destination along loop 0: tile by tile, so that both
/// sides are touched in whole cache lines.
void Mover::move_transposed(const LoopNest& loops, const Ends& ends) const {
  const std::int64_t across = loops.size(0), along = loops.size(1);
  alignas(64) std::byte tile[kTile * kTile * 8];
  // Blocks at the edges read a little beyond what was written.
  std::memset(tile, 0, static_cast<std::size_t>(kTile * kTile * dst_bytes_));
  each_place(loops, 2, [&](std::int64_t src, std::int64_t dst) {
    for (std::int64_t i = 0; i < across; i += kTile) {
      const std::int64_t rows = std::min(kTile, across - i);
      for (std::int64_t j = 0; j < along; j += kTile) {
        const std::int64_t columns = std::min(kTile, along - j);
        const std::byte* const from = ends.src + src + j * loops.stride(1, kSrc);
        for (std::int64_t row = 0; row < rows; ++row)
          run_(from + (i + row) * loops.stride(0, kSrc), tile + row * kTile * dst_bytes_,
               static_cast<std::size_t>(columns));
        transpose_tile(dst_bytes_, tile,
                       ends.dst + dst + i * loops.stride(0, kDst) + j * loops.stride(1, kDst),
                       loops.stride(1, kDst), rows, columns);
      }
    }
  });
}

void Mover::fill(const LoopNest& loops, const Ends& ends) const {
  const std::int64_t size = loops.rank() == 0 ? 1 : loops.size(0), bytes = size * dst_bytes_;
  const std::int64_t inner = loops.rank() == 0 ? dst_bytes_ : loops.stride(0, 0);
  const std::int64_t step = loops.stride_or_0(1, 0);
  each_row(loops, 1, std::array{loops.offset(0)}, [&](const auto& at, std::int64_t count) {
    for (std::byte* to = ends.dst + at[0]; count > 0; --count, to += step) {
      if (inner != dst_bytes_) {
        copy_plane({pattern_.data(), dst_bytes_, 0, 0}, {to, dst_bytes_, inner, 0}, size, 1);
        continue;
      }
      for (std::int64_t done = 0; done < bytes; done += std::int64_t{kPattern})
        std::memcpy(to + done, pattern_.data(),
                    std::min(kPattern, static_cast<std::size_t>(bytes - done)));
    }
  });
}

}  // namespace spyre::card
