// Pinned host memory: page aligned, locked where the system allows it, known by address so that a
// non-blocking transfer can tell that its buffer may be read later.
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

#include <c10/util/Exception.h>

#include "spyre_allocator.h"

namespace spyre {
namespace {

struct Blocks {
  std::mutex mutex;
  std::map<const std::byte*, std::size_t> sizes;
};

/// Leaked: pinned tensors may be freed after static destructors have run.
Blocks& blocks() {
  static Blocks& instance = *new Blocks;
  return instance;
}

void free_pinned(void* pointer) {
  if (pointer == nullptr) return;
  std::size_t size = 0;
  {
    const std::lock_guard lock(blocks().mutex);
    const auto found = blocks().sizes.find(static_cast<std::byte*>(pointer));
    if (found == blocks().sizes.end()) return;
    size = found->second;
    blocks().sizes.erase(found);
  }
  munlock(pointer, size);
  std::free(pointer);
}

class PinnedAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    if (bytes == 0) return {nullptr, nullptr, &free_pinned, c10::Device(c10::DeviceType::CPU)};
    void* pointer = nullptr;
    const int error = posix_memalign(&pointer, static_cast<std::size_t>(getpagesize()), bytes);
    TORCH_CHECK_WITH(OutOfMemoryError, error == 0, "Cannot allocate ", bytes,
                     " bytes of pinned host memory: ", std::strerror(error), ".");
    if (mlock(pointer, bytes) != 0) {
      TORCH_WARN_ONCE("mlock failed: ", std::strerror(errno),
                      ". Using unpinned memory for transfers; raise the limit with 'ulimit -l'.");
    }
    const std::lock_guard lock(blocks().mutex);
    blocks().sizes[static_cast<std::byte*>(pointer)] = bytes;
    return {pointer, pointer, &free_pinned, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_pinned; }
  void copy_data(void* dest, const void* src, std::size_t count) const override {
    default_copy_data(dest, src, count);
  }
};

}  // namespace

c10::Allocator* pinned_allocator() {
  static auto& instance = *new PinnedAllocator;
  return &instance;
}

bool is_pinned(const void* pointer) {
  const auto* address = static_cast<const std::byte*>(pointer);
  const std::lock_guard lock(blocks().mutex);
  auto after = blocks().sizes.upper_bound(address);
  if (after == blocks().sizes.begin()) return false;
  --after;
  return address < after->first + after->second;
}

}  // namespace spyre
