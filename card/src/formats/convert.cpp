#include "formats/convert.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <array>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include "formats/convert_kernels.h"
#include "host/environment.h"

namespace spyre::card {
namespace {

// ------------------------------------------------------------------------------------ generic path
//
// Every pair that has no fast kernel: decode a block to values, narrow it, encode it. The loops of
// the two sides exist once for each format rather than once for each pair.

constexpr std::size_t kBlock = 256;  // elements; both buffers stay in the first-level cache

template <DataFormat S, Dl16Specials specials>
[[gnu::noinline]] void decode_block(const std::byte* src, ValueOf<S>* values, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) {
    BitsOf<S> bits;
    std::memcpy(&bits, src + i * sizeof(bits), sizeof(bits));
    values[i] = decode<S>(bits, specials);
  }
}

template <DataFormat D, Dl16Specials specials, typename Value>
[[gnu::noinline]] void encode_block(const Value* values, std::byte* dst, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) {
    const BitsOf<D> bits = encode<D>(values[i], specials);
    std::memcpy(dst + i * sizeof(bits), &bits, sizeof(bits));
  }
}

template <Narrow narrow, typename Value>
[[gnu::noinline]] void narrow_block(const Value* values, std::int64_t* narrowed, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) {
    if constexpr (narrow == Narrow::boolean) {
      narrowed[i] = values[i] != 0;
    } else if constexpr (std::is_same_v<Value, double>) {
      narrowed[i] = truncate(values[i]) & 0xFF;
    } else {
      narrowed[i] = static_cast<std::int64_t>(values[i] & 0xFF);
    }
  }
}

/// 65536 is where float16's largest value rounds to in DLFloat16: it comes back as itself.
[[gnu::noinline]] void restore_largest_fp16(double* values, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) {
    if (values[i] == 65536.0) values[i] = 65504.0;
    if (values[i] == -65536.0) values[i] = -65504.0;
  }
}

template <DataFormat S, DataFormat D, Narrow narrow, Dl16Specials specials>
void convert_generic(const void* src, void* dst, std::size_t n) {
  const std::byte* from = static_cast<const std::byte*>(src);
  std::byte* to = static_cast<std::byte*>(dst);
  ValueOf<S> values[kBlock];
  for (std::size_t done = 0; done < n; done += kBlock) {
    const std::size_t count = n - done < kBlock ? n - done : kBlock;
    decode_block<S, specials>(from + done * sizeof(BitsOf<S>), values, count);
    std::byte* target = to + done * sizeof(BitsOf<D>);
    if constexpr (narrow == Narrow::none) {
      if constexpr (S == DataFormat::SEN169_FP16 && D == DataFormat::IEEE_FP16)
        restore_largest_fp16(values, count);
      encode_block<D, specials>(values, target, count);
    } else {
      std::int64_t narrowed[kBlock];
      narrow_block<narrow>(values, narrowed, count);
      encode_block<D, specials>(narrowed, target, count);
    }
  }
}

template <std::size_t bytes>
void copy(const void* src, void* dst, std::size_t n) {
  std::memcpy(dst, src, n * bytes);
}

// ------------------------------------------------------------------------------------------ tables

constexpr int kFormatCount = std::size(kFormats);

constexpr int index_of(DataFormat format) {
  for (int i = 0; i < kFormatCount; ++i)
    if (kFormats[i].format == format) return i;
  return index_of(DataFormat::INVALID);
}

/// ConvertRun for each source, destination and narrowing; null where a format is unusable.
struct Table {
  ConvertRun run[kFormatCount][kFormatCount][3] = {};
};

template <Dl16Specials specials, int s, int d>
constexpr void add_pair(Table& table) {
  constexpr DataFormat S = kFormats[s].format, D = kFormats[d].format;
  if constexpr (usable(S) && usable(D)) {
    // Pairs that do not involve DL16 need no second copy.
    constexpr bool dl16 = S == DataFormat::SEN169_FP16 || D == DataFormat::SEN169_FP16;
    constexpr Dl16Specials mode = dl16 ? specials : Dl16Specials::ieee;
    auto& run = table.run[s][d];
    if constexpr (S == D) {
      run[0] = copy<sizeof(BitsOf<S>)>;
    } else {
      run[0] = convert_generic<S, D, Narrow::none, mode>;
    }
    run[1] = convert_generic<S, D, Narrow::boolean, mode>;
    run[2] = convert_generic<S, D, Narrow::uint8, mode>;
  }
}

template <Dl16Specials specials, int s, int... d>
constexpr void add_row(Table& table, std::integer_sequence<int, d...>) {
  (add_pair<specials, s, d>(table), ...);
}

template <Dl16Specials specials>
constexpr Table generic_table() {
  Table table;
  constexpr auto all = std::make_integer_sequence<int, kFormatCount>();
  [&]<int... s>(std::integer_sequence<int, s...>) { (add_row<specials, s>(table, all), ...); }(all);
  return table;
}

constexpr Table kGenericIeee = generic_table<Dl16Specials::ieee>();
constexpr Table kGenericMerged = generic_table<Dl16Specials::merged>();

/// Whether narrowing changes nothing, given what the two formats can hold.
constexpr bool narrowing_is_implied(DataFormat src, DataFormat dst, Narrow narrow) {
  if (src == DataFormat::BOOL) return true;
  if (narrow == Narrow::boolean) return dst == DataFormat::BOOL;
  const bool integers = format_info(src).kind != FormatKind::floating &&
                        format_info(dst).kind != FormatKind::floating;
  return src == DataFormat::HOST_UINT8 || (integers && dst == DataFormat::HOST_UINT8);
}

const FastKernel* fast_kernels_at(SimdLevel level) {
#if defined(__x86_64__)
  if (level == SimdLevel::avx2) return avx2::fast_kernels();
  if (level == SimdLevel::avx512) return avx512::fast_kernels();
#endif
  (void)level;
  return baseline::fast_kernels();
}

Table build_table(SimdLevel level, Dl16Specials specials) {
  const bool merged = specials == Dl16Specials::merged;
  Table table = merged ? kGenericMerged : kGenericIeee;
  for (const FastKernel* kernels = fast_kernels_at(level); kernels->ieee; ++kernels) {
    auto& run = table.run[index_of(kernels->src)][index_of(kernels->dst)];
    run[0] = merged ? kernels->merged : kernels->ieee;
  }
  for (const FormatInfo& src : kFormats) {
    for (const FormatInfo& dst : kFormats) {
      auto& run = table.run[index_of(src.format)][index_of(dst.format)];
      for (Narrow narrow : {Narrow::boolean, Narrow::uint8}) {
        // A byte of a BOOL may be neither 0 nor 1: copying it would not narrow it.
        if (src.format != dst.format && narrowing_is_implied(src.format, dst.format, narrow))
          run[static_cast<int>(narrow)] = run[0];
      }
    }
  }
  return table;
}

const Table& table_of(SimdLevel level, Dl16Specials specials) {
  static const std::array<std::array<Table, 2>, 3> tables = [] {
    std::array<std::array<Table, 2>, 3> all;
    for (SimdLevel each : {SimdLevel::baseline, SimdLevel::avx2, SimdLevel::avx512})
      for (Dl16Specials mode : {Dl16Specials::ieee, Dl16Specials::merged})
        all[static_cast<int>(each)][static_cast<int>(mode)] = build_table(each, mode);
    return all;
  }();
  return tables[static_cast<int>(level)][static_cast<int>(specials)];
}

ConvertRun find(const Table& table, DataFormat src, DataFormat dst, Narrow narrow) {
  const int kind = static_cast<int>(narrow);
  const ConvertRun run = kind < 3 ? table.run[index_of(src)][index_of(dst)][kind] : nullptr;
  if (run) return run;
  throw Error(ErrorCode::invalid_argument,
              std::string("no conversion from format ") + format_info(src).name + " to " +
                  format_info(dst).name + " with narrowing " + std::to_string(kind) +
                  ": a format without storage width, or an unknown narrowing");
}

#if defined(__x86_64__)
/// Asked of the processor: clang 14 has no name for it in __builtin_cpu_supports().
bool has_f16c() {
  unsigned a, b, c, d;
  return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C) != 0;
}
#endif

}  // namespace

Dl16Specials dl16_specials() {
  static const bool merged = choice(knobs::kDl16Specials) == 1;
  return merged ? Dl16Specials::merged : Dl16Specials::ieee;
}

bool simd_available(SimdLevel level) {
#if defined(__x86_64__)
  const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                        has_f16c() && __builtin_cpu_supports("bmi2");
  if (level == SimdLevel::avx2) return has_avx2;
  if (level == SimdLevel::avx512)
    return has_avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
#endif
  return level == SimdLevel::baseline;
}

SimdLevel simd() {
  static const SimdLevel level = [] {
    auto wanted = static_cast<SimdLevel>(choice(knobs::kCardSimd));
    // Asked for more than there is: the best there is.
    while (!simd_available(wanted)) wanted = static_cast<SimdLevel>(static_cast<int>(wanted) - 1);
    return wanted;
  }();
  return level;
}

const char* simd_level() {
  static constexpr const char* names[] = {"baseline", "avx2", "avx512"};
  return names[static_cast<int>(simd())];
}

ConvertRun converter(DataFormat src, DataFormat dst, Narrow narrow) {
  static const Table& table = table_of(simd(), dl16_specials());
  return find(table, src, dst, narrow);
}

ConvertRows row_converter(DataFormat src, DataFormat dst) {
  return row_converter_at(simd(), dl16_specials(), src, dst);
}

ConvertRows row_converter_at(SimdLevel level, Dl16Specials specials, DataFormat src,
                             DataFormat dst) {
  for (const FastKernel* kernel = fast_kernels_at(level); kernel->ieee; ++kernel)
    if (kernel->src == src && kernel->dst == dst)
      return specials == Dl16Specials::merged ? kernel->merged_rows : kernel->ieee_rows;
  return nullptr;
}

ConvertRun converter_at(SimdLevel level, Dl16Specials specials, DataFormat src, DataFormat dst,
                        Narrow narrow) {
  return find(table_of(level, specials), src, dst, narrow);
}

void convert(DataFormat src, const void* from, DataFormat dst, void* to, std::size_t count,
             Narrow narrow) {
  converter(src, dst, narrow)(from, to, count);
}

}  // namespace spyre::card
