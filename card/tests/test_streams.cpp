// Streams and events: order, concurrency, lifetimes.
#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <future>
#include <thread>

#include "check.h"
#include "streams/clock.h"
#include "support.h"

using namespace spyre::card;
using namespace spyre::card::test;
using namespace std::chrono_literals;

// ------------------------------------------------------------------------------------------ order

TEST(what_goes_to_the_card_comes_back) {
  const auto card = small_card();
  const auto stream = card->create_stream(0);
  for (const Submit submit : {Submit::wait, Submit::queue, Submit::either}) {
    Tensor tensor(*card, 42);
    tensor.to_card(*stream, submit);
    stream->synchronize();
    tensor.host.assign(tensor.host.size(), 0);
    tensor.to_host(*stream, submit);
    stream->synchronize();
    CHECK_EQ(tensor.host.front(), 42);
    CHECK_EQ(tensor.host.back(), 42);
  }
  CHECK_EQ(card->counters().transfers_to_card, 3u);
  CHECK_EQ(card->counters().bytes_to_host, 3u * 4096);
}

TEST(work_of_a_stream_runs_in_order) {
  const auto card = small_card();
  const auto stream = card->create_stream(0);
  std::vector<int> order;
  for (int i = 0; i < 200; ++i) stream->host_callback([&order, i] { order.push_back(i); });
  stream->synchronize();
  CHECK_EQ(order.size(), 200u);
  CHECK(std::is_sorted(order.begin(), order.end()));
}

TEST(work_waits_in_line_behind_a_busy_stream) {
  const auto card = small_card();
  const auto stream = card->create_stream(0);
  Tensor tensor(*card, 7);
  Gate gate;
  stream->host_callback(gate.callback());
  tensor.to_card(*stream, Submit::either);
  tensor.to_host(*stream, Submit::either);
  CHECK(!stream->query());
  std::atomic<bool> returned = false;
  std::thread waiting([&] {
    tensor.to_host(*stream, Submit::wait);
    returned = true;
  });
  std::this_thread::sleep_for(20ms);
  CHECK(!returned);
  gate.open();
  waiting.join();
  CHECK(returned);
  CHECK(stream->query());
  CHECK_EQ(tensor.host[5], 7);
}

TEST(idle_streams_run_on_the_calling_thread_and_cost_no_thread) {
  const auto card = small_card();
  const auto threads = [] {
    std::ifstream status("/proc/self/status");
    std::string line;
    while (std::getline(status, line))
      if (line.starts_with("Threads:")) return std::stoi(line.substr(8));
    return -1;
  };
  Tensor tensor(*card, 1, 32);
  tensor.to_card(*card->create_stream(0), Submit::wait);
  const int before = threads();
  std::vector<std::unique_ptr<Stream>> streams;
  for (int i = 0; i < 65; ++i) streams.push_back(card->create_stream(i > 32 ? -1 : 0));
  for (const auto& stream : streams) tensor.to_card(*stream, Submit::either);
  const auto event = card->create_event();
  streams[1]->record(*event);
  streams[2]->wait(*event);
  CHECK(event->query());
  CHECK_EQ(threads(), before);
  CHECK_EQ(streams[64]->priority(), -1);
}

TEST(streams_run_concurrently) {
  const auto card = small_card();
  const auto a = card->create_stream(0), b = card->create_stream(-1);
  std::promise<void> in_a, in_b;
  a->host_callback([&] {
    in_a.set_value();
    in_b.get_future().wait();
  });
  b->host_callback([&] {
    in_b.set_value();
    in_a.get_future().wait();
  });
  card->synchronize();
  CHECK(a->query() && b->query());
}

TEST(many_threads_may_submit_to_one_stream) {
  const auto card = small_card();
  const auto stream = card->create_stream(0);
  std::vector<std::thread> threads;
  int callbacks = 0;  // only ever touched by the stream
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&, t] {
      Tensor tensor(*card, t, 64);
      for (int i = 0; i < 100; ++i) {
        const Submit submit = std::array{Submit::wait, Submit::queue, Submit::either}[i % 3];
        tensor.to_card(*stream, submit);
        stream->host_callback([&callbacks] { ++callbacks; });
      }
      tensor.to_host(*stream, Submit::wait);
      CHECK_EQ(tensor.host[3], t);
      stream->synchronize();
    });
  for (std::thread& thread : threads) thread.join();
  CHECK_EQ(callbacks, 800);
  CHECK_EQ(card->counters().transfers_to_card, 800u);
  CHECK_EQ(card->counters().modelled_ns, static_cast<std::uint64_t>(808 * transfer_ns(256)));
}

TEST(destroying_a_stream_runs_what_it_has) {
  const auto card = small_card();
  int done = 0;
  {
    const auto stream = card->create_stream(0);
    for (int i = 0; i < 10; ++i)
      stream->host_callback([&done] {
        std::this_thread::sleep_for(1ms);
        ++done;
      });
  }
  CHECK_EQ(done, 10);
}

TEST(a_stream_may_be_destroyed_by_its_own_work) {
  const auto card = small_card();
  std::promise<void> finished;
  auto stream = std::make_shared<std::unique_ptr<Stream>>(card->create_stream(0));
  Stream& alive = **stream;
  Gate gate;
  alive.host_callback(gate.callback());
  alive.host_callback([stream] { stream->reset(); });
  alive.host_callback([&] { finished.set_value(); });
  gate.open();
  CHECK(finished.get_future().wait_for(10s) == std::future_status::ready);
}

TEST(streams_outlive_their_card) {
  auto card = small_card();
  const auto stream = card->create_stream(0);
  const auto event = card->create_event();
  const auto program = card->load_program(copy_program(32));
  card.reset();
  int done = 0;
  stream->host_callback([&done] { ++done; });
  stream->record(*event);
  event->synchronize();
  CHECK_EQ(done, 1);
}

// ----------------------------------------------------------------------------------------- checks

TEST(bad_transfers_are_refused_when_submitted) {
  const auto card = small_card(), other = small_card();
  const auto stream = card->create_stream(0);
  Tensor tensor(*card), foreign(*other);
  const auto send = [&](std::size_t host_bytes, DataConversion conversion,
                        const void* host = nullptr) {
    stream->to_card(host ? host : tensor.host.data(), host_bytes, tensor.handle,
                    std::move(conversion), Submit::queue, nullptr);
  };
  CHECK_THROWS(send(4095, copy(1024, true)), "source");
  CHECK_THROWS(send(8192, copy(1025, true)), "destination");
  CHECK_THROWS(send(4096, copy(1024, false)), "the transfer goes host to card");
  DataConversion wide = copy(1024, true);
  wide.dst = spyre::DataFormat::IEEE_FP64;
  CHECK_THROWS(send(4096, wide), "IEEE_FP64 is not a format of device memory");
  CHECK_THROWS(foreign.to_card(*stream, Submit::queue), "not an allocation of this card");
  CHECK_THROWS(
      stream->to_card(nullptr, 4096, tensor.handle, copy(1024, true), Submit::wait, nullptr),
      "host pointer is null");
  CHECK_THROWS(stream->host_callback(nullptr), "no function");
  stream->synchronize();
  CHECK_EQ(card->counters().transfers_to_card, 0u);
  CHECK_EQ(card->counters().modelled_ns, 0u);
}

// ----------------------------------------------------------------------------------------- errors

TEST(work_that_waits_for_its_own_stream_gets_an_error) {
  const auto card = small_card();
  const auto stream = card->create_stream(0);
  Tensor tensor(*card);
  stream->host_callback([&] { stream->synchronize(); });
  CHECK_THROWS(stream->synchronize(), "wait for itself");
  stream->host_callback([&] { tensor.to_card(*stream, Submit::wait); });
  CHECK_THROWS(stream->synchronize(), "wait for itself");
  stream->host_callback([&] { tensor.to_card(*stream, Submit::either); });
  stream->synchronize();
  stream->synchronize();  // what the callback submitted
}

TEST(what_is_retained_is_released_when_the_work_is_done) {
  const auto card = small_card();
  const auto stream = card->create_stream(0);
  Tensor tensor(*card);
  for (const Submit submit : {Submit::wait, Submit::queue, Submit::either}) {
    Gate gate;
    if (submit != Submit::wait) stream->host_callback(gate.callback());
    auto retained = std::make_shared<int>(1);
    const std::weak_ptr<int> watch = retained;
    tensor.to_card(*stream, submit, std::move(retained));
    CHECK_EQ(watch.expired(), submit == Submit::wait);
    gate.open();
    stream->synchronize();
    CHECK(watch.expired());
  }
}

TEST(releasing_what_was_retained_may_use_the_stream_and_the_card) {
  const auto card = small_card();
  const auto stream = card->create_stream(0);
  Tensor tensor(*card);
  int released = 0;
  for (const Submit submit : {Submit::wait, Submit::queue}) {
    const Handle extra = card->allocate(128, MemoryKind::tensor);
    tensor.to_card(*stream, submit, Retained(extra, [&](const void* handle) {
      card->free(const_cast<Handle>(handle));
      stream->query();
      stream->host_callback([&released] { ++released; });
    }));
    stream->synchronize();
    stream->synchronize();  // what the release submitted
  }
  CHECK_EQ(released, 2);
  CHECK_EQ(card->memory_info(MemoryKind::tensor).allocations, 1u);
}

// ----------------------------------------------------------------------------------------- events

TEST(an_event_makes_another_stream_wait) {
  const auto card = small_card();
  const auto a = card->create_stream(0), b = card->create_stream(0);
  const auto event = card->create_event();
  std::vector<char> order;
  a->host_callback([&order] {
    std::this_thread::sleep_for(30ms);
    order.push_back('a');
  });
  a->record(*event);
  b->wait(*event);  // does not block this thread
  b->host_callback([&order] { order.push_back('b'); });
  CHECK(!event->query());
  card->synchronize();
  CHECK(event->query());
  CHECK((order == std::vector<char>{'a', 'b'}));
}

TEST(an_event_never_recorded_is_passed) {
  const auto card = small_card();
  const auto stream = card->create_stream(0);
  const auto event = card->create_event();
  CHECK(event->query() && !event->recorded());
  event->synchronize();
  stream->wait(*event);
  CHECK(stream->query());
  CHECK_THROWS(event->modelled_ns(), "never recorded");
  CHECK_THROWS(event->wall_ns(), "never recorded");
  stream->record(*event);
  CHECK(event->query() && event->recorded());
  CHECK(event->wall_ns() > 0);
}

TEST(recording_again_moves_the_event_but_not_those_who_wait) {
  const auto card = small_card();
  const auto a = card->create_stream(0), b = card->create_stream(0), c = card->create_stream(0);
  const auto event = card->create_event();
  Gate first, second;
  std::promise<void> b_ran;
  bool c_ran = false;
  a->host_callback(first.callback());
  a->record(*event);
  b->wait(*event);  // the first mark
  b->host_callback([&b_ran] { b_ran.set_value(); });
  a->host_callback(second.callback());
  a->record(*event);
  c->wait(*event);  // the second mark
  c->host_callback([&c_ran] { c_ran = true; });
  first.open();
  CHECK(b_ran.get_future().wait_for(10s) == std::future_status::ready);
  CHECK(!event->query());
  CHECK(!c->query());
  second.open();
  event->synchronize();
  c->synchronize();
  CHECK(c_ran);
}

TEST(events_order_work_across_cards) {
  const auto card_a = small_card(), card_b = small_card();
  const auto a = card_a->create_stream(0), b = card_b->create_stream(0);
  const auto event = card_a->create_event();
  Tensor tensor_a(*card_a, 3), tensor_b(*card_b, 0);
  Gate gate;
  std::vector<char> order;
  a->host_callback(gate.callback());
  a->host_callback([&order] { order.push_back('a'); });
  tensor_a.to_card(*a, Submit::queue);
  a->record(*event);
  b->wait(*event);
  b->host_callback([&order] { order.push_back('b'); });
  tensor_b.to_card(*b, Submit::queue);
  gate.open();
  b->synchronize();
  CHECK((order == std::vector<char>{'a', 'b'}));
  const std::int64_t one = transfer_ns(4096);
  CHECK_EQ(event->modelled_ns(), one);
  CHECK_EQ(card_b->counters().modelled_ns, static_cast<std::uint64_t>(2 * one));
}

// ----------------------------------------------------------------------------- the process's life

TEST(cleaning_up_in_a_forked_child_does_not_hang) {
  auto card = small_card();
  auto busy = card->create_stream(0), waiting = card->create_stream(0);
  auto event = card->create_event();
  auto program = card->load_program(copy_program(32));
  auto tensor = std::make_unique<Tensor>(*card);
  Gate gate;
  busy->host_callback(gate.callback());
  busy->record(*event);
  waiting->wait(*event);
  tensor->to_card(*waiting, Submit::queue, std::make_shared<int>(1));
  std::thread other([&] { waiting->synchronize(); });
  std::this_thread::sleep_for(10ms);
  const int status = status_in_child([&] {
    tensor.reset();
    program.reset();
    event.reset();
    waiting.reset();
    busy.reset();
    card.reset();
  });
  CHECK_EQ(status, 0);
  gate.open();
  other.join();
  card->synchronize();
}

#ifndef __SANITIZE_THREAD__  // it cannot start threads in the child of a process with threads
TEST(a_forked_child_with_a_card_of_its_own_waits_for_its_streams) {
  const auto stream = small_card()->create_stream(0);
  Gate gate;
  stream->host_callback(gate.callback());
  std::thread sleeper([&] { stream->synchronize(); });
  std::this_thread::sleep_for(10ms);  // it is asleep by then
  const int status = status_in_child([] {
    const auto card = small_card();
    const auto own = card->create_stream(0);
    const auto event = card->create_event();
    bool called = false;
    own->host_callback([&] {
      std::this_thread::sleep_for(5ms);
      called = true;
    });
    own->record(*event);
    event->synchronize();
    own->synchronize();
    if (!called) std::abort();
  });
  CHECK_EQ(status, 0);
  gate.open();
  sleeper.join();
}

TEST(a_process_may_end_with_work_in_its_streams) {
  const int status = status_in_child([] {
    static auto& card = *new std::shared_ptr<SoftCard>(small_card());
    static auto& stream = *new std::unique_ptr<Stream>(card->create_stream(0));
    for (int i = 0; i < 100; ++i) stream->host_callback([] { std::this_thread::sleep_for(5ms); });
    alarm(5);
    std::exit(7);
  });
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7);
}
#endif
