// Streams that check: which do, and what runs on this thread, for what they say.
#pragma once

#include <atomic>
#include <string>

#include <c10/core/Stream.h>

namespace spyre::checks {

/// Whether a stream has been made to check: then it is worth asking the one at hand.
inline std::atomic<bool> anywhere = false;

/// Makes a stream check, or not; returns whether it did.
bool set(c10::Stream stream, bool on);
/// A stream that checks from the beginning, because of the environment.
void begin();

/// The op that runs on this thread, the innermost of several.
std::string current_op();
/// The line of the user's that runs on this thread, or nothing.
std::string user_line();
/// "aten::empty at a.py:3": who allocates, for messages.
std::string caller();

}  // namespace spyre::checks
