// The order in which functions of this process are first called. tools/walk.py compiles and loads
// this, and says where functions begin.
//
// A breakpoint instruction goes where each function begins. Whoever runs into one notes the
// function, takes the breakpoint away and goes on: each function is noted once, and runs at full
// speed from then on. x86-64 only.

#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <vector>

namespace {

constexpr std::uint8_t kBreakpoint = 0xcc;  // int3

std::vector<std::uint8_t*> functions;  // sorted
std::vector<std::uint8_t> replaced;    // the first byte of each
std::vector<std::uint32_t> called;     // by number, in order; read while others are added
std::vector<std::atomic<bool>> noted;
std::atomic<std::uint32_t> count;

std::size_t number_of(const std::uint8_t* function) {
  return std::size_t(std::lower_bound(functions.begin(), functions.end(), function) -
                     functions.begin());
}

void on_trap(int, siginfo_t*, void* context) {
  auto& registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
  auto* const function = reinterpret_cast<std::uint8_t*>(registers[REG_RIP] - 1);
  const std::size_t number = number_of(function);
  if (!noted[number].exchange(true)) called[count++] = std::uint32_t(number);
  std::atomic_ref(*function).store(replaced[number]);
  registers[REG_RIP] -= 1;
}

}  // namespace

extern "C" {

/// `begin` is sorted, and each in memory that mprotect() made writable and executable.
void watch(std::uint8_t* const* begin, std::size_t size) {
  functions.assign(begin, begin + size);
  replaced.resize(size);
  called.resize(size);
  noted = std::vector<std::atomic<bool>>(size);
  count = 0;
  struct sigaction action = {};
  action.sa_sigaction = on_trap;
  action.sa_flags = SA_SIGINFO | SA_NODEFER;
  sigaction(SIGTRAP, &action, nullptr);
  for (std::size_t i = 0; i < size; ++i) replaced[i] = *functions[i];
  for (auto* function : functions) std::atomic_ref(*function).store(kBreakpoint);
}

std::uint32_t calls() { return count; }

void stop() {
  for (std::size_t i = 0; i < functions.size(); ++i) {
    std::atomic_ref(*functions[i]).store(replaced[i]);
  }
}

/// The number of the function that was called as the n-th.
std::uint32_t call(std::uint32_t n) { return called[n]; }

/// Whether this memory can be written and executed from now on.
bool open_pages(std::uint8_t* begin, std::size_t size) {
  return mprotect(begin, size, PROT_READ | PROT_WRITE | PROT_EXEC) == 0;
}
}
