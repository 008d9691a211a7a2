// The DMA data path against a loop that moves one element at a time; bounds; the thread pool.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <numeric>
#include <random>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

#include "check.h"
#include "formats/convert.h"
#include "host/thread_pool.h"
#include "nests/move.h"

namespace spyre::card {
namespace {

using Numbers = std::vector<std::int64_t>;
using Bytes = std::vector<std::byte>;

/// What the descriptor says, in the order it says it.
void move_naively(const DataConversion& conversion, const std::byte* src, std::byte* dst) {
  const ConvertRun run = converter(conversion.src, conversion.dst, conversion.narrow);
  for (const StrideInfo& loops : conversion.loops) {
    std::int64_t count = 1;
    for (std::int64_t size : loops.size) count *= size;
    for (std::int64_t i = 0; i < count; ++i) {
      std::int64_t rest = i, from = loops.offset_src, to = loops.offset_dst;
      for (std::size_t k = 0; k < loops.size.size(); ++k) {
        from += rest % loops.size[k] * loops.stride_src[k];
        to += rest % loops.size[k] * loops.stride_dst[k];
        rest /= loops.size[k];
      }
      run(src + from * element_bytes(conversion.src), dst + to * element_bytes(conversion.dst), 1);
    }
  }
}

Bytes random_bytes(std::size_t size, std::mt19937_64& random) {
  Bytes bytes(size);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

void check_against_naive(const DataConversion& conversion, std::size_t src_bytes,
                         std::size_t dst_bytes, std::mt19937_64& random) {
  check_bounds(conversion, src_bytes, dst_bytes);
  const Bytes src = random_bytes(src_bytes, random);
  Bytes expected = random_bytes(dst_bytes, random), dst = expected;
  move_naively(conversion, src.data(), expected.data());
  move(conversion, src.data(), dst.data());
  CHECK(dst == expected);
}

DataConversion conversion_of(DataFormat src, DataFormat dst, std::vector<StrideInfo> loops) {
  DataConversion conversion;
  conversion.src = src;
  conversion.dst = dst;
  conversion.loops = std::move(loops);
  return conversion;
}

/// Strides of a dense array over a permutation of the dimensions, with gaps and reversed dimensions
/// at random. Sets the offset so that everything stays non-negative; returns the elements needed.
std::int64_t random_strides(const Numbers& size, Numbers& stride, std::int64_t& offset,
                            std::mt19937_64& random) {
  std::vector<std::size_t> order(size.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  if (random() % 2) std::shuffle(order.begin(), order.end(), random);
  stride.resize(size.size());
  std::int64_t step = random() % 4 ? 1 : 2;
  offset = static_cast<std::int64_t>(random() % 3);
  for (std::size_t k : order) {
    stride[k] = step;
    step = step * size[k] + (random() % 4 ? 0 : static_cast<std::int64_t>(random() % 5));
  }
  const std::int64_t needed = step + offset;
  for (std::size_t k = 0; k < size.size(); ++k) {
    if (random() % 8) continue;
    offset += (size[k] - 1) * stride[k];
    stride[k] = -stride[k];
  }
  return needed;
}

StrideInfo random_nest(std::mt19937_64& random, std::int64_t& src_needed,
                       std::int64_t& dst_needed) {
  StrideInfo nest;
  const std::size_t rank = random() % 6;
  std::int64_t budget = 3000;
  for (std::size_t k = 0; k < rank; ++k) {
    static constexpr std::int64_t sizes[] = {1, 2, 3, 4, 5, 7, 8, 16, 17, 33, 64, 65, 130, 600};
    std::int64_t size = sizes[random() % std::size(sizes)];
    if (size > budget) size = 1;
    budget /= size;
    nest.size.push_back(random() % 64 ? size : 0);
  }
  src_needed = random_strides(nest.size, nest.stride_src, nest.offset_src, random);
  dst_needed = random_strides(nest.size, nest.stride_dst, nest.offset_dst, random);
  for (std::size_t k = 0; k < rank; ++k) {
    if (random() % 8 == 0 && nest.stride_src[k] > 0) nest.stride_src[k] = 0;
    // Elements that share places: the last one in loop order must stay.
    if (random() % 24 == 0 && nest.stride_dst[k] > 0)
      nest.stride_dst[k] = static_cast<std::int64_t>(random() % 2);
  }
  return nest;
}

TEST(random_nests_move_like_a_naive_loop) {
  using enum DataFormat;
  static constexpr DataFormat formats[] = {IEEE_FP16,  SEN169_FP16, IEEE_FP32,  BOOL,
                                           IEEE_INT64, IEEE_INT32,  HOST_UINT8, IEEE_FP64};
  std::mt19937_64 random(7);
  for (int round = 0; round < 3000; ++round) {
    DataConversion conversion;
    conversion.src = formats[random() % std::size(formats)];
    conversion.dst = random() % 3 ? formats[random() % std::size(formats)] : conversion.src;
    conversion.narrow = static_cast<Narrow>(random() % 6 ? 0 : random() % 3);
    std::int64_t src_needed = 0, dst_needed = 0;
    for (std::uint64_t nests = random() % 4; nests > 0; --nests) {
      std::int64_t src = 0, dst = 0;
      conversion.loops.push_back(random_nest(random, src, dst));
      src_needed = std::max(src_needed, src);
      dst_needed = std::max(dst_needed, dst);
    }
    check_against_naive(
        conversion, static_cast<std::size_t>(src_needed * element_bytes(conversion.src)),
        static_cast<std::size_t>(dst_needed * element_bytes(conversion.dst)), random);
  }
}

TEST(large_transfers_move_like_a_naive_loop) {
  using enum DataFormat;
  std::mt19937_64 random(8);
  const std::int64_t rows = 300, columns = 250, sticks = 4, padded = sticks * 64;
  const std::size_t host = rows * columns * 2, device = rows * padded * 2;
  // Row-major to tiles: three full tiles and a partial one; then back.
  const StrideInfo full{{64, rows, 3}, {1, columns, 64}, {1, 64, rows * 64}, 0, 0};
  const StrideInfo rest{{58, rows}, {1, columns}, {1, 64}, 192, 3 * rows * 64};
  check_against_naive(conversion_of(IEEE_FP16, SEN169_FP16, {full, rest}), host, device, random);
  const StrideInfo full_back{full.size, full.stride_dst, full.stride_src, 0, 0};
  const StrideInfo rest_back{rest.size, rest.stride_dst, rest.stride_src, 3 * rows * 64, 192};
  check_against_naive(conversion_of(SEN169_FP16, IEEE_FP16, {full_back, rest_back}), device, host,
                      random);
  for (DataFormat format : {HOST_UINT8, IEEE_FP16, IEEE_FP32, IEEE_INT64}) {
    const std::size_t bytes = rows * columns * 8;
    // Transposed, with tiles that are not full; one contiguous run; one strided line.
    check_against_naive(
        conversion_of(format, IEEE_FP32, {{{rows, columns}, {columns, 1}, {1, rows}, 0, 0}}), bytes,
        bytes, random);
    check_against_naive(conversion_of(format, format, {{{rows * columns}, {1}, {1}, 0, 0}}), bytes,
                        bytes, random);
    check_against_naive(conversion_of(format, IEEE_FP16, {{{rows * columns}, {1}, {2}, 0, 0}}),
                        bytes, bytes, random);
  }
  // Replication, and a destination where everything lands in one row.
  check_against_naive(conversion_of(IEEE_FP32, SEN169_FP16, {{{64, 2000}, {0, 1}, {1, 64}, 0, 0}}),
                      8000, 256000, random);
  check_against_naive(
      conversion_of(IEEE_FP32, SEN169_FP16, {{{100, 2000}, {1, 100}, {1, 0}, 0, 0}}), 800000, 200,
      random);
  check_against_naive(conversion_of(IEEE_FP32, IEEE_FP32, {{{100, 2000}, {1, 100}, {1, 3}, 0, 0}}),
                      800000, 25000, random);
  // Rows that lie one element apart: on several threads, any of them could come last.
  check_against_naive(conversion_of(IEEE_FP32, IEEE_FP32, {{{20000, 8}, {1, 20000}, {1, 1}, 0, 0}}),
                      640000, 80028, random);
  // Many small nests, one behind the other; the same, written twice.
  std::vector<StrideInfo> nests;
  for (std::int64_t i = 0; i < 5000; ++i)
    nests.push_back({{5, 4}, {1, 7}, {1, 5}, i % 100, i * 20});
  check_against_naive(conversion_of(IEEE_FP16, SEN169_FP16, nests), 300, 200000, random);
  for (std::int64_t i = 0; i < 5000; ++i) nests.push_back({{5, 4}, {7, 1}, {1, 5}, i % 90, i * 20});
  check_against_naive(conversion_of(IEEE_FP16, SEN169_FP16, nests), 300, 200000, random);
}

TEST(element_count_counts_every_visit) {
  const auto conversion = conversion_of(
      DataFormat::IEEE_FP16, DataFormat::SEN169_FP16,
      {{{64, 3}, {1, 64}, {1, 0}, 0, 0}, {{}, {}, {}, 0, 0}, {{5, 0}, {1, 1}, {1, 1}, 0, 0}});
  CHECK_EQ(element_count(conversion), 64 * 3 + 1);
}

TEST(fill_writes_the_places_of_the_nests) {
  std::mt19937_64 random(9);
  for (DataFormat format : {DataFormat::HOST_UINT8, DataFormat::SEN169_FP16, DataFormat::IEEE_FP32,
                            DataFormat::IEEE_INT64}) {
    for (int round = 0; round < 100; ++round) {
      std::int64_t src = 0, needed = 0;
      StrideInfo nest = random_nest(random, src, needed);
      if (round == 0) nest = {{64, 500, 3}, {}, {1, 64, 33000}, 0, 7}, needed = 200000;
      if (round == 1) nest = {{100000}, {}, {1}, 0, 1}, needed = 100001;
      const std::uint64_t value = random();
      const std::size_t size = static_cast<std::size_t>(needed * element_bytes(format));
      Bytes expected = random_bytes(size, random), dst = expected;
      nest.stride_src.assign(nest.size.size(), 0);
      nest.offset_src = 0;
      const auto conversion = conversion_of(format, format, {nest});
      move_naively(conversion, reinterpret_cast<const std::byte*>(&value), expected.data());
      LoopNest loops(1);
      loops.offset(0) = nest.offset_dst;
      for (std::size_t k = 0; k < nest.size.size(); ++k)
        loops.add(nest.size[k], {nest.stride_dst[k]});
      Mover mover(format, value);
      mover.add(loops);
      mover.run(nullptr, dst.data());
      CHECK(dst == expected);
    }
  }
}

TEST(bounds_are_checked_before_anything_moves) {
  using enum DataFormat;
  const auto check = [](StrideInfo second, std::uint64_t src_bytes = 200,
                        std::uint64_t dst_bytes = 200) {
    const StrideInfo fine{{10, 10}, {1, 10}, {10, 1}, 0, 0};
    check_bounds(conversion_of(IEEE_FP16, SEN169_FP16, {fine, std::move(second)}), src_bytes,
                 dst_bytes);
  };
  check({{10, 10}, {1, 10}, {-10, -1}, 0, 99});
  check({{0, 5}, {1 << 30, 1}, {1, 1}, 1 << 30, 0});
  check({{}, {}, {}, 99, 99});
  CHECK_THROWS(check({{10, 10}, {1, 10}, {1, 10}, 1, 0}), "loop 1");
  CHECK_THROWS(
      check({{10, 10}, {1, 10}, {1, 10}, 1, 0}),
      "reaches element 100 of the source, which has 100 elements of IEEE_FP16 (200 bytes)");
  CHECK_THROWS(check({{10, 10}, {1, 10}, {1, 11}, 0, 0}), "reaches element 108 of the destination");
  CHECK_THROWS(check({{10}, {-1}, {1}, 8, 0}), "reaches element -1 of the source");
  CHECK_THROWS(check({{}, {}, {}, 0, -1}), "reaches element -1 of the destination");
  CHECK_THROWS(check({{1}, {1}, {1}, 99, 0}, 199), "loop 0");
  CHECK_THROWS(check({{-3}, {1}, {1}, 0, 0}), "size -3 is negative");
  CHECK_THROWS(check({{0, -3}, {1, 1}, {1, 1}, 0, 0}), "size -3 is negative");
  CHECK_THROWS(check({{3, 3}, {1}, {1, 1}, 0, 0}), "stride_src has 1 entries, size has 2");
  CHECK_THROWS(check({{3}, {1}, {1, 1}, 0, 0}), "stride_dst has 2 entries, size has 1");
  const std::int64_t large = std::int64_t{1} << 40;
  CHECK_THROWS(check({{large}, {large}, {0}, 0, 0}), "offsets of the source overflow");
  CHECK_THROWS(check({{large, large}, {0, 0}, {0, 0}, 0, 0}), "number of elements overflows");
  CHECK_THROWS(check_bounds(conversion_of(IEEE_FP16, INVALID, {}), 0, 0), "format INVALID (2)");
  auto conversion = conversion_of(IEEE_FP16, SEN169_FP16, {});
  conversion.narrow = static_cast<Narrow>(7);
  CHECK_THROWS(check_bounds(conversion, 0, 0), "narrowing 7");
}

// --------------------------------------------------------------------------------------- thread
// pool

/// More workers than processors: what can go wrong between threads should. Pools are never deleted.
ThreadPool& crowded_pool() {
  static ThreadPool& pool = *new ThreadPool(5);
  return pool;
}

TEST(pool_runs_every_task_once) {
  for (std::int64_t tasks : {0, 1, 2, 5, 1000}) {
    for (int round = 0; round < 20; ++round) {
      std::vector<std::atomic<int>> runs(static_cast<std::size_t>(tasks));
      crowded_pool().parallel_for(tasks,
                                  [&](std::int64_t i) { ++runs[static_cast<std::size_t>(i)]; });
      for (auto& count : runs) CHECK_EQ(count.load(), 1);
    }
  }
  CHECK(ThreadPool::shared().size() >= 1);
}

TEST(pool_serves_several_threads_at_once) {
  std::atomic<std::int64_t> sum{0};
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 4; ++caller)
    callers.emplace_back([&] {
      for (int round = 0; round < 200; ++round)
        crowded_pool().parallel_for(17, [&](std::int64_t i) { sum += i; });
    });
  for (std::thread& caller : callers) caller.join();
  CHECK_EQ(sum.load(), 4 * 200 * (16 * 17 / 2));
}

TEST(pool_runs_nested_loops_on_the_same_thread) {
  std::atomic<int> elsewhere{0}, done{0};
  crowded_pool().parallel_for(8, [&](std::int64_t) {
    const auto here = std::this_thread::get_id();
    crowded_pool().parallel_for(8, [&](std::int64_t) {
      elsewhere += std::this_thread::get_id() != here;
      ++done;
    });
  });
  CHECK_EQ(done.load(), 64);
  CHECK_EQ(elsewhere.load(), 0);
}

TEST(pool_rethrows_and_goes_on) {
  for (int round = 0; round < 50; ++round) {
    CHECK_THROWS(crowded_pool().parallel_for(100,
                                             [](std::int64_t i) {
                                               if (i % 7 == 3)
                                                 throw std::runtime_error("task failed");
                                             }),
                 "task failed");
  }
  std::atomic<int> done{0};
  crowded_pool().parallel_for(10, [&](std::int64_t) { ++done; });
  CHECK_EQ(done.load(), 10);
}

TEST(pool_runs_inline_in_a_forked_child) {
  crowded_pool().parallel_for(4, [](std::int64_t) {});
  const pid_t child = ::fork();
  if (child == 0) {
    int done = 0;
    crowded_pool().parallel_for(6, [&](std::int64_t) { ++done; });
    ::_exit(done == 6 ? 0 : 1);
  }
  int status = -1;
  CHECK_EQ(::waitpid(child, &status, 0), child);
  CHECK_EQ(status, 0);
}

}  // namespace
}  // namespace spyre::card
