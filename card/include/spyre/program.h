// The binary program format, version 1, as docs/program-format.md describes it: its constants, and
// a builder for those who write programs. Shared by both sides of the card ABI.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "spyre/card.h"

namespace spyre::card {

static_assert(std::endian::native == std::endian::little, "programs are little endian");

inline constexpr char kProgramMagic[8] = {'S', 'P', 'Y', 'R', 'E', 'P', 'R', 'G'};
inline constexpr std::uint32_t kProgramVersion = 1;
/// Operand indices are below this.
inline constexpr std::int64_t kMaxProgramOperands = 1024;

enum class Opcode : std::uint32_t { move = 1, fill = 2 };

struct ProgramHeader {
  char magic[8];
  std::uint32_t version, steps;
  std::uint64_t total_bytes;  ///< of the whole program, this header included
  std::uint64_t checksum;     ///< program_checksum() of everything after this header
};
static_assert(sizeof(ProgramHeader) == 32);

struct StepHeader {
  std::uint32_t opcode, payload_words;  ///< the payload is that many int64
};
static_assert(sizeof(StepHeader) == 8);

/// FNV-1a, 64 bits.
inline std::uint64_t program_checksum(std::span<const std::byte> bytes) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const std::byte byte : bytes)
    hash = (hash ^ std::to_integer<std::uint64_t>(byte)) * 0x100000001b3;
  return hash;
}

/// Appends steps, then finish() gives the program.
///
///   ProgramBuilder builder;
///   builder.move(0, 1, conversion);
///   card->load_program(builder.finish());
class ProgramBuilder {
 public:
  /// Elements of operand `src` to operand `dst`, by the formats, narrowing and loops of
  /// `conversion`; its other members say nothing to a program.
  void move(std::int64_t src, std::int64_t dst, const DataConversion& conversion) {
    begin_step(Opcode::move);
    add({src, dst, static_cast<std::int64_t>(conversion.src),
         static_cast<std::int64_t>(conversion.dst), static_cast<std::int64_t>(conversion.narrow),
         count(conversion.loops)});
    for (const StrideInfo& loop : conversion.loops) {
      add({count(loop.size), loop.offset_src, loop.offset_dst});
      for (std::size_t d = 0; d < loop.size.size(); ++d)
        add({loop.size[d], loop.stride_src.at(d), loop.stride_dst.at(d)});
    }
    end_step();
  }

  /// The element with the given bits (its low end) to every place of operand `dst` that the
  /// destination side of the loops visits.
  void fill(std::int64_t dst, DataFormat format, std::uint64_t bits,
            std::span<const StrideInfo> loops) {
    begin_step(Opcode::fill);
    add({dst, static_cast<std::int64_t>(format), static_cast<std::int64_t>(bits), count(loops)});
    for (const StrideInfo& loop : loops) {
      add({count(loop.size), loop.offset_dst});
      for (std::size_t d = 0; d < loop.size.size(); ++d) add({loop.size[d], loop.stride_dst.at(d)});
    }
    end_step();
  }

  /// The program. The builder is as new afterwards.
  std::vector<std::byte> finish() {
    std::vector<std::byte> program(sizeof(ProgramHeader) + body_.size() * sizeof(std::int64_t));
    const auto body = std::span(program).subspan(sizeof(ProgramHeader));
    if (!body_.empty()) std::memcpy(body.data(), body_.data(), body.size());
    ProgramHeader header{{}, kProgramVersion, steps_, program.size(), program_checksum(body)};
    std::memcpy(header.magic, kProgramMagic, sizeof header.magic);
    std::memcpy(program.data(), &header, sizeof header);
    body_.clear();
    steps_ = 0;
    return program;
  }

 private:
  template <class List>
  static std::int64_t count(const List& list) {
    return static_cast<std::int64_t>(list.size());
  }

  void add(std::initializer_list<std::int64_t> words) {
    body_.insert(body_.end(), words.begin(), words.end());
  }

  void begin_step(Opcode opcode) {
    step_ = body_.size();
    body_.push_back(static_cast<std::int64_t>(opcode));  // the length follows in end_step()
    ++steps_;
  }

  void end_step() {
    const std::uint64_t words = body_.size() - step_ - 1;
    body_[step_] |= static_cast<std::int64_t>(words << 32);
  }

  std::vector<std::int64_t> body_;
  std::size_t step_ = 0;  // where the step begins that is being written
  std::uint32_t steps_ = 0;
};

}  // namespace spyre::card
