#include "stream.h"

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "event.h"
#include "move.h"
#include "program.h"

namespace spyre::card {

namespace {

// Programs with more operands than this cost one host allocation a launch.
constexpr std::size_t kFewOperands = 16;

/// The checks that depend on the direction. Returns the bytes on the device side.
std::uint64_t check_transfer(const DataConversion& conversion, bool to_card, const void* host,
                             std::size_t host_bytes, const Extent& device) {
  if (conversion.host_to_device != to_card)
    throw Error(ErrorCode::invalid_argument,
                "transfer '" + conversion.name + "': the descriptor is for the direction " +
                    (to_card ? "card to host, the transfer goes host to card"
                             : "host to card, the transfer goes card to host"));
  const FormatInfo& format = format_info(to_card ? conversion.dst : conversion.src);
  if (format.elems_per_stick == 0)
    throw Error(ErrorCode::invalid_argument, "transfer '" + conversion.name + "': " + format.name +
                                                 " is not a format of device memory");
  if (to_card) {
    check_bounds(conversion, host_bytes, device.bytes);
  } else {
    check_bounds(conversion, device.bytes, host_bytes);
  }
  const std::uint64_t elements = element_count(conversion);
  if (!host && elements != 0)
    throw Error(ErrorCode::invalid_argument,
                "transfer '" + conversion.name + "': the host pointer is null");
  return elements * static_cast<std::uint64_t>(format.bits) / 8;
}

}  // namespace

SoftStream::SoftStream(std::shared_ptr<DeviceMemory> memory, std::shared_ptr<Clock> clock,
                       int priority)
    : memory_(std::move(memory)),
      clock_(std::move(clock)),
      priority_(priority),
      queue_(WorkQueue::make(priority)) {}

SoftStream::~SoftStream() {
  if (home_.is_here()) {
    queue_->close();
  } else {
    // Destroying a condition variable waits for its waiters, which a child does not have: leak it.
    static_cast<void>(new std::shared_ptr<WorkQueue>(std::move(queue_)));
  }
}

void SoftStream::to_card(const void* host, std::size_t host_bytes, Handle device,
                         DataConversion conversion, Submit submit, Retained retained) {
  const Extent extent = memory_->locate(device);
  const std::uint64_t bytes = check_transfer(conversion, true, host, host_bytes, extent);
  transfer(Engine::to_card, static_cast<const std::byte*>(host), extent.data, std::move(conversion),
           bytes, submit, std::move(retained));
}

void SoftStream::to_host(Handle device, void* host, std::size_t host_bytes,
                         DataConversion conversion, Submit submit, Retained retained) {
  const Extent extent = memory_->locate(device);
  const std::uint64_t bytes = check_transfer(conversion, false, host, host_bytes, extent);
  transfer(Engine::to_host, extent.data, static_cast<std::byte*>(host), std::move(conversion),
           bytes, submit, std::move(retained));
}

void SoftStream::transfer(Engine engine, const std::byte* src, std::byte* dst,
                          DataConversion conversion, std::uint64_t device_bytes, Submit submit,
                          Retained retained) {
  queue_->submit(
      submit, [&] { clock_->transfer(engine, device_bytes, time_, submit); },
      [&] {
        move(conversion, src, dst);
        retained.reset();
      },
      [&]() -> WorkQueue::Work {
        return [conversion = std::move(conversion), src, dst, retained = std::move(retained)] {
          move(conversion, src, dst);
        };
      });
}

void SoftStream::launch(std::shared_ptr<const Program> program, std::span<const Handle> operands,
                        Submit submit, Retained retained) {
  const auto& loaded = SoftProgram::from(program.get());
  std::array<Extent, kFewOperands> few;
  std::vector<Extent> many;
  if (operands.size() > few.size()) many.resize(operands.size());
  const std::span<Extent> extents =
      many.empty() ? std::span<Extent>(few).first(operands.size()) : std::span<Extent>(many);
  for (std::size_t i = 0; i < operands.size(); ++i) extents[i] = memory_->locate(operands[i]);
  loaded.check(extents);

  queue_->submit(
      submit,
      [&] {
        clock_->launch(loaded.bill(), loaded.first_launch() ? loaded.bytes() : 0, time_, submit);
      },
      [&] {
        loaded.run(extents);
        retained.reset();
      },
      [&]() -> WorkQueue::Work {
        return [program = std::move(program), &loaded,
                kept = std::vector<Extent>(extents.begin(), extents.end()),
                retained = std::move(retained)] { loaded.run(kept); };
      });
}

void SoftStream::host_callback(std::function<void()> function) {
  if (!function)
    throw Error(ErrorCode::invalid_argument, "the host callback has no function to call");
  queue_->submit(
      Submit::queue, [] {}, [] {}, [&]() -> WorkQueue::Work { return std::move(function); });
}

void SoftStream::record(Event& event) {
  SoftEvent& target = SoftEvent::from(event);
  std::shared_ptr<Mark> mark;
  queue_->submit(
      Submit::either,
      [&] {
        mark = std::make_shared<Mark>(clock_, clock_->record(time_));
        target.move_to(mark);
      },
      [&] { mark->pass(); }, [&]() -> WorkQueue::Work { return [mark] { mark->pass(); }; });
}

void SoftStream::wait(const Event& event) {
  const auto mark = SoftEvent::from(event).mark();
  if (!mark) return;
  const std::int64_t ns = mark->clock().ns_of(mark->moment());
  const auto advance = [&] { clock_->wait(time_, ns); };
  if (mark->passed()) {
    queue_->in_order(advance);
    return;
  }
  queue_->submit(
      Submit::queue, advance, [] {}, [&]() -> WorkQueue::Work { return [mark] { mark->wait(); }; });
}

void SoftStream::synchronize() {
  queue_->synchronize([&] { clock_->host_waits_for(time_); });
}

}  // namespace spyre::card
