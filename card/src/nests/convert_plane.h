// Converting elements that lie anyhow in a plane: what several ways of going over nests end in.
#pragma once

#include <cstddef>
#include <cstdint>

#include "formats/convert.h"

namespace spyre::card {

/// One side of what is copied or converted: n1 rows of n0 elements.
template <typename Byte>
struct PlaneSide {
  Byte* at;
  std::int64_t bytes, step0, step1;  ///< all in bytes

  Byte* element(std::int64_t i0, std::int64_t i1) const { return at + i0 * step0 + i1 * step1; }
  bool packed() const { return step0 == bytes; }
  /// n0 rows of n1 elements.
  PlaneSide turned() const { return {at, bytes, step1, step0}; }
};

/// Copies elements of 1, 2, 4 or 8 bytes, the same on both sides. In order: where elements share a
/// place, the last one stays.
void copy_plane(const PlaneSide<const std::byte>& from, const PlaneSide<std::byte>& to,
                std::int64_t n0, std::int64_t n1);

/// Brings what will soon be read or written nearer. Planes are short pieces here and there, of
/// which a host's own prefetching sees only the end.
template <bool write, typename Byte>
void fetch(const PlaneSide<Byte>& side, std::int64_t n0, std::int64_t n1) {
  constexpr std::int64_t kCacheLine = 64;
  for (std::int64_t i1 = 0; i1 < n1; ++i1)
    for (std::int64_t byte = 0; byte < n0 * side.bytes; byte += kCacheLine)
      __builtin_prefetch(side.element(0, i1) + byte, write, 2);
}

/// Any strides: pieces are packed, converted and unpacked. In order, too.
void convert_pieces(const PlaneSide<const std::byte>& from, const PlaneSide<std::byte>& to,
                    std::int64_t n0, std::int64_t n1, ConvertRun run);

/// The same, whole rows at a time where they are packed; `rows` may be null.
void convert_plane(const PlaneSide<const std::byte>& from, const PlaneSide<std::byte>& to,
                   std::int64_t n0, std::int64_t n1, ConvertRun run, ConvertRows rows);

}  // namespace spyre::card
