// Lines that lie in memory so simply that finding one is a few additions: each is made of sticks
// that follow each other at one distance, or is one stick.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "formats/convert.h"

namespace spyre::card {

/// How elements get from one format to another.
struct Converters {
  ConvertRun run = nullptr;
  ConvertRows rows = nullptr;  ///< null: one run after the other

  Converters() = default;
  Converters(DataFormat src, DataFormat dst, Narrow narrow = Narrow::none)
      : run(converter(src, dst, narrow)),
        rows(narrow == Narrow::none ? row_converter(src, dst) : nullptr) {}
};

/// Whole or partial lines one after the other in a packed block of floats.
struct PackedLines {
  std::int64_t line, lines, position, length;
};

class PlainLines {
 public:
  /// A loop over lines.
  struct Dim {
    std::int64_t size, step;  ///< bytes
  };
  struct Sticks {
    std::int64_t length, step;  ///< elements; bytes
    std::int64_t count;         ///< of a line
  };

  PlainLines(std::int64_t element_bytes, std::int64_t offset, const Sticks& sticks,
             std::vector<Dim> dims)
      : bytes_(element_bytes), offset_(offset), sticks_(sticks), dims_(std::move(dims)) {}

  /// Lines whose sticks are so many that they are not all near for long: best is to have the same
  /// stick of several lines at once, else all sticks of one line after the other.
  bool scattered() const { return sticks_.count > 16; }

  /// Whether lines of so many elements follow each other without a gap.
  bool packed(std::int64_t length) const {
    return sticks_.count == 1 &&
           (dims_.empty() || (dims_.size() == 1 && dims_[0].step == length * bytes_));
  }
  std::int64_t offset() const { return offset_; }

  /// Bytes from one stretch of `elements` to the next, where a line that begins with one is made of
  /// such, only the last of which may be shorter.
  std::optional<std::int64_t> step_of(std::int64_t elements) const {
    if (sticks_.count == 1) return elements * bytes_;
    return sticks_.length == elements ? std::optional(sticks_.step) : std::nullopt;
  }
  /// Lines at one distance.
  struct Strip {
    std::int64_t offset, lines, line_step;  ///< bytes
  };
  /// The one from this line on, of at most so many.
  Strip strip(std::int64_t line, std::int64_t lines) const;
  /// Where the position is in its line.
  std::int64_t offset_of(std::int64_t position) const {
    return position / sticks_.length * sticks_.step + position % sticks_.length * bytes_;
  }

  void gather(const std::byte* tensor, const PackedLines& lines, const Converters& convert,
              float* block) const;
  void scatter(const float* block, const PackedLines& lines, const Converters& convert,
               std::byte* tensor) const;

 private:
  template <bool write, typename TensorByte, typename BlockByte, class Convert>
  void each_piece(TensorByte* tensor, BlockByte* block, const PackedLines& lines,
                  const Convert& convert) const;

  std::int64_t bytes_, offset_;
  Sticks sticks_;
  std::vector<Dim> dims_;  // of lines, innermost first
};

}  // namespace spyre::card
