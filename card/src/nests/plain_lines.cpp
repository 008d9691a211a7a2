#include "nests/plain_lines.h"

#include <algorithm>

#include "nests/convert_plane.h"

namespace spyre::card {
namespace {

constexpr std::int64_t kFloat = sizeof(float);
constexpr std::int64_t kFetched = 4096;  // bytes fetched ahead

}  // namespace

PlainLines::Strip PlainLines::strip(std::int64_t line, std::int64_t lines) const {
  Strip strip{offset_, lines, dims_.empty() ? 0 : dims_[0].step};
  for (std::size_t d = 0; d < dims_.size(); ++d) {
    const std::int64_t at = line % dims_[d].size;
    line /= dims_[d].size;
    strip.offset += at * dims_[d].step;
    if (d == 0) strip.lines = std::min(lines, dims_[d].size - at);
  }
  return strip;
}

/// convert(plane in the tensor, plane in the block, elements of a row, rows) for all of the lines.
template <bool write, typename TensorByte, typename BlockByte, class Convert>
void PlainLines::each_piece(TensorByte* tensor, BlockByte* block, const PackedLines& lines,
                            const Convert& convert) const {
  const std::int64_t pitch = lines.length * kFloat, n = sticks_.length, stick_bytes = n * bytes_;
  for (std::int64_t i = 0; i < lines.lines;) {
    const auto [offset, count, line_step] = strip(lines.line + i, lines.lines - i);
    std::int64_t done = 0;
    const auto tensor_at = [&, from = offset](std::int64_t position) {
      return tensor + from + offset_of(position);
    };
    const auto block_at = [&] { return block + i * pitch + done * kFloat; };
    const auto part_of_stick = [&, rows = count, step = line_step](std::int64_t elements) {
      if (elements <= 0) return;
      convert(PlaneSide<TensorByte>{tensor_at(lines.position + done), bytes_, bytes_, step},
              PlaneSide<BlockByte>{block_at(), kFloat, kFloat, pitch}, elements, rows);
      done += elements;
    };
    if (lines.position % n > 0) part_of_stick(std::min(n - lines.position % n, lines.length));
    const std::int64_t whole = (lines.length - done) / n;
    if (scattered()) {
      const std::int64_t ahead = kFetched / (stick_bytes * count) + 1;
      for (std::int64_t stick = 0; stick < whole; ++stick) {
        if (stick + ahead < whole)
          fetch<write>(PlaneSide<TensorByte>{tensor_at(lines.position + done + ahead * n), bytes_,
                                             bytes_, line_step},
                       n, count);
        part_of_stick(n);
      }
    } else if (whole > 0) {
      for (std::int64_t line = 0; line < count; ++line) {
        auto* const at = tensor_at(lines.position + done) + line * line_step;
        convert(PlaneSide<TensorByte>{at, bytes_, bytes_, sticks_.step},
                PlaneSide<BlockByte>{block_at() + line * pitch, kFloat, kFloat, n * kFloat}, n,
                whole);
      }
      done += whole * n;
    }
    part_of_stick(lines.length - done);
    i += count;
  }
}

void PlainLines::gather(const std::byte* tensor, const PackedLines& lines,
                        const Converters& convert, float* block) const {
  each_piece<false>(tensor, reinterpret_cast<std::byte*>(block), lines,
                    [&](const auto& from, const auto& to, std::int64_t n, std::int64_t rows) {
                      convert_plane(from, to, n, rows, convert.run, convert.rows);
                    });
}

void PlainLines::scatter(const float* block, const PackedLines& lines, const Converters& convert,
                         std::byte* tensor) const {
  each_piece<true>(tensor, reinterpret_cast<const std::byte*>(block), lines,
                   [&](const auto& to, const auto& from, std::int64_t n, std::int64_t rows) {
                     convert_plane(from, to, n, rows, convert.run, convert.rows);
                   });
}

}  // namespace spyre::card
