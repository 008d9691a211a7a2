// Errors of asynchronous work: who gets them, and what happens to the work behind.
#include <atomic>
#include <functional>
#include <thread>

#include "check.h"
#include "support.h"

using namespace spyre::card;
using namespace spyre::card::test;
using namespace std::chrono_literals;

namespace {

/// A stream on which work fails that nobody waits for, and a tensor whose card memory holds 1.
struct Bench {
  std::shared_ptr<SoftCard> card = small_card();
  std::unique_ptr<Stream> stream = card->create_stream(0);
  Tensor tensor{*card, 1};

  Bench() { tensor.to_card(*stream, Submit::wait); }

  void fail(const char* why = "failed") {
    stream->host_callback([why] { throw std::runtime_error(why); });
  }
  void fail_and_wait_until_idle() {
    fail();
    CHECK_THROWS(
        [this] {
          while (!stream->query()) std::this_thread::yield();
        }(),
        "failed");
  }
  std::int32_t on_card() {
    tensor.host.assign(tensor.host.size(), 0);
    tensor.to_host(*stream, Submit::wait);
    return tensor.host[5];
  }
};

}  // namespace

TEST(whoever_waits_for_a_stream_gets_the_error_that_it_kept) {
  using Wait = std::function<void(Bench&)>;
  const std::pair<const char*, Wait> waits[] = {
      {"to_host", [](Bench& bench) { bench.tensor.to_host(*bench.stream, Submit::wait); }},
      {"to_card", [](Bench& bench) { bench.tensor.to_card(*bench.stream, Submit::wait); }},
      {"launch",
       [](Bench& bench) {
         const Handle operands[] = {bench.tensor.handle, bench.tensor.handle};
         bench.stream->launch(bench.card->load_program(copy_program(32)), operands, Submit::wait,
                              nullptr);
       }},
      {"stream", [](Bench& bench) { bench.stream->synchronize(); }},
      {"card", [](Bench& bench) { bench.card->synchronize(); }},
      {"event",
       [](Bench& bench) {
         const auto event = bench.card->create_event();
         bench.stream->record(*event);
         event->synchronize();
       }},
      {"time of an event",
       [](Bench& bench) {
         const auto event = bench.card->create_event();
         bench.stream->record(*event);
         event->wall_ns();
       }},
      {"stream that waits for an event",
       [](Bench& bench) {
         const auto event = bench.card->create_event();
         const auto other = bench.card->create_stream(0);
         bench.stream->record(*event);
         other->wait(*event);
         bench.card->synchronize();  // both have the error, which is thrown once
       }},
  };
  for (const bool idle : {false, true}) {
    for (const auto& [name, wait] : waits) {
      Bench bench;
      idle ? bench.fail_and_wait_until_idle() : bench.fail();
      std::string thrown = "nothing";
      try {
        wait(bench);
      } catch (const std::exception& error) {
        thrown = error.what();
      }
      if (thrown != "failed") check::fail(__FILE__, __LINE__, std::string(name) + ": " + thrown);
      // It has been handed over: the stream works on.
      bench.stream->synchronize();
      bench.card->synchronize();
      CHECK_EQ(bench.on_card(), 1);
    }
  }
}

TEST(work_that_could_run_at_once_gets_the_error_instead) {
  Bench bench;
  bench.fail_and_wait_until_idle();
  bench.tensor.host.assign(1024, 2);
  CHECK_THROWS(bench.tensor.to_card(*bench.stream, Submit::either), "failed");
  CHECK_EQ(bench.on_card(), 1);
}

TEST(errors_of_programs_say_that_they_are_late) {
  Bench bench;
  const auto other = bench.card->create_stream(0);
  const auto event = bench.card->create_event();
  bench.stream->host_callback([] { throw Error(ErrorCode::bad_index, "index 7 is too large"); });
  bench.stream->record(*event);
  other->wait(*event);
  std::string message;
  try {
    other->synchronize();
  } catch (const Error& error) {
    message = error.what();
    CHECK(error.code == ErrorCode::bad_index);
  }
  const std::string late = " (This is of work that was queued before";
  CHECK(message.starts_with("index 7 is too large" + late));
  CHECK_EQ(message.find(late), message.rfind(late));
  CHECK_THROWS(bench.on_card(), message);
}

TEST(work_behind_a_failure_is_not_run_and_releases_what_it_held) {
  Bench bench;
  Gate gate;
  bench.stream->host_callback(gate.callback());
  bench.fail("first");
  bench.fail("second");
  bench.tensor.host.assign(1024, 2);
  auto retained = std::make_shared<int>(1);
  const std::weak_ptr<int> watch = retained;
  bench.tensor.to_card(*bench.stream, Submit::queue, std::move(retained));
  int called = 0;
  bench.stream->host_callback([&called] { ++called; });
  gate.open();
  CHECK_THROWS(bench.stream->synchronize(), "first");
  CHECK(watch.expired());
  CHECK_EQ(called, 0);
  CHECK_EQ(bench.on_card(), 1);
  bench.stream->host_callback([&called] { ++called; });
  bench.stream->synchronize();
  CHECK_EQ(called, 1);
}

TEST(what_was_queued_before_the_error_was_handed_over_never_runs) {
  Bench bench;
  const auto event = bench.card->create_event();
  Gate gate;
  int called = 0;
  bench.fail();
  bench.stream->record(*event);
  const auto third = bench.card->create_stream(0);
  const auto held = bench.card->create_event();
  third->host_callback(gate.callback());
  third->record(*held);
  bench.stream->wait(*held);  // waits behind a failure too
  bench.stream->host_callback([&called] { ++called; });
  CHECK_THROWS(event->synchronize(), "failed");  // the callback is still in line
  bench.stream->host_callback([&called] { called += 10; });
  gate.open();
  bench.stream->synchronize();
  CHECK_EQ(called, 10);
}

TEST(an_event_behind_failed_work_says_so_until_it_is_recorded_again) {
  Bench bench;
  const auto event = bench.card->create_event();
  bench.fail();
  bench.stream->record(*event);
  CHECK_THROWS(bench.stream->synchronize(), "failed");
  CHECK(bench.stream->query());
  CHECK_THROWS(event->query(), "failed");
  CHECK_THROWS(event->synchronize(), "failed");
  CHECK_THROWS(event->synchronize(), "failed");
  bench.stream->wait(*event);  // of the stream itself: it knows
  CHECK_EQ(bench.on_card(), 1);
  bench.stream->record(*event);
  event->synchronize();
}

TEST(streams_that_wait_for_failed_work_fail_with_it) {
  for (const bool passed : {false, true}) {
    Bench bench;
    const auto event = bench.card->create_event();
    const auto other = bench.card->create_stream(0);
    Gate gate;
    int before = 0, behind = 0;
    bench.stream->host_callback(gate.callback());
    bench.fail();
    bench.stream->record(*event);
    if (passed) {
      gate.open();
      CHECK_THROWS(bench.stream->synchronize(), "failed");
    }
    other->host_callback([&before] { ++before; });
    other->wait(*event);
    other->host_callback([&behind] { ++behind; });
    if (!passed) gate.open();
    CHECK_THROWS(other->synchronize(), "failed");
    CHECK_EQ(before, 1);
    CHECK_EQ(behind, 0);
    if (!passed) CHECK_THROWS(bench.stream->synchronize(), "failed");
    bench.card->synchronize();
    CHECK_EQ(bench.on_card(), 1);
  }
}

TEST(all_who_wait_at_the_same_time_get_the_error) {
  Bench bench;
  Gate gate;
  bench.stream->host_callback(gate.callback());
  bench.fail();
  std::atomic<int> told = 0, started = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&, i] {
      ++started;
      try {
        Tensor own(*bench.card);
        if (i % 2) {
          bench.stream->synchronize();
        } else {
          own.to_host(*bench.stream, Submit::wait);
        }
      } catch (const std::exception&) {
        ++told;
      }
    });
  while (started < 4) std::this_thread::yield();
  std::this_thread::sleep_for(30ms);
  gate.open();
  for (std::thread& thread : threads) thread.join();
  CHECK_EQ(told.load(), 4);
  CHECK_EQ(bench.on_card(), 1);
}

TEST(errors_of_two_streams_are_both_reported) {
  Bench bench;
  const auto other = bench.card->create_stream(0);
  bench.fail("one");
  other->host_callback([] { throw std::runtime_error("two"); });
  CHECK_THROWS(bench.card->synchronize(), "one");
  CHECK_THROWS(bench.card->synchronize(), "two");
  CHECK_THROWS(bench.card->synchronize(), "nothing");
}

TEST(a_reset_card_has_forgotten_its_errors) {
  Bench bench;
  bench.fail();
  bench.card->reset();
  CHECK_EQ(bench.on_card(), 1);
  bench.fail();
  CHECK_THROWS(bench.stream->synchronize(), "failed");
}
