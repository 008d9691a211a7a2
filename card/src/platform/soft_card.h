// The software card: memory, clock and streams put together.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "memory/memory.h"
#include "spyre/card.h"
#include "streams/clock.h"
#include "streams/work_queue.h"

namespace spyre::card {

/// Streams, events and programs hold what they need of the card and may outlive it.
class SoftCard : public Card {
 public:
  /// `shared`: what a program leaves in the scratchpads is gone before the next begins.
  explicit SoftCard(const MemoryLimits& limits, bool shared = false);

  const Properties& properties() const override { return properties_; }

  Handle allocate(std::size_t bytes, MemoryKind kind) override;
  void free(Handle handle) override { memory_->free(handle); }
  std::size_t allocation_bytes(Handle handle) const override {
    return memory_->locate(handle).bytes;
  }
  std::uint64_t device_address(Handle handle) const override {
    return memory_->device_address(handle);
  }
  void name_allocation(Handle handle, const std::string& name) override;
  MemoryInfo memory_info(MemoryKind kind) const override { return memory_->info(kind); }
  void trim() override { memory_->trim(); }

  std::unique_ptr<Stream> create_stream(int priority) override;
  std::unique_ptr<Event> create_event() override;
  std::shared_ptr<const Program> load_program(std::span<const std::byte> binary) override;

  /// Drains every stream, then throws the first error that one of them keeps. Other errors stay
  /// with their streams.
  void synchronize() override;
  Counters counters() const override { return clock_->counters(); }
  void reset() override;

 private:
  std::vector<std::shared_ptr<WorkQueue>> live_queues() const;

  const Properties properties_;
  const bool shared_, checks_;
  const std::shared_ptr<DeviceMemory> memory_;
  const std::shared_ptr<Clock> clock_;
  mutable std::mutex mutex_;
  mutable std::vector<std::weak_ptr<WorkQueue>> queues_;  // guarded by mutex_
};

}  // namespace spyre::card
