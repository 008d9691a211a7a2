// What every eager kernel does: find where its operands' elements lie, build a one-step program or
// find one made before, and launch it.
//
// Operands are views of any layout. Joint loops walk all of them at once; a program is kept under a
// key that says everything it was made from, so the second call of an op on tensors of the same
// geometry only looks it up.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include "spyre/card.h"
#include "spyre/program.h"

namespace spyre::eager {

using Tensors = c10::ArrayRef<at::Tensor>;

/// Loops over several operands at once; dimensions are innermost first, strides count elements.
struct JointNest {
  struct Dim {
    std::int64_t size;
    c10::SmallVector<std::int64_t, 4> stride;  ///< one an operand
  };
  c10::SmallVector<Dim, 6> dims;
  c10::SmallVector<std::int64_t, 4> offset;
};

/// An operand of joint loops: a tensor's place in device memory, or a number that the loops count
/// (which line an element belongs to, its position in it), given by its strides alone.
struct JointOperand {
  const at::Tensor* tensor = nullptr;  ///< null: a counted number
  /// One a dimension of the loops, in storage elements; negative to go backwards.
  c10::SmallVector<std::int64_t, 6> stride;
  std::int64_t offset = 0;

  static JointOperand of(const at::Tensor& tensor, c10::IntArrayRef size);  ///< broadcast to `size`
  static JointOperand counting(c10::IntArrayRef stride);
};

/// Loops over `size` (outermost first) in which every tensor operand is in device elements; none if
/// a size is 0.
std::vector<JointNest> joint_loops(c10::IntArrayRef size, c10::ArrayRef<JointOperand> operands);

/// Everything a program is made from. Two calls with equal keys may share one.
class Key {
 public:
  Key& add(std::int64_t value) {
    words_.push_back(value);
    return *this;
  }
  Key& add(double value);
  Key& add(c10::IntArrayRef values);
  /// Format, layout and geometry.
  Key& add(const at::Tensor& tensor);

  bool operator==(const Key& other) const { return words_ == other.words_; }
  std::size_t hash() const;

 private:
  c10::SmallVector<std::int64_t, 64> words_;
};

/// Finds or builds the program and launches it on the current stream; operand i is operands[i].
/// Submit::wait is for programs that may fail while they run: the error is thrown here.
void run(const Key& key, Tensors operands, const std::function<void(card::ProgramBuilder&)>& build,
         card::Submit submit = card::Submit::either);

/// The tensor itself if it is on `device`; a CPU tensor without dimensions is sent there; else the
/// usual error about tensors on different devices.
at::Tensor on_device(const at::Tensor& tensor, c10::Device device);

}  // namespace spyre::eager
