// Tensors seen as lines: what reductions, row operations, scans and sorts work along.
//
// A program says with loop nests, for every element of a tensor, to which line it belongs and which
// position it has there. So any layout and any view is just another set of nests, and a step works
// on packed blocks of lines that are gathered from the tensor and scattered back.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "formats/convert.h"
#include "host/scratch.h"
#include "kernels/reduce_kernels.h"
#include "nests/plain_lines.h"
#include "nests/step_payload.h"
#include "nests/traffic.h"

namespace spyre::card {

/// How many lines a step has and how long they are, and what the program format calls both.
struct LineShape {
  std::int64_t lines, length;
  const char *line_name, *position_name;
};

/// A rectangle of (line, position), and where its elements lie in a packed block.
struct LineWindow {
  std::int64_t line, lines, position, length;
  std::int64_t line_pitch, position_pitch;  ///< in elements of the block; one of the two is 1
};

class LineView {
 public:
  /// Reads nests over (tensor, line, position). Refuses what lies outside `shape`.
  LineView(PayloadReader& reader, const char* tensor, DataFormat format, const LineShape& shape);

  /// Refuses nests that visit more elements than there are places, or hardly any of them: a line
  /// of a billion positions needs room for a billion, however few are visited.
  void check_visits(const PayloadReader& reader, const char* tensor, const LineShape& shape) const;

  DataFormat format() const { return format_; }
  std::int64_t visits() const { return visits_; }
  ByteRange range() const { return range_; }
  Traffic read() const { return {range_.touched, 0}; }
  Traffic written() const { return {0, range_.touched}; }

  /// Every (line, position) of the shape is visited once. False also if that is hard to see.
  bool complete() const { return complete_; }
  /// No element of the tensor is visited twice. False also if that is hard to see.
  bool distinct() const { return distinct_; }
  /// Neighbours in memory are neighbours in a line; else they belong to different lines.
  bool runs_along() const { return runs_along_; }
  /// All elements are of line 0, or the tensor has no element.
  bool one_line() const { return one_line_; }
  /// Elements that follow each other in memory, of one line or of one position; at least 1.
  std::int64_t run_length() const {
    return nests_.empty() || nests_[0].loops.rank() == 0 ? 1 : nests_[0].loops.size(0);
  }
  /// The same lines, if they lie in memory as plainly as that.
  const std::optional<PlainLines>& plain() const { return plain_; }
  /// The same elements have the same line and position.
  bool same_places(const LineView& other) const;

  /// Elements of the window, converted, into the block; T is float or int64. What the nests do not
  /// visit keeps its value in the block.
  template <typename T>
  void gather(const std::byte* tensor, const LineWindow& window, T* block) const;
  /// The way back. Parts of the tensor that the nests do not visit stay.
  template <typename T>
  void scatter(const T* block, const LineWindow& window, std::byte* tensor,
               Narrow narrow = Narrow::none) const;

 private:
  /// Lowest and highest sum of what some loops add.
  struct Span {
    std::int64_t low = 0, high = 0;
  };
  struct Nest {
    LoopNest loops;                      // over (tensor in bytes, line, position)
    std::vector<std::size_t> by_offset;  // all but the first, smallest steps in memory first
    std::vector<Span> lines, positions;  // [k]: of the k innermost loops

    explicit Nest(LoopNest shortest);
  };
  template <typename Plane>
  class Walk;

  void shorten(LoopNest& nest) const;
  std::optional<PlainLines> plain_lines() const;

  DataFormat format_;
  std::int64_t bytes_;  // of an element
  std::vector<Nest> nests_;
  std::int64_t visits_ = 0;
  ByteRange range_;
  bool complete_ = false, distinct_ = false, runs_along_ = true, one_line_ = true;
  std::optional<PlainLines> plain_;
};

/// Whether what two views touch, of tensors that begin there, overlaps.
inline bool overlap(const std::byte* a_data, const LineView& a, const std::byte* b_data,
                    const LineView& b) {
  return overlap(a_data, a.range(), b_data, b.range());
}

/// Whether a step that reads `from` and writes `to`, block by block, could read what it has
/// written. Not if both see the same elements at the same places: a block is read before it is
/// written.
inline bool disturbs(const std::byte* from_data, const LineView& from, const std::byte* to_data,
                     const LineView& to) {
  return overlap(from_data, from, to_data, to) &&
         !(from_data == to_data && from.same_places(to) && to.distinct());
}

/// The arithmetic for this machine, and for a given level: for tests.
const LineKernels& line_kernels();
const LineKernels& line_kernels_at(SimdLevel level);

/// Reads how many lines there are and how long they are.
LineShape read_line_shape(PayloadReader& reader, const char* count_field, const char* length_field,
                          const char* line_name, const char* position_name);

/// How many elements to work on at once: at most `most`, and few enough that all threads have some.
std::int64_t block_elements(std::int64_t all, std::int64_t most);

}  // namespace spyre::card
