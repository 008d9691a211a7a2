#include "host/card_thread.h"

#include <pthread.h>

#include <csignal>
#include <utility>

namespace spyre::card {

namespace {

/// A new thread inherits the mask of the one that makes it: this sets it for as long as it lives.
class ProgramSignalsBlocked {
 public:
  ProgramSignalsBlocked() {
    sigset_t blocked;
    sigfillset(&blocked);
    for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGSYS, SIGPROF})
      sigdelset(&blocked, signal);
    pthread_sigmask(SIG_SETMASK, &blocked, &before_);
  }
  ~ProgramSignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  ProgramSignalsBlocked(const ProgramSignalsBlocked&) = delete;
  ProgramSignalsBlocked& operator=(const ProgramSignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

}  // namespace

std::thread start_thread(const char* name, std::function<void()> body) {
  const ProgramSignalsBlocked blocked;
  std::thread thread(std::move(body));
  pthread_setname_np(thread.native_handle(), name);
  return thread;
}

}  // namespace spyre::card
