// Modelled time: what it adds up to, and that nothing but the submissions decides it.
#include <atomic>
#include <random>
#include <thread>

#include "check.h"
#include "streams/clock.h"
#include "support.h"

using namespace spyre::card;
using namespace spyre::card::test;

namespace {

/// A busy program of two streams; returns all the modelled times there are.
std::vector<std::int64_t> modelled_times(Submit submit, unsigned sleep_seed) {
  const auto card = small_card();
  const auto a = card->create_stream(0), b = card->create_stream(-1);
  Tensor x(*card, 1, 4096), y(*card, 2, 1024), z(*card, 3, 1024);
  const auto program = card->load_program(copy_program(1024));
  const Handle x_to_y[] = {x.handle, y.handle}, x_to_z[] = {x.handle, z.handle};
  std::mt19937 random(sleep_seed);
  const auto dawdle = [&](Stream& stream) {
    if (sleep_seed)
      stream.host_callback(
          [us = random() % 500] { std::this_thread::sleep_for(std::chrono::microseconds(us)); });
  };
  std::vector<std::unique_ptr<Event>> events;
  const auto mark = [&](Stream& stream) -> Event& {
    stream.record(*events.emplace_back(card->create_event()));
    return *events.back();
  };
  for (int i = 0; i < 5; ++i) {
    dawdle(*a);
    x.to_card(*a, submit);
    b->wait(mark(*a));
    dawdle(*b);
    y.to_card(*b, submit);
    b->launch(program, x_to_y, submit, nullptr);
    Event& launched = mark(*b);
    dawdle(*a);
    a->launch(program, x_to_z, submit, nullptr);
    if (i % 2) launched.synchronize();
    a->wait(launched);
    y.to_host(*a, submit);
    mark(*a);
    if (i == 2) b->synchronize();
    if (i == 3) card->synchronize();
  }
  card->synchronize();
  std::vector<std::int64_t> times;
  for (const auto& event : events) times.push_back(event->modelled_ns());
  times.push_back(static_cast<std::int64_t>(card->counters().modelled_ns));
  return times;
}

}  // namespace

TEST(modelled_time_is_the_same_whatever_the_host_does) {
  const auto reference = modelled_times(Submit::queue, 0);
  for (unsigned run = 1; run <= 20; ++run)
    CHECK(modelled_times(run % 2 ? Submit::queue : Submit::either, run) == reference);
  CHECK(modelled_times(Submit::either, 0) == reference);
  // Under load, on however many threads.
  std::vector<std::thread> load;
  std::atomic<bool> stop = false;
  for (int i = 0; i < 8; ++i)
    load.emplace_back([&stop] {
      while (!stop) std::this_thread::yield();
    });
  CHECK(modelled_times(Submit::queue, 99) == reference);
  stop = true;
  for (std::thread& thread : load) thread.join();
}

TEST(modelled_time_adds_up_in_a_stream_and_overlaps_across_engines) {
  const auto card = small_card();
  const auto a = card->create_stream(0), b = card->create_stream(0), c = card->create_stream(0);
  Tensor tensor(*card);
  const std::int64_t one = transfer_ns(4096);
  CHECK_EQ(one, spyre::kTransferNs + 66);  // 4096 bytes over PCIe: 65.0003 ns, rounded up
  const auto event = card->create_event();
  const auto time = [&](Stream& stream) {
    stream.record(*event);
    return event->modelled_ns();
  };
  tensor.to_card(*a, Submit::either);
  tensor.to_card(*a, Submit::either);
  CHECK_EQ(time(*a), 2 * one);
  tensor.to_host(*b, Submit::either);  // another engine: starts at 0
  CHECK_EQ(time(*b), one);
  tensor.to_card(*b, Submit::either);  // the engine is free at 2
  CHECK_EQ(time(*b), 3 * one);
  tensor.to_host(*c, Submit::wait);  // 1 to 2; the host waits for it
  CHECK_EQ(time(*c), 2 * one);
  const auto d = card->create_stream(0);
  CHECK_EQ(time(*d), 2 * one);  // nothing can start before the host asks for it
  card->synchronize();
  CHECK_EQ(time(*d), 3 * one);
  CHECK_EQ(card->counters().modelled_ns, static_cast<std::uint64_t>(3 * one));
}

TEST(a_launch_costs_overhead_and_what_its_steps_do) {
  const auto card = small_card();
  const auto stream = card->create_stream(0);
  Tensor x(*card), y(*card);
  const Handle operands[] = {x.handle, y.handle};
  const auto program = card->load_program(copy_program(1024));
  stream->launch(program, operands, Submit::either, nullptr);
  const std::uint64_t sent = static_cast<std::uint64_t>(transfer_ns(program->bytes()));
  Counters counters = card->counters();
  CHECK_EQ(counters.programs_loaded, 1u);
  CHECK_EQ(counters.launches, 1u);
  CHECK_EQ(counters.device_bytes_read, 4096u);
  CHECK_EQ(counters.device_bytes_written, 4096u);
  CHECK_EQ(counters.sfp_elements, 1024u);
  // 4096 bytes over LPDDR5, in both directions at the same time; 1024 elements are less work.
  CHECK_EQ(counters.memory_ns, 20u);
  CHECK_EQ(counters.overhead_ns, std::uint64_t{spyre::kLaunchNs + spyre::kOpNs});
  CHECK_EQ(counters.modelled_ns, sent + counters.memory_ns + counters.overhead_ns);
  CHECK_EQ(counters.program_bytes, program->bytes());
  // The program is there now.
  stream->launch(program, operands, Submit::either, nullptr);
  counters = card->counters();
  CHECK_EQ(counters.modelled_ns, sent + counters.memory_ns + counters.overhead_ns);
  CHECK_EQ(counters.program_bytes, program->bytes());
}

TEST(sending_a_program_overlaps_with_another_streams_launch) {
  const auto card = small_card();
  const auto a = card->create_stream(0), b = card->create_stream(0);
  Tensor x(*card), y(*card), z(*card);
  const Handle to_y[] = {x.handle, y.handle}, to_z[] = {x.handle, z.handle};
  const auto first = card->load_program(copy_program(1024));
  const auto second = card->load_program(copy_program(1024));
  a->launch(first, to_y, Submit::queue, nullptr);
  b->launch(second, to_z, Submit::queue, nullptr);
  const std::int64_t sent = transfer_ns(first->bytes());
  const std::int64_t ran = spyre::kLaunchNs + spyre::kOpNs + 20;
  CHECK(ran < sent);
  CHECK_EQ(card->counters().modelled_ns, static_cast<std::uint64_t>(2 * sent + ran));
}

TEST(reset_sets_counters_and_clock_to_zero_and_keeps_memory) {
  const auto card = small_card();
  const auto stream = card->create_stream(0);
  const auto old = card->create_event();
  Tensor tensor(*card, 5);
  tensor.to_card(*stream, Submit::queue);
  stream->record(*old);
  card->reset();
  CHECK_EQ(card->counters().modelled_ns, 0u);
  CHECK_EQ(card->counters().transfers_to_card, 0u);
  stream->wait(*old);  // a time of the old clock does not count
  old->synchronize();
  tensor.host.assign(tensor.host.size(), 0);
  tensor.to_host(*stream, Submit::wait);
  CHECK_EQ(tensor.host[9], 5);
  CHECK_EQ(card->counters().modelled_ns, static_cast<std::uint64_t>(transfer_ns(4096)));
}
