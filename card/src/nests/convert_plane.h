// Converting elements that lie anyhow in a plane: what several ways of going over nests end in.
#pragma once

#include <cstddef>
#include <cstdint>

#include "formats/convert.h"

namespace spyre::card {

/// One side of a conversion: n1 rows of n0 elements.
template <typename Byte>
struct PlaneSide {
  Byte* at;
  std::int64_t bytes, step0, step1;  ///< all in bytes
  Byte* element(std::int64_t i0, std::int64_t i1) const { return at + i0 * step0 + i1 * step1; }
  bool packed() const { return step0 == bytes; }
};

/// Copies elements of so many bytes: 1, 2, 4 or 8.
void copy_elements(std::int64_t bytes, const std::byte* src, std::int64_t src_stride,
                   std::byte* dst, std::int64_t dst_stride, std::int64_t n);

/// Any strides: pieces are packed, converted and unpacked. In order: where elements share a place,
/// the last one stays.
void convert_pieces(const PlaneSide<const std::byte>& from, const PlaneSide<std::byte>& to,
                    std::int64_t n0, std::int64_t n1, ConvertRun run);

/// The same, whole rows at a time where they are packed; `rows` may be null.
void convert_plane(const PlaneSide<const std::byte>& from, const PlaneSide<std::byte>& to,
                   std::int64_t n0, std::int64_t n1, ConvertRun run, ConvertRows rows);

}  // namespace spyre::card
