// The DMA engine's data path: loop nests that read, convert and write elements.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "spyre/card.h"

namespace spyre::card {

/// Throws Error(invalid_argument) unless the descriptor is well formed and every element it visits
/// lies within `src_bytes` and `dst_bytes`. move() may be called only with what passed this check.
void check_bounds(const DataConversion& conversion, std::uint64_t src_bytes,
                  std::uint64_t dst_bytes);

/// Elements that move() reads and writes. The descriptor has passed check_bounds().
std::uint64_t element_count(const DataConversion& conversion);

/// Run the descriptor. `src` and `dst` do not overlap. The result does not depend on the number of
/// threads; where several elements of one nest go to one place, the last in loop order stays.
void move(const DataConversion& conversion, const std::byte* src, std::byte* dst);

/// The same for fill(): only the destination side of the nests counts.
void check_fill_bounds(std::span<const StrideInfo> loops, DataFormat format,
                       std::uint64_t dst_bytes);

/// Write the element with the given bits (its low end) to every place the nests visit.
/// stride_src and offset_src are not looked at and may be empty.
void fill(std::span<const StrideInfo> loops, DataFormat format, std::uint64_t bits, std::byte* dst);

}  // namespace spyre::card
