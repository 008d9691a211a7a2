// What a stream does that checks: the same, by way of the checker. It runs where the work would
// have run, so that errors come where they always do: of an idle stream, in the call that
// submitted.
#include <utility>
#include <vector>

#include "checker/checker.h"
#include "nests/move.h"
#include "streams/stream.h"

namespace spyre::card {

void SoftStream::set_checks(bool on) {
  if (checks_.exchange(on) == on) return;
  on ? start_checking(*memory_) : stop_checking(*memory_);
}

void SoftStream::launch_checked(Checker& checker, std::span<const Launch> launches,
                                const Extent* operands, Submit submit, Retained retained) {
  std::vector<Checker::Held> held;
  for (const Launch& each : launches)
    for (std::size_t i = 0; i < each.operands.size(); ++i)
      held.push_back(checker.hold(*operands++));
  queue_->submit(
      submit, [&] { price(launches, submit); },
      [&] {
        checker.run(memory_->scratchpads(), launches, held.data());
        retained.reset();
      },
      [&]() -> WorkQueue::Work {
        return [&checker, kept_launches = std::vector<Launch>(launches.begin(), launches.end()),
                held = std::move(held), memory = memory_, retained = std::move(retained)] {
          checker.run(memory->scratchpads(), kept_launches, held.data());
        };
      });
}

void SoftStream::transfer_checked(Checker& checker, Engine engine, const std::byte* src,
                                  std::byte* dst, DataConversion conversion, const Extent& device,
                                  std::uint64_t device_bytes, Submit submit, Retained retained) {
  const auto run = [&checker, engine, src, dst, held = checker.hold(device),
                    memory = memory_](const DataConversion& descriptor) {
    checker.transfer(descriptor, held, engine == Engine::to_card,
                     [&] { move(descriptor, src, dst); });
  };
  queue_->submit(
      submit, [&] { clock_->transfer(engine, device_bytes, time_, submit); },
      [&] {
        run(conversion);
        retained.reset();
      },
      [&]() -> WorkQueue::Work {
        return [run, conversion = std::move(conversion), retained = std::move(retained)] {
          run(conversion);
        };
      });
}

}  // namespace spyre::card
