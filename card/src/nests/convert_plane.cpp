#include "nests/convert_plane.h"

#include <algorithm>
#include <cstring>

namespace spyre::card {
namespace {

constexpr std::int64_t kPieces = 512;   // elements that go through a packed buffer at once
constexpr std::int64_t kShortRows = 8;  // packed for less is as good as not packed
constexpr std::int64_t kShortCopy = 16;

template <typename Element>
void copy(PlaneSide<const std::byte> from, PlaneSide<std::byte> to, std::int64_t n0,
          std::int64_t n1) {
  // Sides are passed by value: what is written through a byte pointer could change one in memory.
  for (; n1 > 0; --n1, from.at += from.step1, to.at += to.step1)
    for (std::int64_t i = 0; i < n0; ++i)
      std::memcpy(to.at + i * to.step0, from.at + i * from.step0, sizeof(Element));
}

}  // namespace

void copy_plane(const PlaneSide<const std::byte>& from, const PlaneSide<std::byte>& to,
                std::int64_t n0, std::int64_t n1) {
  if (from.packed() && to.packed() && n0 >= kShortCopy) {
    for (std::int64_t i = 0; i < n1; ++i)
      std::memcpy(to.element(0, i), from.element(0, i), static_cast<std::size_t>(n0 * from.bytes));
    return;
  }
  switch (from.bytes) {
    case 1:
      return copy<std::uint8_t>(from, to, n0, n1);
    case 2:
      return copy<std::uint16_t>(from, to, n0, n1);
    case 4:
      return copy<std::uint32_t>(from, to, n0, n1);
    default:
      return copy<std::uint64_t>(from, to, n0, n1);
  }
}

void convert_pieces(const PlaneSide<const std::byte>& from, const PlaneSide<std::byte>& to,
                    std::int64_t n0, std::int64_t n1, ConvertRun run) {
  alignas(64) std::byte packed[kPieces * 8], converted[kPieces * 8];
  const std::int64_t columns = std::min(n0, kPieces);
  const std::int64_t rows = std::max<std::int64_t>(1, kPieces / columns);
  for (std::int64_t i1 = 0; i1 < n1; i1 += rows)
    for (std::int64_t i0 = 0; i0 < n0; i0 += columns) {
      const std::int64_t r = std::min(rows, n1 - i1), c = std::min(columns, n0 - i0);
      const auto count = static_cast<std::size_t>(r * c);
      const std::byte* source = from.element(i0, i1);
      if (!from.packed() || r > 1) {
        copy_plane({source, from.bytes, from.step0, from.step1},
                   {packed, from.bytes, from.bytes, c * from.bytes}, c, r);
        source = packed;
      }
      std::byte* const target = to.element(i0, i1);
      if (to.packed() && r == 1) {
        run(source, target, count);
        continue;
      }
      run(source, converted, count);
      copy_plane({converted, to.bytes, to.bytes, c * to.bytes},
                 {target, to.bytes, to.step0, to.step1}, c, r);
    }
}

void convert_plane(const PlaneSide<const std::byte>& from, const PlaneSide<std::byte>& to,
                   std::int64_t n0, std::int64_t n1, ConvertRun run, ConvertRows rows) {
  if (!from.packed() || !to.packed() || n0 < kShortRows)
    return convert_pieces(from, to, n0, n1, run);
  if (from.step1 == n0 * from.bytes && to.step1 == n0 * to.bytes) {
    n0 *= n1;
    n1 = 1;
  }
  if (rows && n1 > 1)
    return rows(from.at, from.step1, to.at, to.step1, static_cast<std::size_t>(n0),
                static_cast<std::size_t>(n1));
  for (std::int64_t i = 0; i < n1; ++i)
    run(from.element(0, i), to.element(0, i), static_cast<std::size_t>(n0));
}

}  // namespace spyre::card
