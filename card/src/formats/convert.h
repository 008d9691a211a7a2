// Conversion of packed elements between formats, at the speed of memory where it matters.
//
// formats.h defines what every conversion means; the functions here give the same bits.
#pragma once

#include <cstddef>

#include "formats/formats.h"
#include "spyre/card.h"

namespace spyre::card {

/// Converts n packed elements. `src` and `dst` need no alignment and must not overlap.
using ConvertRun = void (*)(const void* src, void* dst, std::size_t n);

/// The function for a pair of formats. Throws Error(invalid_argument) if one of them is unusable.
/// Equal formats without narrowing are copied bit by bit.
ConvertRun converter(DataFormat src, DataFormat dst, Narrow narrow = Narrow::none);

/// Converts `rows` times n packed elements; pitches are bytes from row to row.
using ConvertRows = void (*)(const void* src, std::ptrdiff_t src_pitch, void* dst,
                             std::ptrdiff_t dst_pitch, std::size_t n, std::size_t rows);

/// The same conversion as converter(src, dst) for many short runs at once; null if there is nothing
/// better than one after the other.
ConvertRows row_converter(DataFormat src, DataFormat dst);

/// converter(src, dst, narrow)(from, to, count).
void convert(DataFormat src, const void* from, DataFormat dst, void* to, std::size_t count,
             Narrow narrow = Narrow::none);

/// Vector instructions that the kernels use.
enum class SimdLevel { baseline, avx2, avx512 };

/// The best level of this machine, or the lower one that SPYRE_CARD_SIMD asks for. Read once.
SimdLevel simd();
/// Its name: "baseline", "avx2" or "avx512".
const char* simd_level();
/// Whether this build and this machine have `level`, whatever the environment says.
bool simd_available(SimdLevel level);

/// row_converter() and converter() for a given level and reading of DLFloat16's special values: for
/// tests.
ConvertRows row_converter_at(SimdLevel level, Dl16Specials specials, DataFormat src,
                             DataFormat dst);
ConvertRun converter_at(SimdLevel level, Dl16Specials specials, DataFormat src, DataFormat dst,
                        Narrow narrow);

}  // namespace spyre::card
