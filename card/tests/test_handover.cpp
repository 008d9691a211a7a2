// Programs launched together: what one leaves in the scratchpads, the next finds; and refusals.
#include <atomic>
#include <thread>

#include "core_support.h"

using namespace spyre::card;
using namespace spyre::card::test;

namespace {

constexpr std::int64_t kCores = 5;
constexpr std::int64_t kAddress = 4096;  // in the scratchpads
constexpr std::int64_t kElements = kCores * kLanes;

/// A stick on each core: operand 0 or the scratchpad, doubled, into operand 0 or the scratchpad.
std::vector<std::byte> doubled(bool from_pad, bool to_pad, const Handover& handover) {
  CoreProgram cores;
  cores.cores = kCores;
  for (const bool pad : {from_pad, to_pad})
    cores.operands.push_back(pad ? part(kPad, kCores, 0, kAddress) : part(0, kCores, kStick));
  cores.nodes = {step_node(add_step(0, 0, 1), 0, kCores)};
  ProgramBuilder builder;
  if (!handover.found.empty() || !handover.left.empty()) builder.handover(handover);
  builder.cores(cores);
  return builder.finish();
}

const ScratchpadBytes kBytes{kAddress, kAddress + kStick, kCores};

struct Bench {
  std::shared_ptr<SoftCard> card = small_card(64 * kMiB);
  std::shared_ptr<const Program> leave = card->load_program(doubled(false, true, {{}, {kBytes}}));
  std::shared_ptr<const Program> pass =
      card->load_program(doubled(true, true, {{kBytes}, {kBytes}}));
  std::shared_ptr<const Program> take = card->load_program(doubled(true, false, {{kBytes}, {}}));

  /// The programs on one tensor that holds `value` everywhere; what it holds then.
  std::int32_t run(Stream& stream, const std::vector<std::shared_ptr<const Program>>& programs,
                   std::int32_t value, Submit submit) {
    std::vector<std::int32_t> host(kElements, value);
    const std::size_t bytes = host.size() * 4;
    const Handle x = card->allocate(bytes, MemoryKind::tensor);
    stream.to_card(host.data(), bytes, x, copy(kElements, true), Submit::wait, nullptr);
    std::vector<Launch> launches;
    for (const auto& program : programs)
      launches.push_back({program, program == pass ? std::span<const Handle>{} : std::span(&x, 1)});
    stream.launch(launches, submit, nullptr);
    launches.clear();  // nobody may look at them any more
    stream.to_host(x, host.data(), bytes, copy(kElements, false), Submit::wait, nullptr);
    card->free(x);
    for (const std::int32_t each : host) CHECK_EQ(each, host[0]);
    return host[0];
  }
};

}  // namespace

TEST(programs_launched_together_find_what_was_left) {
  Bench bench;
  const auto stream = bench.card->create_stream(0);
  for (const Submit submit : {Submit::wait, Submit::queue, Submit::either}) {
    CHECK_EQ(bench.run(*stream, {bench.leave, bench.take}, 3, submit), 12);
    CHECK_EQ(bench.run(*stream, {bench.leave, bench.pass, bench.pass, bench.take}, 3, submit), 48);
  }
}

TEST(nothing_of_another_stream_comes_in_between) {
  Bench bench;
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (int number = 1; number <= 4; ++number)
    threads.emplace_back([&, number] {
      const auto stream = bench.card->create_stream(0);
      for (int i = 0; i < 200; ++i) {
        const Submit submit = i % 2 ? Submit::queue : Submit::either;
        if (bench.run(*stream, {bench.leave, bench.pass, bench.take}, number, submit) != 8 * number)
          ++wrong;
      }
    });
  for (std::thread& thread : threads) thread.join();
  CHECK_EQ(wrong.load(), 0);
}

TEST(a_program_without_the_one_before_it_is_refused_when_submitted) {
  Bench bench;
  const auto stream = bench.card->create_stream(0);
  const auto launch = [&](const std::vector<std::shared_ptr<const Program>>& programs) {
    bench.run(*stream, programs, 1, Submit::queue);
  };
  CHECK_THROWS(launch({bench.take}),
               "reads bytes 4096..4224 of the scratchpads of 5 cores, which the program launched "
               "before it has to leave there; launch both together");
  const auto other = bench.card->load_program(doubled(false, true, {}));
  CHECK_THROWS(launch({bench.leave, other, bench.take}), "does not leave there");
  for (const ScratchpadBytes left : {ScratchpadBytes{kAddress, kAddress + kStick, kCores - 1},
                                     ScratchpadBytes{kAddress + kStick, kAddress + 2 * kStick, 32}})
    CHECK_THROWS(launch({bench.card->load_program(doubled(false, true, {{}, {left}})), bench.take}),
                 "does not leave there");
  // Left, and not taken: nobody has to.
  launch({bench.leave});
  bench.card->synchronize();
}

TEST(a_shared_card_refuses_programs_that_find_something) {
  SoftCard card(MemoryLimits{64 * kMiB, 0}, true);
  CHECK_THROWS(card.load_program(doubled(true, false, {{kBytes}, {}})), "compile it for VF");
  card.load_program(doubled(false, true, {}));
}

TEST(handovers_that_make_no_sense_are_refused) {
  Bench bench;
  const auto load = [&](const ScratchpadBytes& range) {
    bench.card->load_program(doubled(true, false, {{range}, {}}));
  };
  CHECK_THROWS(load({-128, 0, 1}), "found 0, begin: -128 is not in");
  CHECK_THROWS(load({64, 256, 1}), "found 0, begin: not that of a stick");
  CHECK_THROWS(load({128, 200, 1}), "end: 200 is not in");
  CHECK_THROWS(load({128, 300, 1}), "end: not that of a stick");
  CHECK_THROWS(load({0, spyre::kLxBytesPerCore + 128, 1}), "end: 2097280 is not in");
  CHECK_THROWS(load({0, 128, 33}), "cores: 33 is not in 1..32");
  ProgramBuilder builder;
  builder.handover({});
  builder.handover({});
  CHECK_THROWS(bench.card->load_program(builder.finish()), "a program hands over once");
}
