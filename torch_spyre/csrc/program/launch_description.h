// What a card that checks is told about a launch: which op of the user's it is, and which elements
// of device memory its tensors are. Worked out anew from the tensors, never from a cache.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>
#include <c10/util/ArrayRef.h>

#include "spyre/card.h"

namespace spyre::checks {

/// Whether a stream has been made to check: then it is worth asking the one at hand.
inline std::atomic<bool> anywhere = false;

/// Makes a stream check, or not; returns whether it did.
bool set(c10::Stream stream, bool on);
/// A stream that checks from the beginning, because of the environment.
void begin();

/// A compiled kernel, and the user's lines it was made of.
struct Origin {
  std::string kernel, source;
};

/// Of an eager op if there is no origin. Operands before `first` are memory for intermediates.
card::LaunchDescription describe(c10::ArrayRef<at::Tensor> operands, const Origin* origin,
                                 std::size_t first = 0);

/// "aten::empty at a.py:3": who allocates, for messages.
std::string caller();

}  // namespace spyre::checks
