// Order within one line: sorting, the k smallest, the middle one, the most frequent one.
//
// An element becomes an item: a key, whose unsigned order is the order wanted, and its position.
// No two items of a line are equal, so every way to sort them is stable and gives the same result.
#pragma once

#include <cstddef>
#include <cstdint>

namespace spyre::card {

/// What is wanted of a line. Positions of the elements are the answer, in order.
struct OrderWanted {
  enum class What {
    first,      ///< the first `count`, sorted
    at,         ///< element number `count` of the sorted line
    median,     ///< the lower middle one; the first NaN if there is one
    nanmedian,  ///< the lower middle one of what is not NaN
    mode,       ///< the most frequent, the smallest of those; its last position
  };
  What what = What::first;
  std::int64_t count = 0;   ///< of first and at
  bool descending = false;  ///< of first
};

/// Bytes of scratch memory for a line of this length.
std::int64_t order_scratch_bytes(std::int64_t length);

/// Writes the positions wanted. T is float or int64; a NaN is the largest, -0 equals 0.
template <typename T>
void order_line(const T* line, std::int64_t length, const OrderWanted& wanted, std::byte* scratch,
                std::int64_t* positions);

}  // namespace spyre::card
