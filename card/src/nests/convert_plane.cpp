#include "nests/convert_plane.h"

#include <algorithm>
#include <cstring>

namespace spyre::card {
namespace {

constexpr std::int64_t kPieces = 512;   // elements that go through a packed buffer at once
constexpr std::int64_t kShortRows = 8;  // packed for less is as good as not packed

template <typename Element>
void copy_strided(const std::byte* src, std::int64_t src_stride, std::byte* dst,
                  std::int64_t dst_stride, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i)
    std::memcpy(dst + i * dst_stride, src + i * src_stride, sizeof(Element));
}

}  // namespace

void copy_elements(std::int64_t bytes, const std::byte* src, std::int64_t src_stride,
                   std::byte* dst, std::int64_t dst_stride, std::int64_t n) {
  if (src_stride == bytes && dst_stride == bytes) {
    std::memcpy(dst, src, static_cast<std::size_t>(n * bytes));
    return;
  }
  switch (bytes) {
    case 1:
      return copy_strided<std::uint8_t>(src, src_stride, dst, dst_stride, n);
    case 2:
      return copy_strided<std::uint16_t>(src, src_stride, dst, dst_stride, n);
    case 4:
      return copy_strided<std::uint32_t>(src, src_stride, dst, dst_stride, n);
    default:
      return copy_strided<std::uint64_t>(src, src_stride, dst, dst_stride, n);
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
      const std::byte* source = packed;
      if (from.packed() && r == 1) {
        source = from.element(i0, i1);
      } else {
        for (std::int64_t i = 0; i < r; ++i)
          copy_elements(from.bytes, from.element(i0, i1 + i), from.step0,
                        packed + i * c * from.bytes, from.bytes, c);
      }
      const auto count = static_cast<std::size_t>(r * c);
      if (to.packed() && r == 1) {
        run(source, to.element(i0, i1), count);
        continue;
      }
      run(source, converted, count);
      for (std::int64_t i = 0; i < r; ++i)
        copy_elements(to.bytes, converted + i * c * to.bytes, to.bytes, to.element(i0, i1 + i),
                      to.step0, c);
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
