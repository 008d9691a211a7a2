// Starting the threads that the card works with.
#pragma once

#include <functional>
#include <thread>

namespace spyre::card {

/// Runs `body` on a new thread of this name (at most 15 characters). Throws std::system_error if
/// there is none to be had.
///
/// Signals that are sent to the program are for its own threads (Python handles them in the main
/// one) and are blocked here. Those that a thread gets for what it does itself are not, so that
/// crash handlers see a crash of the card; nor are those of profilers' timers.
std::thread start_thread(const char* name, std::function<void()> body);

}  // namespace spyre::card
