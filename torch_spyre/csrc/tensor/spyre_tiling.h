// From storage offsets to device memory: turns the strided loops of a view into loops over a tiled
// layout, which is what a data-conversion descriptor holds.
//
// A layout places storage offset o by splitting it into digits: with the layout's strides in
// falling order, digit = o / stride, o = o % stride, and so on; the digits are device coordinates.
// A view's loops stay linear in device memory as long as no digit carries into the next one, so
// loops are cut where a carry happens: at stick and row boundaries. Regular patterns are cut once
// and repeated by an outer loop, so that a whole matrix needs one nest, or a few if it has partial
// sticks.
#pragma once

#include <cstdint>
#include <vector>

#include <c10/util/ArrayRef.h>
#include <c10/util/SmallVector.h>

#include "spyre/card.h"
#include "tensor/spyre_tensor_layout.h"

namespace spyre {

/// One loop: `stride` walks the tiled side, `other` the other side of the transfer.
struct LoopDim {
  std::int64_t size, stride, other;
};

struct Nest {
  c10::SmallVector<LoopDim, 6> dims;  // outermost first
  std::int64_t offset = 0, other_offset = 0;

  /// Loops over a view on both sides. Dimensions of size 1 are left out.
  static Nest over(c10::IntArrayRef size, c10::IntArrayRef stride, std::int64_t offset,
                   c10::IntArrayRef other_stride, std::int64_t other_offset = 0);
  /// The same loops seen from the other side.
  Nest swapped() const;
};

/// Whether the digits of an offset are those of falling strides, with no exception.
bool follows_strides(const SpyreTensorLayout& layout);

class Tiling {
 public:
  explicit Tiling(const SpyreTensorLayout& layout);

  /// Appends nests in which `stride` and `offset` count elements of device memory. False (and no
  /// promise about `out`) if the layout has no place for an offset that the nest visits.
  bool place(const Nest& nest, std::vector<Nest>& out) const;

  /// Whether every element of such a view has a place.
  bool reaches(c10::IntArrayRef size, c10::IntArrayRef stride, std::int64_t offset) const;

  /// Loops that repeat a write over the layout's replicated dimensions.
  const c10::SmallVector<LoopDim, 2>& replicas() const { return replicas_; }

  struct Digit {
    std::int64_t stride, size, device_stride;
    std::int64_t place;  ///< in the falling order of digits
  };
  /// In the order in which an offset is split.
  const c10::SmallVector<Digit, 6>& digits() const { return digits_; }

 private:
  struct Dim {
    std::int64_t size, device, stride, other;  // `stride` is what the digits so far left over
  };
  struct State {
    c10::SmallVector<Dim, 6> dims;
    std::int64_t offset = 0, device_offset = 0, other_offset = 0;
  };

  bool split(State state, std::size_t digit, std::vector<Nest>& out) const;
  static State restricted(const State& state, std::size_t dim, std::int64_t first,
                          std::int64_t count);

  const bool empty_;
  c10::SmallVector<Digit, 6> digits_;
  c10::SmallVector<LoopDim, 2> replicas_;
};

/// Descriptor loops, in the order of device memory, from nests whose tiled side is the destination
/// (`stride` = dst) or the source.
std::vector<card::StrideInfo> descriptor_loops(const std::vector<Nest>& nests,
                                               bool tiled_is_destination);

}  // namespace spyre
