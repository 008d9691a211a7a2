// Loops that threads share: every task once, whatever the others do.
#include <atomic>
#include <chrono>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "check.h"
#include "host/thread_pool.h"

using namespace spyre::card;

namespace {

/// Pools live as long as the process, as that of the card does. So does the list: a list that went
/// first would leave them as leaks.
ThreadPool& pool_of(int threads) {
  static auto& pools = *new std::vector<ThreadPool*>;
  return *pools.emplace_back(new ThreadPool(threads));
}

bool all_once(const std::vector<std::atomic<int>>& counts) {
  for (const auto& count : counts)
    if (count != 1) return false;
  return true;
}

}  // namespace

TEST(each_task_runs_once) {
  for (const int threads : {1, 2, 5, 40}) {
    ThreadPool& pool = pool_of(threads);
    for (const std::int64_t tasks : {0, 1, 2, 3, 7, 32, 33, 1000}) {
      std::vector<std::atomic<int>> counts(static_cast<std::size_t>(tasks));
      pool.parallel_for(tasks, [&](std::int64_t i) { ++counts[static_cast<std::size_t>(i)]; });
      CHECK(all_once(counts));
    }
  }
}

TEST(slow_tasks_of_one_thread_are_taken_over) {
  ThreadPool& pool = pool_of(4);
  std::atomic<int> others{0};
  // The first task waits for all others, those behind it in its thread's share included.
  pool.parallel_for(16, [&](std::int64_t i) {
    if (i > 0) ++others;
    while (i == 0 && others < 15) std::this_thread::yield();
  });
  CHECK(others == 15);
}

TEST(an_error_ends_the_loop_and_reaches_the_caller) {
  ThreadPool& pool = pool_of(3);
  for (int round = 0; round < 50; ++round) {
    std::atomic<int> after{0};
    std::string message;
    try {
      pool.parallel_for(10000, [&](std::int64_t i) {
        if (i % 1000 == 7) throw std::runtime_error("task 7 of 1000");
        ++after;
      });
    } catch (const std::runtime_error& error) {
      message = error.what();
    }
    CHECK(message == "task 7 of 1000");
    CHECK(after < 10000 - 10);
  }
}

TEST(threads_may_start_loops_at_once_and_inside_of_tasks) {
  ThreadPool& pool = pool_of(3);
  std::vector<std::atomic<int>> counts(4 * 20 * 10);
  std::vector<std::thread> callers;
  for (std::size_t caller = 0; caller < 4; ++caller)
    callers.emplace_back([&, caller] {
      pool.parallel_for(20, [&](std::int64_t outer) {
        pool.parallel_for(10, [&](std::int64_t inner) {
          ++counts[(caller * 20 + static_cast<std::size_t>(outer)) * 10 +
                   static_cast<std::size_t>(inner)];
        });
      });
    });
  for (std::thread& caller : callers) caller.join();
  CHECK(all_once(counts));
}

TEST(a_guest_works_where_one_is_expected) {
  for (const int threads : {2, 4}) {
    ThreadPool& pool = pool_of(threads);
    std::atomic<bool> over{false};
    std::atomic<int> guests{0};
    std::vector<std::atomic<int>> counts(64), users(static_cast<std::size_t>(threads) + 1);
    // Both would take the one place of a guest: they must not have it at once.
    const auto help = [&] { pool.help_until([&] { return over.load(); }); };
    std::thread first(help), second(help);
    std::thread caller([&] {
      const ThreadPool::ExpectGuest expected;
      for (int round = 0; round < 200 || guests < 10; ++round) {
        for (auto& count : counts) count = 0;
        pool.parallel_for(64, [&](std::int64_t i) {
          const int thread = ThreadPool::this_thread();
          CHECK_EQ(users[static_cast<std::size_t>(thread)].fetch_add(1), 0);
          if (thread == threads) ++guests;
          ++counts[static_cast<std::size_t>(i)];
          --users[static_cast<std::size_t>(thread)];
        });
        CHECK(all_once(counts));
      }
      over = true;
      pool.wake_guests();
    });
    caller.join();
    first.join();
    second.join();
  }
}

TEST(a_guest_without_work_waits_or_gives_up) {
  for (const int threads : {1, 2}) {
    ThreadPool& pool = pool_of(threads);
    int asked = 0;
    pool.help_while_busy([] { return false; }, [&] { return ++asked < 3; });
    CHECK_EQ(asked, 3);
    std::atomic<bool> over{false};
    std::thread other([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));  // it is asleep by then
      over = true;
      pool.wake_guests();
    });
    pool.help_until([&] { return over.load(); });
    CHECK(over);
    other.join();
  }
}
