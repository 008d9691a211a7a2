// Streams: checks a submission, prices it and puts it in line.
#pragma once

#include <memory>

#include "host/process.h"
#include "memory/memory.h"
#include "spyre/card.h"
#include "streams/clock.h"
#include "streams/work_queue.h"

namespace spyre::card {

class Checker;

/// Everything is checked before it is queued: what cannot run is refused in the call that made it.
/// The modelled time of a submission is fixed at that moment too, whether it runs now or later.
class SoftStream : public Stream {
 public:
  SoftStream(std::shared_ptr<DeviceMemory> memory, std::shared_ptr<Clock> clock, int priority);
  /// Waits for its work. In a forked child it lets go of everything without a word: the worker and
  /// perhaps the holder of the lock are in the parent.
  ~SoftStream() override;

  void to_card(const void* host, std::size_t host_bytes, Handle device, DataConversion conversion,
               Submit submit, Retained retained) override;
  void to_host(Handle device, void* host, std::size_t host_bytes, DataConversion conversion,
               Submit submit, Retained retained) override;
  using Stream::launch;
  void launch(std::span<const Launch> launches, Submit submit, Retained retained) override;
  void host_callback(std::function<void()> function) override;
  void record(Event& event) override;
  void wait(const Event& event) override;
  bool query() override;
  void synchronize() override;
  int priority() const override { return priority_; }
  void set_checks(bool on) override;

  /// For the card, which drains all its streams.
  const std::shared_ptr<WorkQueue>& queue() const { return queue_; }

 private:
  void price(std::span<const Launch> launches, Submit submit);
  // Of a stream that checks.
  void launch_checked(Checker& checker, std::span<const Launch> launches, const Extent* operands,
                      Submit submit, Retained retained);
  void transfer_checked(Checker& checker, Engine engine, const std::byte* src, std::byte* dst,
                        DataConversion conversion, const Extent& device, std::uint64_t device_bytes,
                        Submit submit, Retained retained);
  void transfer(Engine engine, const std::byte* src, std::byte* dst, DataConversion conversion,
                const Extent& device, std::uint64_t device_bytes, Submit submit, Retained retained);
  static void run(const DeviceMemory& memory, std::span<const Launch> launches,
                  const Extent* operands);

  const std::shared_ptr<DeviceMemory> memory_;
  const std::shared_ptr<Clock> clock_;
  const int priority_;
  std::shared_ptr<WorkQueue> queue_;
  Moment time_;  // guarded by the queue's lock
  HomeProcess home_;
};

}  // namespace spyre::card
