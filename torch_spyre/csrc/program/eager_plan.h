// What every eager kernel does: find where its operands' elements lie, build a one-step program or
// find one made before, and launch it.
//
// Operands are views of any layout. Joint loops walk all of them at once. A program is kept under a
// key that says everything it was made from, so the second call of an op on tensors of the same
// geometry only looks it up. That the key is complete does not depend on anybody's care: programs
// are made by plain functions, which get nothing but what is in it.
#pragma once

#include <bit>
#include <bitset>
#include <concepts>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/util/FunctionRef.h>
#include <c10/util/SmallVector.h>

#include "runtime/fork_safe_mutex.h"
#include "spyre/card.h"
#include "spyre/program.h"
#include "tensor/spyre_tensor_layout.h"

namespace spyre::eager {

using Tensors = c10::ArrayRef<at::Tensor>;

/// All that a program may depend on of a tensor: its geometry, its layout, and little of its
/// storage. Lives as long as the tensor.
class Operand {
 public:
  explicit Operand(const at::Tensor& tensor);

  std::int64_t dim() const { return tensor_->dim(); }
  std::int64_t numel() const { return tensor_->numel(); }
  c10::IntArrayRef sizes() const { return tensor_->sizes(); }
  c10::IntArrayRef strides() const { return tensor_->strides(); }
  std::int64_t size(std::int64_t d) const { return tensor_->size(d); }
  std::int64_t stride(std::int64_t d) const { return tensor_->stride(d); }
  std::int64_t storage_offset() const { return tensor_->storage_offset(); }
  c10::ScalarType scalar_type() const { return tensor_->scalar_type(); }
  const SpyreTensorLayout& layout() const { return *layout_; }
  DataFormat format() const { return layout_->device_dtype; }
  card::Narrow narrow() const;  ///< of values written to it
  /// Whether it is every element of its storage, once.
  bool is_whole() const { return is_whole_; }
  /// Whether it shows the storage's bytes rather than its elements.
  bool shows_bytes() const { return shows_bytes_; }

 private:
  const at::Tensor* tensor_;
  const SpyreTensorLayout* layout_;
  bool is_whole_, shows_bytes_;
};
using Operands = c10::ArrayRef<Operand>;

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
  std::optional<Operand> tensor;  ///< none: a counted number
  /// One a dimension of the loops, in storage elements; negative to go backwards.
  c10::SmallVector<std::int64_t, 6> stride;
  std::int64_t offset = 0;

  static JointOperand of(const Operand& tensor, c10::IntArrayRef size);  ///< broadcast to `size`
  static JointOperand counting(c10::IntArrayRef stride);
};

/// Loops over `size` (outermost first) in which every tensor operand is in device elements; none if
/// a size is 0.
std::vector<JointNest> joint_loops(c10::IntArrayRef size, c10::ArrayRef<JointOperand> operands);

/// A struct of which a key takes every member: it says how many it has, and the compiler counts.
template <class T>
concept KeyStruct = requires { T::kMembers; };

template <class T>
concept KeyList = requires(const T& list) {
  list.begin();
  list.end();
  list.size();
};

/// Everything that a program or a plan is made from, as words. Lists and what may be absent say
/// how much follows, so that no two inputs look alike.
class Key {
 public:
  template <class Number>
    requires std::integral<Number> || std::is_enum_v<Number>
  void add(Number value) {
    words_.push_back(static_cast<std::int64_t>(value));
  }
  void add(double value) { words_.push_back(std::bit_cast<std::int64_t>(value)); }
  void add(const std::bitset<64>& bits) { add(bits.to_ullong()); }
  template <KeyList List>
  void add(const List& list) {
    add(list.size());
    if constexpr (std::same_as<std::decay_t<decltype(*list.begin())>, std::int64_t>)
      words_.append(list.begin(), list.end());
    else
      for (const auto& each : list) add(each);
  }
  template <class T>
  void add(const std::optional<T>& value) {
    add(value.has_value());
    if (value) add(*value);
  }
  template <KeyStruct T>
  void add(const T& value) {
    static_assert(T::kMembers >= 2 && T::kMembers <= 6);
    if constexpr (T::kMembers == 2) {
      const auto& [a, b] = value;
      add_all(a, b);
    } else if constexpr (T::kMembers == 3) {
      const auto& [a, b, c] = value;
      add_all(a, b, c);
    } else if constexpr (T::kMembers == 4) {
      const auto& [a, b, c, d] = value;
      add_all(a, b, c, d);
    } else if constexpr (T::kMembers == 5) {
      const auto& [a, b, c, d, e] = value;
      add_all(a, b, c, d, e);
    } else {
      const auto& [a, b, c, d, e, f] = value;
      add_all(a, b, c, d, e, f);
    }
  }
  void add(const Operand& operand);

  template <class... Inputs>
  void add_all(const Inputs&... inputs) {
    (add(inputs), ...);
  }

  /// What is made of it: the address of the function that does.
  void set_maker(std::uintptr_t maker) { words_[0] = static_cast<std::int64_t>(maker); }

  bool operator==(const Key& other) const { return words_ == other.words_; }
  std::size_t hash() const;

 private:
  c10::SmallVector<std::int64_t, 64> words_{0};
};

/// Things made before, found again by their keys. Cleared when full: a working set of that many is
/// made again in milliseconds, and an order of use would cost every call.
template <class Made>
class Kept {
 public:
  std::shared_ptr<const Made> get(const Key& key,
                                  c10::function_ref<std::shared_ptr<const Made>()> make) {
    {
      const std::lock_guard lock(mutex_);
      const auto found = kept_.find(key);
      if (found != kept_.end()) return found->second;
    }
    auto made = make();
    const std::lock_guard lock(mutex_);
    if (kept_.size() >= kLimit) kept_.clear();
    kept_.emplace(key, made);
    return made;
  }

 private:
  static constexpr std::size_t kLimit = 4096;
  struct Hash {
    std::size_t operator()(const Key& key) const { return key.hash(); }
  };
  ForkSafeMutex mutex_;
  std::unordered_map<Key, std::shared_ptr<const Made>, Hash> kept_;
};

/// Finds or builds the program of a key and launches it. Only Call makes keys.
void run_program(const Key& key, Tensors launched,
                 c10::function_ref<void(card::ProgramBuilder&)> build, card::Submit submit);

/// One call of an eager op: its operands, and whatever else decides what is made for it. The
/// functions that make it are handed both, and are no closures: they can depend on nothing that is
/// not in the key.
template <class... Inputs>
class Call {
 public:
  using Build = void (*)(card::ProgramBuilder&, Operands, const Inputs&...);

  explicit Call(Tensors operands, Inputs... inputs)
      : tensors_(operands), inputs_(std::move(inputs)...) {
    for (const at::Tensor& tensor : operands) operands_.emplace_back(tensor);
    key_.add(Operands(operands_));
    std::apply([&](const Inputs&... each) { key_.add_all(each...); }, inputs_);
  }

  /// Finds or builds the program and launches it on the current stream; operand i is that of the
  /// call. Submit::wait is for programs that may fail while they run: the error is thrown here.
  void run(Build build, card::Submit submit = card::Submit::either) {
    run_with(tensors_, build, submit);
  }
  /// The same with other operands: for calls of which not every tensor is one of the program.
  void run_with(Tensors launched, Build build, card::Submit submit = card::Submit::either) {
    key_.set_maker(reinterpret_cast<std::uintptr_t>(build));
    run_program(
        key_, launched,
        [&](card::ProgramBuilder& builder) {
          std::apply([&](const Inputs&... each) { build(builder, operands_, each...); }, inputs_);
        },
        submit);
  }

  /// Something else that calls of the same kind share, on all devices.
  template <class Made>
  std::shared_ptr<const Made> find(Made (*make)(Operands, const Inputs&...)) {
    static auto& kept = *new Kept<Made>;  // leaked: used until the process ends
    key_.set_maker(reinterpret_cast<std::uintptr_t>(make));
    return kept.get(key_, [&] {
      return std::apply(
          [&](const Inputs&... each) {
            return std::make_shared<const Made>(make(operands_, each...));
          },
          inputs_);
    });
  }

 private:
  Tensors tensors_;
  std::tuple<Inputs...> inputs_;
  c10::SmallVector<Operand, 4> operands_;
  Key key_;
};

/// The tensor itself if it is on `device`; a CPU tensor without dimensions is sent there; else the
/// usual error about tensors on different devices.
at::Tensor on_device(const at::Tensor& tensor, c10::Device device);

/// Undefined if it is absent; refused if it is on another device than the input.
inline at::Tensor parameter(const std::optional<at::Tensor>& tensor, const at::Tensor& input) {
  return tensor && tensor->defined() ? on_device(*tensor, input.device()) : at::Tensor();
}

}  // namespace spyre::eager
