// What a card that checks is told about a launch: which op of the user's it is, and which elements
// of device memory its tensors are. Worked out anew from the tensors, never from a cache.
#pragma once

#include <string>

#include <ATen/core/Tensor.h>
#include <c10/util/ArrayRef.h>

#include "spyre/card.h"

namespace spyre::checks {

/// A compiled kernel, and the user's lines it was made of.
struct Origin {
  std::string kernel, source;
};

/// Of an eager op if there is no origin. Operands before `first` are memory for intermediates.
card::LaunchDescription describe(c10::ArrayRef<at::Tensor> operands, const Origin* origin,
                                 std::size_t first = 0);

}  // namespace spyre::checks
