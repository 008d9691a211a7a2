// Device memory: placement, limits, host memory behind it, errors.
#include <sys/resource.h>

#include <csignal>
#include <cstdio>
#include <cstring>
#include <map>
#include <random>
#include <thread>

#include "check.h"
#include "memory/memory.h"
#include "support.h"

using namespace spyre::card;
using namespace spyre::card::test;
using spyre::kSegmentBytes;

namespace {

constexpr std::uint64_t kWholeCard = spyre::kDefaultCardBytes;

void touch(const DeviceMemory& memory, Handle handle) {
  const Extent extent = memory.locate(handle);
  std::memset(extent.data, 1, extent.bytes);
}

}  // namespace

TEST(allocations_are_aligned_and_rounded_to_sticks) {
  DeviceMemory memory({kWholeCard, 64 * kMiB});
  for (const std::uint64_t bytes : {1ul, 127ul, 128ul, 129ul, 8192ul, 1000001ul}) {
    const Handle handle = memory.allocate(bytes, MemoryKind::tensor);
    CHECK_EQ(memory.device_address(handle) % 128, 0u);
    CHECK_EQ(memory.locate(handle).bytes, (bytes + 127) / 128 * 128);
    CHECK_EQ(reinterpret_cast<std::uintptr_t>(memory.locate(handle).data) % 128, 0u);
  }
}

TEST(programs_live_in_their_own_segment) {
  DeviceMemory memory({kWholeCard, 0});
  CHECK_EQ(memory.device_address(memory.allocate(128, MemoryKind::tensor)), 0u);
  CHECK_EQ(memory.device_address(memory.allocate(128, MemoryKind::program)),
           static_cast<std::uint64_t>(spyre::kProgramSegmentBase));
  CHECK_EQ(memory.info(MemoryKind::tensor).capacity, 7 * 16 * kGiB);
  CHECK_EQ(memory.info(MemoryKind::program).capacity, 16 * kGiB);
}

TEST(no_allocation_crosses_a_segment) {
  DeviceMemory memory({kWholeCard, 0});
  std::vector<Handle> handles;
  // 6 GiB: two fit in a segment, so the third must begin the next one.
  for (int i = 0; i < 14; ++i) handles.push_back(memory.allocate(6 * kGiB, MemoryKind::tensor));
  for (const Handle handle : handles) {
    const std::uint64_t address = memory.device_address(handle);
    CHECK_EQ(address / kSegmentBytes, (address + 6 * kGiB - 1) / kSegmentBytes);
  }
  CHECK_EQ(memory.info(MemoryKind::tensor).largest_free_block, 4 * kGiB);
  CHECK_THROWS(memory.allocate(6 * kGiB, MemoryKind::tensor), "smaller pieces");
  for (const Handle handle : handles) memory.free(handle);
  CHECK_EQ(memory.info(MemoryKind::tensor).largest_free_block,
           static_cast<std::uint64_t>(kSegmentBytes));
  for (int i = 0; i < 7; ++i) memory.allocate(kSegmentBytes, MemoryKind::tensor);
  CHECK_EQ(memory.info(MemoryKind::tensor).free, 0u);
}

TEST(random_use_never_overlaps_and_accounts_for_every_byte) {
  constexpr std::uint64_t kCapacity = 64 * kMiB;
  for (const std::uint64_t warm : {std::uint64_t{0}, 4 * kMiB, kCapacity}) {
    DeviceMemory memory({kCapacity, warm});
    std::mt19937_64 random(warm + 1);
    std::map<std::uint64_t, std::pair<std::uint64_t, Handle>> model;  // address -> size, handle
    std::uint64_t used = 0;
    for (int step = 0; step < 30000; ++step) {
      if (random() % 5 < 3) {
        const std::uint64_t bytes = 1 + random() % (std::uint64_t{1} << (7 + random() % 16));
        try {
          const Handle handle = memory.allocate(bytes, MemoryKind::tensor);
          const std::uint64_t address = memory.device_address(handle);
          const std::uint64_t size = memory.locate(handle).bytes;
          const auto after = model.lower_bound(address);
          CHECK(after == model.end() || address + size <= after->first);
          CHECK(after == model.begin() ||
                std::prev(after)->first + std::prev(after)->second.first <= address);
          CHECK(address + size <= kCapacity);
          model[address] = {size, handle};
          used += size;
        } catch (const OutOfMemory& error) {
          CHECK_EQ(error.free, kCapacity - used);
          CHECK(error.largest_free_block < (bytes + 127) / 128 * 128);
        }
      } else if (!model.empty()) {
        auto victim = model.lower_bound(random() % kCapacity);
        if (victim == model.end()) victim = model.begin();
        memory.free(victim->second.second);
        used -= victim->second.first;
        model.erase(victim);
      }
      if (step % 1000 == 0) {
        const MemoryInfo info = memory.info(MemoryKind::tensor);
        CHECK_EQ(info.free, kCapacity - used);
        CHECK_EQ(info.allocations, model.size());
      }
    }
    for (const auto& [address, block] : model) memory.free(block.second);
    CHECK_EQ(memory.info(MemoryKind::tensor).largest_free_block, kCapacity);
    memory.free(memory.allocate(kCapacity, MemoryKind::tensor));
  }
}

TEST(many_threads_allocate_and_free) {
  DeviceMemory memory({256 * kMiB, kMiB});
  std::vector<std::thread> threads;
  for (unsigned seed = 0; seed < 4; ++seed)
    threads.emplace_back([&memory, seed] {
      std::mt19937 random(seed);
      for (int i = 0; i < 2000; ++i) {
        const Handle handle = memory.allocate(1 + random() % 100000, MemoryKind::tensor);
        std::memset(memory.locate(handle).data, static_cast<int>(seed), 128);
        CHECK_EQ(std::to_integer<unsigned>(memory.locate(handle).data[127]), seed);
        memory.free(handle);
      }
    });
  for (std::thread& thread : threads) thread.join();
  CHECK_EQ(memory.info(MemoryKind::tensor).allocations, 0u);
}

TEST(reading_a_handle_on_the_host_faults) {
  DeviceMemory memory({64 * kMiB, 0});
  const Handle handle = memory.allocate(4096, MemoryKind::tensor);
  const int status = status_in_child([&] {
    std::signal(SIGSEGV, SIG_DFL);  // a sanitizer would report and exit instead
    [[maybe_unused]] const volatile char stray = *static_cast<const volatile char*>(handle);
  });
  CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
}

TEST(unknown_and_freed_handles_are_refused) {
  DeviceMemory memory({64 * kMiB, 64 * kMiB}), other({64 * kMiB, 0});
  const Handle handle = memory.allocate(4096, MemoryKind::tensor);
  int local = 0;
  CHECK_THROWS(memory.free(nullptr), "not an allocation of this card");
  CHECK_THROWS(memory.free(&local), "not an allocation of this card");
  CHECK_THROWS(memory.free(static_cast<char*>(handle) + 128), "not an allocation of this card");
  CHECK_THROWS(other.free(handle), "not an allocation of this card");
  memory.free(handle);
  CHECK_THROWS(memory.free(handle), "already freed");
  CHECK_THROWS(memory.locate(handle), "already freed");
  CHECK_THROWS(memory.allocate(0, MemoryKind::tensor), "0 bytes");
}

TEST(out_of_memory_says_the_numbers_and_the_card_goes_on) {
  DeviceMemory memory({64 * kMiB, 0});
  const Handle held = memory.allocate(48 * kMiB, MemoryKind::tensor);
  try {
    memory.allocate(32 * kMiB, MemoryKind::tensor);
    CHECK(false);
  } catch (const OutOfMemory& error) {
    CHECK_EQ(error.requested, 32 * kMiB);
    CHECK_EQ(error.free, 16 * kMiB);
    CHECK_EQ(error.largest_free_block, 16 * kMiB);
    CHECK_EQ(error.capacity, 64 * kMiB);
    const std::string message = error.what();
    for (const char* part :
         {"requested 32 MiB (33554432 bytes)", "free 16 MiB (16777216 bytes)",
          "largest free block 16 MiB", "capacity 64 MiB (67108864 bytes)", "SPYRE_CARD_MEMORY"})
      CHECK(message.find(part) != std::string::npos);
  }
  memory.free(held);
  memory.free(memory.allocate(64 * kMiB, MemoryKind::tensor));
  CHECK_THROWS(memory.allocate(UINT64_MAX, MemoryKind::tensor), "out of tensor memory");
}

TEST(one_tensor_cannot_exceed_a_segment) {
  DeviceMemory memory({kWholeCard, 0});
  CHECK_THROWS(memory.allocate(kSegmentBytes + 1, MemoryKind::tensor),
               "cannot exceed a segment of 16 GiB");
}

TEST(warm_blocks_do_not_stand_in_the_way_of_a_large_one) {
  DeviceMemory memory({64 * kMiB, 64 * kMiB});
  std::vector<Handle> handles;
  for (int i = 0; i < 64; ++i) handles.push_back(memory.allocate(kMiB, MemoryKind::tensor));
  for (const Handle handle : handles) memory.free(handle);
  CHECK_EQ(memory.info(MemoryKind::tensor).largest_free_block, 64 * kMiB);
  memory.free(memory.allocate(64 * kMiB, MemoryKind::tensor));
}

TEST(memory_is_backed_when_touched_and_given_back_when_freed) {
  DeviceMemory memory({kGiB, 64 * kMiB});
  const std::int64_t before = rss_anon_bytes();
  const Handle handle = memory.allocate(200 * kMiB, MemoryKind::tensor);
  CHECK(memory.info(MemoryKind::tensor).backed <= 2 * kMiB);
  touch(memory, handle);
  CHECK(rss_anon_bytes() - before > static_cast<std::int64_t>(190 * kMiB));
  const std::uint64_t backed = memory.info(MemoryKind::tensor).backed;
  CHECK(backed >= 200 * kMiB && backed <= 204 * kMiB);
  memory.free(handle);
  CHECK(memory.info(MemoryKind::tensor).backed <= 64 * kMiB);
#ifndef __SANITIZE_THREAD__  // which keeps its shadow of the memory
  CHECK(rss_anon_bytes() - before < static_cast<std::int64_t>(80 * kMiB));
#endif
}

TEST(freed_memory_stays_warm_up_to_the_limit_until_trimmed) {
  DeviceMemory memory({kGiB, 16 * kMiB});
  std::vector<Handle> handles;
  for (int i = 0; i < 100; ++i) handles.push_back(memory.allocate(kMiB, MemoryKind::tensor));
  for (const Handle handle : handles) touch(memory, handle);
  CHECK_EQ(memory.info(MemoryKind::tensor).backed, 100 * kMiB);
  for (const Handle handle : handles) memory.free(handle);
  CHECK_EQ(memory.info(MemoryKind::tensor).backed, 16 * kMiB);
  memory.trim();
  CHECK_EQ(memory.info(MemoryKind::tensor).backed, 0u);
}

TEST(without_a_warm_limit_memory_goes_back_at_once) {
  DeviceMemory memory({kGiB, 0});
  const Handle handle = memory.allocate(32 * kMiB, MemoryKind::tensor);
  touch(memory, handle);
  memory.free(handle);
  CHECK_EQ(memory.info(MemoryKind::tensor).backed, 0u);
}

TEST(the_last_partial_page_of_a_small_card_goes_back_too) {
  DeviceMemory memory({3 * kMiB + 128, 0});
  const Handle handle = memory.allocate(3 * kMiB + 128, MemoryKind::tensor);
  touch(memory, handle);
  CHECK(memory.info(MemoryKind::tensor).backed > 3 * kMiB);
  memory.free(handle);
  CHECK_EQ(memory.info(MemoryKind::tensor).backed, 0u);
}

TEST(a_loop_over_a_large_tensor_does_not_fault_its_pages_again) {
  DeviceMemory memory({kGiB, 64 * kMiB});
  memory.allocate(32 * kMiB - 128, MemoryKind::tensor);  // something in front
  const auto faults = [] {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_minflt;
  };
  long after_first = 0;
  for (int i = 0; i < 10; ++i) {
    const Handle a = memory.allocate(32 * kMiB, MemoryKind::tensor);
    const Handle b = memory.allocate(20 * kMiB, MemoryKind::tensor);
    touch(memory, a);
    touch(memory, b);
    memory.free(a);
    memory.free(b);
    if (i == 0) after_first = faults();
  }
  CHECK(faults() - after_first < 100);
}

TEST(freeing_in_a_forked_child_does_nothing) {
  DeviceMemory memory({64 * kMiB, 0});
  const Handle handle = memory.allocate(4096, MemoryKind::tensor);
  touch(memory, handle);
  const int status = status_in_child([&] {
    memory.free(handle);
    memory.free(handle);
    memory.free(nullptr);
  });
  CHECK_EQ(status, 0);
  CHECK_EQ(memory.locate(handle).bytes, 4096u);
  CHECK_EQ(std::to_integer<int>(memory.locate(handle).data[0]), 1);
}

TEST(allocating_and_freeing_is_fast) {
  DeviceMemory memory({kWholeCard, 64 * kMiB});
  for (int i = 0; i < 5000; ++i) {  // a populated card
    memory.allocate(512, MemoryKind::tensor);
    memory.free(memory.allocate(4096 + 128 * (i % 50), MemoryKind::tensor));
  }
  constexpr int kRounds = 100000;
  const double time = seconds([&] {
    for (int i = 0; i < kRounds; ++i) memory.free(memory.allocate(8192, MemoryKind::tensor));
  });
  std::printf("     allocate and free 8 KiB: %.0f ns\n", time / kRounds * 1e9);
  CHECK(time / kRounds < 20e-6);  // generous: sanitizers and busy machines
}
