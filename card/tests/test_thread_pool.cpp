// Loops that threads share: every task once, whatever the others do.
#include <atomic>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "check.h"
#include "thread_pool.h"

using namespace spyre::card;

namespace {

ThreadPool& pool_of(int threads) { return *new ThreadPool(threads); }

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
