// What the card's tests have in common.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "platform/soft_card.h"
#include "spyre/card.h"
#include "spyre/program.h"

namespace spyre::card::test {

inline constexpr std::uint64_t kKiB = 1024, kMiB = 1024 * kKiB, kGiB = 1024 * kMiB;

inline std::shared_ptr<SoftCard> small_card(std::uint64_t bytes = 256 * kMiB,
                                            std::uint64_t warm = 64 * kMiB) {
  return std::make_shared<SoftCard>(MemoryLimits{bytes, warm});
}

/// One dense run of elements.
inline StrideInfo dense(std::int64_t elements) { return {{elements}, {1}, {1}, 0, 0}; }

/// Elements that keep their bits, so that a test can compare bytes.
inline DataConversion copy(std::int64_t elements, bool to_card,
                           DataFormat format = DataFormat::IEEE_INT32) {
  DataConversion conversion;
  conversion.host_to_device = to_card;
  conversion.src = conversion.dst = format;
  conversion.loops = {dense(elements)};
  return conversion;
}

/// Operand 0 to operand 1, so many 32-bit integers.
inline std::vector<std::byte> copy_program(std::int64_t elements) {
  ProgramBuilder builder;
  builder.move(0, 1, copy(elements, true));
  return builder.finish();
}

/// A callback that holds its stream up until it is opened.
class Gate {
 public:
  std::function<void()> callback() {
    return [opened = opened_.get_future().share()] { opened.wait(); };
  }
  void open() { opened_.set_value(); }

 private:
  std::promise<void> opened_;
};

/// Host numbers with a place on the card.
struct Tensor {
  explicit Tensor(Card& on, std::int32_t value = 0, std::size_t elements = 1024)
      : card(on), host(elements, value), handle(on.allocate(elements * 4, MemoryKind::tensor)) {}
  ~Tensor() { card.free(handle); }

  void to_card(Stream& stream, Submit submit, Retained retained = nullptr) {
    stream.to_card(host.data(), host.size() * 4, handle, copy(count(), true), submit,
                   std::move(retained));
  }
  void to_host(Stream& stream, Submit submit, Retained retained = nullptr) {
    stream.to_host(handle, host.data(), host.size() * 4, copy(count(), false), submit,
                   std::move(retained));
  }
  std::int64_t count() const { return static_cast<std::int64_t>(host.size()); }

  Card& card;
  std::vector<std::int32_t> host;
  Handle handle;
};

/// An environment variable for the length of a test.
class Environment {
 public:
  Environment(const char* name, const char* value) : name_(name) {
    if (const char* before = std::getenv(name)) before_ = before;
    value ? setenv(name, value, 1) : unsetenv(name);
  }
  ~Environment() { before_ ? setenv(name_, before_->c_str(), 1) : unsetenv(name_); }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  const char* name_;
  std::optional<std::string> before_;
};

/// Host memory of this process that is not files.
inline std::int64_t rss_anon_bytes() {
  std::ifstream status("/proc/self/status");
  std::string line;
  while (std::getline(status, line))
    if (line.starts_with("RssAnon:")) return std::stoll(line.substr(8)) * 1024;
  return -1;
}

/// The wait status of a child that runs `body`, then _exit(0). A child that hangs gets SIGALRM.
template <class Body>
int status_in_child(Body&& body) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    body();
    _exit(0);
  }
  int status = -1;
  waitpid(child, &status, 0);
  return status;
}

template <class Body>
double seconds(Body&& body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace spyre::card::test
