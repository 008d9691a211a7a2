#include "runtime/spyre_pinned.h"

#include <sys/mman.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include <c10/util/Exception.h>

#include "runtime/fork_safe_mutex.h"

namespace spyre {
namespace {

/// Freed blocks are kept for the next request of their size: locking pages takes longer than most
/// copies. Not without a limit: locked pages are lost to the rest of the machine.
constexpr std::size_t kKeptBytes = std::size_t{256} << 20;

using Block = std::pair<void*, std::size_t>;

struct Blocks {
  ForkSafeMutex mutex;  // a child may free what it inherited
  std::map<const std::byte*, std::size_t> used;
  std::multimap<std::size_t, void*> kept;  // by size
  std::size_t kept_bytes = 0;
  at::HostStats stats;
};

/// Leaked: pinned tensors may be freed after static destructors have run.
Blocks& blocks() {
  static Blocks& instance = *new Blocks;
  return instance;
}

std::size_t whole_pages(std::size_t bytes) {
  const auto page = static_cast<std::size_t>(getpagesize());
  return (bytes + page - 1) / page * page;
}

class Stopwatch {
 public:
  std::int64_t microseconds() const {
    const auto passed = std::chrono::steady_clock::now() - start_;
    return std::chrono::duration_cast<std::chrono::microseconds>(passed).count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

void* locked_pages(std::size_t size) {
  void* pointer = nullptr;
  const int error = posix_memalign(&pointer, static_cast<std::size_t>(getpagesize()), size);
  TORCH_CHECK_WITH(OutOfMemoryError, error == 0, "Cannot allocate ", size,
                   " bytes of pinned host memory: ", std::strerror(error), ".");
  if (mlock(pointer, size) != 0) {
    TORCH_WARN_ONCE("mlock failed: ", std::strerror(errno),
                    ". Using unpinned memory for transfers; raise the limit with 'ulimit -l'.");
  }
  return pointer;
}

void give_back(const std::vector<Block>& freed) {
  for (const auto& [pointer, size] : freed) {
    const Stopwatch watch;
    munlock(pointer, size);
    std::free(pointer);
    Blocks& all = blocks();
    const std::lock_guard lock(all.mutex);
    all.stats.allocations.decrease(1);
    all.stats.allocated_bytes.decrease(size);
    all.stats.host_free_time.increase(watch.microseconds());
    ++all.stats.num_host_free;
  }
}

void free_pinned(void* pointer) {
  if (pointer == nullptr) return;
  Blocks& all = blocks();
  std::size_t size = 0;
  {
    const std::lock_guard lock(all.mutex);
    const auto found = all.used.find(static_cast<std::byte*>(pointer));
    if (found == all.used.end()) return;
    size = found->second;
    all.used.erase(found);
    all.stats.active_requests.decrease(1);
    all.stats.active_bytes.decrease(size);
    if (all.kept_bytes + size <= kKeptBytes) {
      all.kept.emplace(size, pointer);
      all.kept_bytes += size;
      return;
    }
  }
  give_back({{pointer, size}});
}

class PinnedAllocator final : public at::HostAllocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    const c10::Device host(c10::DeviceType::CPU);
    if (bytes == 0) return {nullptr, nullptr, &free_pinned, host};
    const std::size_t size = whole_pages(bytes);
    Blocks& all = blocks();
    std::unique_lock lock(all.mutex);
    void* pointer = nullptr;
    if (const auto kept = all.kept.find(size); kept != all.kept.end()) {
      pointer = kept->second;
      all.kept.erase(kept);
      all.kept_bytes -= size;
    } else {
      lock.unlock();
      const Stopwatch watch;
      pointer = locked_pages(size);
      lock.lock();
      all.stats.allocations.increase(1);
      all.stats.allocated_bytes.increase(size);
      all.stats.host_alloc_time.increase(watch.microseconds());
      ++all.stats.num_host_alloc;
      ++all.stats.bucket_allocation[static_cast<std::size_t>(std::bit_width(size) - 1)];
    }
    all.stats.active_requests.increase(1);
    all.stats.active_bytes.increase(size);
    all.used[static_cast<std::byte*>(pointer)] = size;
    return {pointer, pointer, &free_pinned, host};
  }

  c10::DeleterFnPtr raw_deleter() const override { return &free_pinned; }
  void copy_data(void* dest, const void* src, std::size_t count) const override {
    default_copy_data(dest, src, count);
  }

  /// Whether the memory is ours. There is nothing to record: work retains the memory it uses, so
  /// that what is free is free for everybody.
  bool record_event(void* pointer, void*, c10::Stream) override { return is_pinned(pointer); }

  void empty_cache() override {
    std::vector<Block> freed;
    {
      Blocks& all = blocks();
      const std::lock_guard lock(all.mutex);
      for (const auto& [size, pointer] : std::exchange(all.kept, {}))
        freed.emplace_back(pointer, size);
      all.kept_bytes = 0;
    }
    give_back(freed);
  }

  at::HostStats get_stats() override {
    const std::lock_guard lock(blocks().mutex);
    return blocks().stats;
  }

  void reset_accumulated_stats() override {
    const std::lock_guard lock(blocks().mutex);
    at::HostStats& stats = blocks().stats;
    for (auto* stat : counted(stats)) stat->reset_accumulated();
    stats.host_alloc_time.reset_accumulated();
    stats.host_free_time.reset_accumulated();
    stats.num_host_alloc = stats.num_host_free = 0;
    std::fill(stats.bucket_allocation.begin(), stats.bucket_allocation.end(), 0);
  }

  void reset_peak_stats() override {
    const std::lock_guard lock(blocks().mutex);
    at::HostStats& stats = blocks().stats;
    for (auto* stat : counted(stats)) stat->reset_peak();
    stats.host_alloc_time.reset_peak();
    stats.host_free_time.reset_peak();
  }

 private:
  static std::vector<at::Stat*> counted(at::HostStats& stats) {
    return {&stats.active_requests, &stats.active_bytes, &stats.allocations,
            &stats.allocated_bytes};
  }
};

}  // namespace

at::HostAllocator& host_allocator() {
  static auto& instance = *new PinnedAllocator;
  return instance;
}

bool is_pinned(const void* pointer) {
  const auto* address = static_cast<const std::byte*>(pointer);
  const std::lock_guard lock(blocks().mutex);
  auto after = blocks().used.upper_bound(address);
  if (after == blocks().used.begin()) return false;
  --after;
  return address < after->first + after->second;
}

REGISTER_HOST_ALLOCATOR(c10::DeviceType::PrivateUse1, &host_allocator());

}  // namespace spyre
