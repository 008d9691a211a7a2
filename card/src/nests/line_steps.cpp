// What steps along lines have in common: reading a shape, sizes of blocks, their arithmetic.
#include <algorithm>
#include <string>

#include "host/thread_pool.h"
#include "nests/lines.h"

namespace spyre::card {

LineShape read_line_shape(PayloadReader& reader, const char* count_field, const char* length_field,
                          const char* line_name, const char* position_name) {
  const std::int64_t lines = reader.within(count_field, 0, kMaxElements);
  const std::int64_t length = reader.within(length_field, 0, kMaxElements);
  std::int64_t elements;
  if (__builtin_mul_overflow(lines, length, &elements) || elements > kMaxElements)
    reader.refuse(length_field, std::to_string(lines) + " times " + std::to_string(length) +
                                    " is more than a card has bytes");
  return {lines, length, line_name, position_name};
}

std::int64_t block_elements(std::int64_t all, std::int64_t most) {
  constexpr std::int64_t kWorthwhile = 8192;  // less is not worth waking a thread for
  const std::int64_t share = all / (2 * ThreadPool::shared().size());
  return std::clamp(share, std::min(kWorthwhile, most), most);
}

const LineKernels& line_kernels_at(SimdLevel level) {
#if defined(__x86_64__)
  if (level == SimdLevel::avx512) return avx512::line_kernels();
  if (level == SimdLevel::avx2) return avx2::line_kernels();
#endif
  (void)level;
  return baseline::line_kernels();
}

const LineKernels& line_kernels() {
  static const LineKernels& kernels = line_kernels_at(simd());
  return kernels;
}

}  // namespace spyre::card
