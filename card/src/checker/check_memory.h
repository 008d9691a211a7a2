// What the checker knows of every byte of device memory and of the scratchpads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "memory/memory.h"

namespace spyre::card {

/// Of a byte of memory; 0 is what nobody has written. The same bits say what is wrong with a value.
enum ByteState : std::uint8_t {
  kWritten = 1,
  kUndefined = 2,  ///< its value depends on memory that nobody had written
  kPadding = 4,    ///< its value depends on what is no element of its tensor
  kMixed = 8,      ///< and not just element by element
  kDeclared = 16,  ///< written by the step that is being looked at
};
inline constexpr std::uint8_t kWrong = kUndefined | kPadding | kMixed;

/// The state of a range of memory, byte by byte. Takes no host memory for what nobody touches.
class Shadow {
 public:
  Shadow(std::byte* memory, std::uint64_t bytes);

  bool has(const std::byte* data) const { return memory_ <= data && data < memory_ + bytes_; }
  std::uint64_t offset(const std::byte* data) const {
    return static_cast<std::uint64_t>(data - memory_);
  }
  std::byte* memory(std::uint64_t offset) const { return memory_ + offset; }
  std::uint8_t* states(std::uint64_t offset) const { return at(states_, offset); }
  /// Which core reads the byte in the step that is being looked at: its number + 1, or kManyCores.
  std::uint8_t* readers(std::uint64_t offset) const { return at(readers_, offset); }
  /// Which core writes to the stick of the byte: its number + 1.
  std::uint8_t& writer(std::uint64_t offset) const {
    return *at(writers_, offset / static_cast<std::uint64_t>(kStickBytes));
  }
  static constexpr std::uint8_t kManyCores = 255;

  void forget(std::uint64_t begin, std::uint64_t end) const;       ///< as if never written
  void set_written(std::uint64_t begin, std::uint64_t end) const;  ///< by somebody not checked
  void end_step(std::uint64_t begin, std::uint64_t end) const;     ///< what belongs to one step

 private:
  static std::uint8_t* at(const Reservation& table, std::uint64_t offset) {
    return reinterpret_cast<std::uint8_t*>(table.begin()) + offset;
  }

  std::byte* const memory_;
  const std::uint64_t bytes_;
  const Reservation states_, readers_, writers_;
};

/// Bytes of a shadow that a step touches.
struct Touched {
  const Shadow* shadow = nullptr;
  std::uint64_t begin = UINT64_MAX, end = 0;

  void add(std::uint64_t from, std::uint64_t to) {
    begin = from < begin ? from : begin;
    end = to > end ? to : end;
  }
  bool any() const { return begin < end; }
};

/// The bytes of some memory at a moment, to see what has changed since then.
class Snapshot {
 public:
  /// Of memory larger than that, only the beginning is looked at.
  static constexpr std::uint64_t kMostBytes = std::uint64_t{64} << 20;

  Snapshot(const Shadow& shadow, std::uint64_t begin, std::uint64_t end);
  /// The offset of the first byte that has changed without being declared, or nothing: UINT64_MAX.
  std::uint64_t changed() const;

 private:
  const Shadow& shadow_;
  const std::uint64_t begin_;
  const std::vector<std::byte> before_;
};

}  // namespace spyre::card
