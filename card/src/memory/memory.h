// The memory of one card: handles outside, host memory inside.
//
// Seven tensor segments of 16 GiB lie at device addresses 0, 16 GiB, ..., the program segment above
// them. They form two arenas, tensors and programs. Each arena is two reservations of address space
// of the same size: the *handle range*, which nothing may read or write, and the *backing*, whose
// pages come into being when touched. A handle points into the first; the bytes are at the same
// offset of the second. So a stray host access to a device pointer faults, whatever it hits.
//
// A card with less memory than the address space uses the lowest part of it and reserves no more.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "host/process.h"
#include "memory/blocks.h"
#include "memory/extent.h"
#include "memory/scratchpads.h"
#include "spyre/card.h"

namespace spyre::card {

struct MemoryLimits {
  std::uint64_t card_bytes;  ///< what this process may use of the card
  std::uint64_t warm_bytes;  ///< freed memory that stays backed for reuse
};

/// Address space without memory, for its lifetime.
class Reservation {
 public:
  /// Handle range: every access faults.
  static Reservation inaccessible(std::uint64_t bytes);
  /// Backing: zero pages until written. A forked child does not have it, so that a fork is cheap
  /// and the parent's writes need not copy what the child could still see.
  static Reservation backing(std::uint64_t bytes, bool huge_pages);

  Reservation(Reservation&& other) noexcept;
  Reservation& operator=(Reservation&&) = delete;
  ~Reservation();

  std::byte* begin() const { return begin_; }
  /// Give the pages of a page-aligned range back to the host.
  void discard(std::uint64_t offset, std::uint64_t bytes) const;
  /// Bytes in [0, end) that host memory stands behind now. Asks the kernel about every page.
  std::uint64_t backed(std::uint64_t end) const;

 private:
  Reservation(std::uint64_t bytes, int protection, std::uint64_t alignment);

  std::byte *mapping_, *begin_;
  std::uint64_t mapped_bytes_;
  HomeProcess home_;
};

/// One kind of memory: a range of device addresses, its handles and its bytes.
class Arena {
 public:
  struct Shape {
    MemoryKind kind;
    std::uint64_t device_base, capacity, warm_bytes;
  };

  explicit Arena(const Shape& shape);

  Handle allocate(std::uint64_t bytes);
  void free(Handle handle);
  Extent locate(Handle handle) const;
  std::uint64_t device_address(Handle handle) const;
  MemoryInfo info() const;
  void trim();
  std::byte* memory() const { return backing_.begin(); }
  std::uint64_t capacity() const { return shape_.capacity; }
  std::vector<Extent> allocated() const;
  /// Says what is known about a place that is not allocated, for a complaint about its handle.
  std::function<std::string(const std::byte*)> note;
  bool has(Handle handle) const { return offset_of(handle) < shape_.capacity; }

 private:
  std::uint64_t offset_of(Handle handle) const;
  [[noreturn]] void refuse(Handle handle) const;
  OutOfMemory out_of_memory(std::uint64_t requested, const Blocks::Usage& usage) const;

  const Shape shape_;
  const Reservation handles_, backing_;
  mutable std::mutex mutex_;
  Blocks blocks_;  // guarded by mutex_
};

/// Is told what happens to the tensors' memory while a stream checks.
class MemoryWatcher {
 public:
  virtual ~MemoryWatcher() = default;
  /// From now on, with this there already: called first, and again after a time without a call.
  virtual void start(const std::vector<Extent>& allocated) = 0;
  virtual void allocated(const Extent& extent) = 0;
  virtual void freed(const Extent& extent) = 0;
  /// " (...)", of what was freed there last and not allocated again; or nothing.
  virtual std::string freed_note(const std::byte* data) const = 0;
};

class DeviceMemory {
 public:
  explicit DeviceMemory(const MemoryLimits& limits);
  ~DeviceMemory();

  Handle allocate(std::uint64_t bytes, MemoryKind kind);
  /// Does nothing in a forked child: the memory is the parent's.
  void free(Handle handle);
  /// Throws Error(invalid_argument) for what is not an allocation of this card.
  Extent locate(Handle handle) const { return arena_of(handle).locate(handle); }
  std::uint64_t device_address(Handle handle) const {
    return arena_of(handle).device_address(handle);
  }
  MemoryInfo info(MemoryKind kind) const;
  void trim();
  const Scratchpads& scratchpads() const { return scratchpads_; }

  /// Null unless a stream of the card checks.
  MemoryWatcher* watcher() const { return watcher_.load(std::memory_order_acquire); }
  /// Called for each stream that begins to check, and when it ends. The first call makes the
  /// watcher, of the tensors' memory; it is kept.
  using MakeWatcher = std::unique_ptr<MemoryWatcher> (*)(std::byte* memory, std::uint64_t bytes);
  void start_watching(MakeWatcher make);
  void stop_watching();

 private:
  const Arena& arena_of(Handle handle) const;
  Arena& arena_of(Handle handle);

  Arena tensors_, programs_;
  const Scratchpads scratchpads_;
  HomeProcess home_;
  std::mutex checking_mutex_;
  int checking_streams_ = 0;                      // guarded by checking_mutex_
  std::unique_ptr<MemoryWatcher> owned_watcher_;  // the same; kept once it is there
  std::atomic<MemoryWatcher*> watcher_ = nullptr;
};

}  // namespace spyre::card
