// Lines that lie in memory so simply that finding one is a few additions: each is made of sticks
// that follow each other at one distance, or is one stick.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "convert.h"

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

  void gather(const std::byte* tensor, const PackedLines& lines, const Converters& convert,
              float* block) const;
  void scatter(const float* block, const PackedLines& lines, const Converters& convert,
               std::byte* tensor) const;

 private:
  template <class Each>
  void each_strip(const PackedLines& lines, const Each& each) const;
  template <bool write, typename TensorByte, typename BlockByte, class Convert>
  void each_piece(TensorByte* tensor, BlockByte* block, const PackedLines& lines,
                  const Convert& convert) const;

  std::int64_t bytes_, offset_;
  Sticks sticks_;
  std::vector<Dim> dims_;  // of lines, innermost first
};

}  // namespace spyre::card
