// The threads that the card starts: how many, and which signals reach them.
#include <pthread.h>
#include <sched.h>

#include <atomic>
#include <csignal>
#include <filesystem>

#include "check.h"
#include "host/environment.h"
#include "host/processors.h"
#include "host/thread_pool.h"
#include "support.h"

using namespace spyre::card;
using namespace spyre::card::test;

namespace {

bool blocked_here(int signal) {
  sigset_t mask;
  pthread_sigmask(SIG_BLOCK, nullptr, &mask);
  return sigismember(&mask, signal) == 1;
}

/// Synchronous faults and profilers' timers arrive; what is sent to the program does not.
void check_signals_here() {
  for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGSYS, SIGPROF})
    if (blocked_here(signal))
      check::fail(__FILE__, __LINE__, "signal " + std::to_string(signal) + " is blocked");
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGCHLD, SIGALRM,
                           SIGWINCH, SIGPIPE, SIGIO})
    if (!blocked_here(signal))
      check::fail(__FILE__, __LINE__, "signal " + std::to_string(signal) + " is not blocked");
}

/// Files below a directory that is gone at the end.
class Files {
 public:
  Files() {
    char pattern[] = "/tmp/spyre_test_XXXXXX";
    root_ = mkdtemp(pattern);
  }
  ~Files() { std::filesystem::remove_all(root_); }
  Files(const Files&) = delete;
  Files& operator=(const Files&) = delete;

  void write(const std::string& path, const std::string& text) const {
    const std::filesystem::path file = root_ + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  const std::string& root() const { return root_; }

 private:
  std::string root_;
};

constexpr const char* kUnifiedMount =
    "24 31 0:22 / /sys rw,nosuid shared:7 - sysfs sysfs rw\n"
    "35 24 0:30 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n";

}  // namespace

TEST(crash_handlers_and_profilers_see_the_cards_threads) {
  const auto card = small_card();
  const auto stream = card->create_stream(0);
  stream->host_callback([] { check_signals_here(); });
  stream->synchronize();

  ThreadPool& pool = *new ThreadPool(3);
  std::atomic<int> arrived = 0;
  pool.parallel_for(3, [&](std::int64_t) {
    ++arrived;
    while (arrived < 3) std::this_thread::yield();
    if (ThreadPool::this_thread() != 0) check_signals_here();
  });
  CHECK(!blocked_here(SIGINT));  // starting threads leaves the caller's mask alone
}

#if !defined(__SANITIZE_THREAD__) && \
    !defined(__SANITIZE_ADDRESS__)  // they have handlers of their own
TEST(a_fault_in_the_cards_thread_reaches_the_programs_handler) {
  const int status = status_in_child([] {
    struct sigaction action = {};
    action.sa_handler = [](int) { _exit(42); };
    sigaction(SIGSEGV, &action, nullptr);
    const auto card = small_card();
    const auto stream = card->create_stream(0);
    const Handle handle = card->allocate(128, MemoryKind::tensor);
    stream->host_callback([&] { *static_cast<volatile char*>(handle) = 1; });
    stream->synchronize();
  });
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 42);
}
#endif

TEST(there_are_as_many_threads_as_processors_that_may_be_used) {
  const Environment unset("SPYRE_CARD_THREADS", nullptr);
  const int status = status_in_child([] {
    cpu_set_t before, one;
    sched_getaffinity(0, sizeof before, &before);
    CPU_ZERO(&one);
    for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++cpu)
      if (CPU_ISSET(cpu, &before)) CPU_SET(cpu, &one);
    sched_setaffinity(0, sizeof one, &one);
    if (card_threads() != 1) _exit(1);
  });
  CHECK_EQ(status, 0);
  const Environment set("SPYRE_CARD_THREADS", "77");
  CHECK_EQ(card_threads(), 77);
}

TEST(quotas_of_control_groups_count) {
  const auto unified = [](const std::string& group, const std::string& limit,
                          const std::string& above = "max 100000") {
    const Files files;
    files.write("/proc/self/cgroup", "0::" + group + "\n");
    files.write("/proc/self/mountinfo", kUnifiedMount);
    files.write("/sys/fs/cgroup/cpu.max", above);
    if (group != "/") files.write("/sys/fs/cgroup" + group + "/cpu.max", limit);
    return processors_of_control_groups(files.root()).value_or(-1);
  };
  CHECK_EQ(unified("/a/b", "max 100000"), -1);
  CHECK_EQ(unified("/a/b", "200000 100000"), 2);
  CHECK_EQ(unified("/a/b", "150000 100000"), 2);
  CHECK_EQ(unified("/a/b", "10000 100000"), 1);
  CHECK_EQ(unified("/a/b", "800000 100000", "300000 100000"), 3);  // the least on the way up
  CHECK_EQ(unified("/", "", "400000 100000"), 4);                  // a container's own root

  const Files files;  // version 1, where a container sees its own part of the hierarchy
  files.write("/proc/self/cgroup", "5:cpuset:/x\n4:cpu,cpuacct:/docker/abc/deep\n0::/\n");
  files.write("/proc/self/mountinfo",
              "30 20 0:26 /docker/abc /sys/fs/cgroup/cpuset ro - cgroup cgroup rw,cpuset\n"
              "31 20 0:27 /docker/abc /sys/fs/cgroup/cpu,cpuacct ro master:3 - cgroup cgroup "
              "rw,cpu,cpuacct\n");
  const std::string directory = "/sys/fs/cgroup/cpu,cpuacct";
  files.write(directory + "/cpu.cfs_quota_us", "250000");
  files.write(directory + "/cpu.cfs_period_us", "100000");
  files.write(directory + "/deep/cpu.cfs_quota_us", "-1");
  files.write(directory + "/deep/cpu.cfs_period_us", "100000");
  CHECK_EQ(processors_of_control_groups(files.root()).value_or(-1), 3);

  const Files none;
  CHECK(!processors_of_control_groups(none.root()));
}
