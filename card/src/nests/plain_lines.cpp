#include "nests/plain_lines.h"

#include <algorithm>

namespace spyre::card {
namespace {

constexpr std::int64_t kFloat = sizeof(float);
constexpr std::int64_t kCacheLine = 64;
constexpr std::int64_t kFetched = 4096;  // bytes fetched ahead

/// Where rows of a rectangle begin.
template <typename Byte>
struct Rows {
  Byte* at;
  std::int64_t step;  // bytes
};
template <typename Byte>
Rows(Byte*, std::int64_t) -> Rows<Byte>;

/// n elements of every row, row after row if there is no better way.
void convert_rows(const Converters& convert, const Rows<const std::byte>& from,
                  const Rows<std::byte>& to, std::int64_t n, std::int64_t rows) {
  const auto count = static_cast<std::size_t>(n);
  if (convert.rows && rows > 1)
    return convert.rows(from.at, from.step, to.at, to.step, count, static_cast<std::size_t>(rows));
  for (std::int64_t i = 0; i < rows; ++i)
    convert.run(from.at + i * from.step, to.at + i * to.step, count);
}

/// Pieces here and there, of which a host's own prefetching sees only the end.
template <bool write>
void fetch(const Rows<const std::byte>& rows, std::int64_t bytes, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i)
    for (std::int64_t byte = 0; byte < bytes; byte += kCacheLine)
      __builtin_prefetch(rows.at + i * rows.step + byte, write, 2);
}

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

/// convert(rows in the tensor, rows in the block, elements of a row, rows) for all of the lines.
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
      convert(Rows{tensor_at(lines.position + done), step}, Rows{block_at(), pitch}, elements,
              rows);
      done += elements;
    };
    if (lines.position % n > 0) part_of_stick(std::min(n - lines.position % n, lines.length));
    const std::int64_t whole = (lines.length - done) / n;
    if (scattered()) {
      const std::int64_t ahead = kFetched / (stick_bytes * count) + 1;
      for (std::int64_t stick = 0; stick < whole; ++stick) {
        if (stick + ahead < whole)
          fetch<write>({tensor_at(lines.position + done + ahead * n), line_step}, stick_bytes,
                       count);
        part_of_stick(n);
      }
    } else if (whole > 0) {
      for (std::int64_t line = 0; line < count; ++line) {
        auto* const at = tensor_at(lines.position + done) + line * line_step;
        convert(Rows{at, sticks_.step}, Rows{block_at() + line * pitch, n * kFloat}, n, whole);
      }
      done += whole * n;
    }
    part_of_stick(lines.length - done);
    i += count;
  }
}

void PlainLines::gather(const std::byte* tensor, const PackedLines& lines,
                        const Converters& convert, float* block) const {
  each_piece<false>(
      tensor, reinterpret_cast<std::byte*>(block), lines,
      [&](const Rows<const std::byte>& from, const Rows<std::byte>& to, std::int64_t n,
          std::int64_t rows) { convert_rows(convert, from, to, n, rows); });
}

void PlainLines::scatter(const float* block, const PackedLines& lines, const Converters& convert,
                         std::byte* tensor) const {
  each_piece<true>(tensor, reinterpret_cast<const std::byte*>(block), lines,
                   [&](const Rows<std::byte>& to, const Rows<const std::byte>& from, std::int64_t n,
                       std::int64_t rows) { convert_rows(convert, from, to, n, rows); });
}

}  // namespace spyre::card
