#include "streams/stream.h"

#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "checker/checker.h"
#include "nests/move.h"
#include "program/program.h"
#include "streams/event.h"

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

/// The program of a launch that SoftProgram::from() has taken.
const SoftProgram& checked(const Launch& launch) {
  return static_cast<const SoftProgram&>(*launch.program);
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
    set_checks(false);
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
           extent, bytes, submit, std::move(retained));
}

void SoftStream::to_host(Handle device, void* host, std::size_t host_bytes,
                         DataConversion conversion, Submit submit, Retained retained) {
  const Extent extent = memory_->locate(device);
  const std::uint64_t bytes = check_transfer(conversion, false, host, host_bytes, extent);
  transfer(Engine::to_host, extent.data, static_cast<std::byte*>(host), std::move(conversion),
           extent, bytes, submit, std::move(retained));
}

void SoftStream::transfer(Engine engine, const std::byte* src, std::byte* dst,
                          DataConversion conversion, const Extent& device,
                          std::uint64_t device_bytes, Submit submit, Retained retained) {
  if (Checker* const checker = checker_of(*memory_)) [[unlikely]] {
    if (checks())
      return transfer_checked(*checker, engine, src, dst, std::move(conversion), device,
                              device_bytes, submit, std::move(retained));
    if (engine == Engine::to_card) checker->touched_unseen(device);
  }
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

void SoftStream::launch(std::span<const Launch> launches, Submit submit, Retained retained) {
  std::size_t count = 0;
  for (const Launch& each : launches) count += each.operands.size();
  std::array<Extent, kFewOperands> few;
  std::vector<Extent> many;
  if (count > few.size()) many.resize(count);
  Extent* const extents = many.empty() ? few.data() : many.data();
  Extent* next = extents;
  const SoftProgram* before = nullptr;
  bool takes_long = false;
  for (const Launch& each : launches) {
    const auto& loaded = SoftProgram::from(each.program.get());
    const std::span<Extent> own(next, each.operands.size());
    for (const Handle operand : each.operands) *next++ = memory_->locate(operand);
    loaded.check(own);
    loaded.check_follows(before);
    before = &loaded;
    takes_long |= loaded.takes_long();
  }

  if (Checker* const checker = checker_of(*memory_)) [[unlikely]] {
    if (checks()) return launch_checked(*checker, launches, extents, submit, std::move(retained));
    for (const Extent* each = extents; each != next; ++each) checker->touched_unseen(*each);
  }

  queue_->submit(
      submit, [&] { price(launches, submit); },
      [&] {
        run(*memory_, launches, extents);
        retained.reset();
      },
      [&]() -> WorkQueue::Work {
        return [kept_launches = std::vector<Launch>(launches.begin(), launches.end()),
                kept = std::vector<Extent>(extents, next), memory = memory_,
                retained = std::move(retained)] { run(*memory, kept_launches, kept.data()); };
      },
      takes_long ? WorkQueue::Kind::large : WorkQueue::Kind::small);
}

void SoftStream::price(std::span<const Launch> launches, Submit submit) {
  for (const Launch& each : launches) {
    const SoftProgram& loaded = checked(each);
    clock_->launch(loaded.bill(), loaded.first_launch() ? loaded.bytes() : 0, time_, submit);
  }
}

/// In one turn: what a program leaves in the scratchpads, the next may read. The operands of all
/// launches are in one row; of the launches' own only the number counts.
void SoftStream::run(const DeviceMemory& memory, std::span<const Launch> launches,
                     const Extent* operands) {
  std::optional<Scratchpads::Turn> turn;
  for (const Launch& each : launches) {
    const SoftProgram& loaded = checked(each);
    if (loaded.uses_scratchpads() && !turn) turn.emplace(memory.scratchpads());
    loaded.run({operands, each.operands.size()}, turn ? &*turn : nullptr);
    operands += each.operands.size();
  }
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
        mark = std::make_shared<Mark>(clock_, clock_->record(time_), queue_);
        target.move_to(mark);
      },
      [&] { mark->pass(queue_->failure()); },
      // The queue is there as long as it has work.
      [&]() -> WorkQueue::Work {
        return [mark, queue = queue_.get()] { mark->pass(queue->failure()); };
      },
      WorkQueue::Kind::order);
}

void SoftStream::wait(const Event& event) {
  const auto mark = SoftEvent::from(event).mark();
  if (!mark) return;
  const std::int64_t ns = mark->clock().ns_of(mark->moment());
  const auto advance = [&] { clock_->wait(time_, ns); };
  // A point of this stream lies behind whatever comes next, and its errors are here already.
  if (mark->is_of(*queue_) || (mark->passed() && !mark->failure())) {
    queue_->in_order(advance);
    return;
  }
  queue_->submit(
      Submit::queue, advance, [] {},
      [&]() -> WorkQueue::Work {
        return [mark] {
          mark->wait();
          if (mark->failure()) std::rethrow_exception(mark->failure());
        };
      },
      WorkQueue::Kind::order);
}

bool SoftStream::query() {
  if (!queue_->idle()) return false;
  if (const auto error = queue_->failure()) std::rethrow_exception(error);
  return true;
}

void SoftStream::synchronize() {
  const std::exception_ptr error = queue_->wait([&] { clock_->host_waits_for(time_); });
  if (!error) return;
  queue_->handed_over(error);
  std::rethrow_exception(error);
}

}  // namespace spyre::card
