#include "platform/soft_card.h"

#include <exception>
#include <utility>

#include "checker/checker.h"
#include "host/environment.h"
#include "program/program.h"
#include "streams/event.h"
#include "streams/stream.h"

namespace spyre::card {

SoftCard::SoftCard(const MemoryLimits& limits, bool shared)
    : properties_{"IBM Spyre (software card)", "dd2", static_cast<int>(kCores), limits.card_bytes,
                  static_cast<std::uint64_t>(kLxBytesPerCore)},
      shared_(shared),
      checks_(card_check()),
      memory_(std::make_shared<DeviceMemory>(limits)),
      clock_(std::make_shared<Clock>()) {
  if (checks_) start_checking(*memory_);  // what is allocated before the first stream counts, too
}

Handle SoftCard::allocate(std::size_t bytes, MemoryKind kind) {
  return memory_->allocate(bytes, kind);
}

void SoftCard::name_allocation(Handle handle, const std::string& name) {
  if (Checker* const checker = checker_of(*memory_)) checker->name(memory_->locate(handle), name);
}

std::unique_ptr<Stream> SoftCard::create_stream(int priority) {
  auto stream = std::make_unique<SoftStream>(memory_, clock_, priority);
  if (checks_) stream->set_checks(true);
  const std::lock_guard lock(mutex_);
  std::erase_if(queues_, [](const auto& queue) { return queue.expired(); });
  queues_.push_back(stream->queue());
  return stream;
}

std::unique_ptr<Event> SoftCard::create_event() { return std::make_unique<SoftEvent>(); }

std::shared_ptr<const Program> SoftCard::load_program(std::span<const std::byte> binary) {
  auto program = std::make_shared<const SoftProgram>(binary, memory_);
  if (shared_ && !program->handover().found.empty())
    throw Error(ErrorCode::invalid_argument,
                "program: it reads what another program left in the scratchpads, but the card is "
                "shared (VF): others use them in between; compile it for VF");
  clock_->program_loaded();
  return program;
}

void SoftCard::synchronize() {
  clock_->host_waits_for_all();
  const auto queues = live_queues();
  std::exception_ptr first;
  for (const auto& queue : queues)
    if (const auto error = queue->wait(); !first) first = error;
  if (!first) return;
  // Streams that waited for the one that failed have the same error.
  for (const auto& queue : queues) queue->handed_over(first);
  std::rethrow_exception(first);
}

void SoftCard::reset() {
  for (const auto& queue : live_queues()) queue->handed_over(queue->wait());
  clock_->reset();
}

/// To wait for them without the card's lock: work may create streams of this card.
std::vector<std::shared_ptr<WorkQueue>> SoftCard::live_queues() const {
  std::vector<std::shared_ptr<WorkQueue>> live;
  const std::lock_guard lock(mutex_);
  for (const auto& queue : queues_)
    if (auto alive = queue.lock()) live.push_back(std::move(alive));
  return live;
}

}  // namespace spyre::card
