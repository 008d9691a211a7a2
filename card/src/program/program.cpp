#include "program/program.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "host/environment.h"
#include "steps/steps.h"

namespace spyre::card {

namespace {

[[noreturn]] void refuse(const std::string& why) {
  throw Error(ErrorCode::invalid_argument, "program: " + why);
}

/// The step headers and payloads, once the header in front of them has been found good.
std::span<const std::byte> checked_body(std::span<const std::byte> binary,
                                        const ProgramHeader& header) {
  if (std::memcmp(header.magic, kProgramMagic, sizeof header.magic) != 0)
    refuse("header, magic: not a program, it does not begin with SPYREPRG");
  if (header.version != kProgramVersion)
    refuse("header, version: " + std::to_string(header.version) + ", this card runs version " +
           std::to_string(kProgramVersion));
  if (header.total_bytes != binary.size())
    refuse("header, total bytes: " + std::to_string(header.total_bytes) + ", but " +
           std::to_string(binary.size()) + " bytes were given");
  const auto body = binary.subspan(sizeof header);
  if (header.checksum != program_checksum(body))
    refuse("header, checksum: does not match; the program was damaged or changed");
  return body;
}

}  // namespace

SoftProgram::SoftProgram(std::span<const std::byte> binary, std::shared_ptr<DeviceMemory> memory)
    : memory_(std::move(memory)), bytes_(binary.size()) {
  decode(binary);
  handle_ = memory_->allocate(binary.size(), MemoryKind::program);
  std::memcpy(memory_->locate(handle_).data, binary.data(), binary.size());
}

SoftProgram::~SoftProgram() { memory_->free(handle_); }

const SoftProgram& SoftProgram::from(const Program* program) {
  const auto* const soft = dynamic_cast<const SoftProgram*>(program);
  if (!soft)
    throw Error(ErrorCode::invalid_argument,
                program ? "the program was not loaded by a software card" : "no program to launch");
  return *soft;
}

void SoftProgram::decode(std::span<const std::byte> binary) {
  ProgramHeader header;
  if (binary.size() < sizeof header)
    refuse("header: " + std::to_string(binary.size()) + " bytes are too few, the header has " +
           std::to_string(sizeof header));
  std::memcpy(&header, binary.data(), sizeof header);
  auto rest = checked_body(binary, header);
  std::optional<std::vector<Account>> accounts;
  bool hands_over = false;

  for (std::size_t index = 0; index < header.steps; ++index) {
    const std::string step = "step " + std::to_string(index);
    StepHeader head;
    if (rest.size() < sizeof head) refuse(step + ": the program ends before it");
    std::memcpy(&head, rest.data(), sizeof head);
    rest = rest.subspan(sizeof head);
    const std::uint64_t payload_bytes = std::uint64_t{head.payload_words} * sizeof(std::int64_t);
    if (payload_bytes > rest.size())
      refuse(step + ", payload size: " + std::to_string(head.payload_words) +
             " words, but the program ends after " +
             std::to_string(rest.size() / sizeof(std::int64_t)));
    const auto payload = rest.first(payload_bytes);
    if (head.opcode == static_cast<std::uint32_t>(Opcode::accounts)) {
      if (accounts) refuse(step + ", opcode: a program has its accounts once");
      accounts = decode_accounts(index, payload);
    } else if (head.opcode == static_cast<std::uint32_t>(Opcode::handover)) {
      if (std::exchange(hands_over, true)) refuse(step + ", opcode: a program hands over once");
      handover_ = decode_handover(index, payload);
    } else {
      add(decode_step(index, head.opcode, payload));
    }
    rest = rest.subspan(payload_bytes);
  }
  if (!rest.empty())
    refuse("header, step count: " + std::to_string(header.steps) + ", but " +
           std::to_string(rest.size()) + " bytes follow the last step");
  if (!accounts) {
    accounts.emplace();
    for (const auto& each : steps_) accounts->push_back({each->name(), 1, each->cost()});
  }
  price(*accounts);
}

void SoftProgram::price(const std::vector<Account>& accounts) {
  for (const Account& account : accounts)
    if (!bill_.add(account)) refuse(account.name + ": costs more than 64 bits can count");
}

void SoftProgram::add(std::unique_ptr<const Step> step) {
  for (const Step::Need& need : step->needs()) {
    const auto operand = static_cast<std::size_t>(need.operand);
    if (operand >= requirements_.size()) requirements_.resize(operand + 1);
    if (need.bytes > requirements_[operand].bytes)
      requirements_[operand] = {need.bytes, steps_.size()};
  }
  const Traffic traffic = step->traffic();
  traffic_bytes_ += traffic.read + traffic.written;
  scratchpad_steps_ += step->uses_scratchpads() ? 1 : 0;
  steps_.push_back(std::move(step));
}

void SoftProgram::check(std::span<const Extent> operands) const {
  if (operands.size() < requirements_.size())
    throw Error(ErrorCode::invalid_argument,
                "launch: the program has " + std::to_string(requirements_.size()) + " operands, " +
                    std::to_string(operands.size()) + " were given");
  for (std::size_t i = 0; i < requirements_.size(); ++i) {
    const Requirement& requirement = requirements_[i];
    if (requirement.bytes <= operands[i].bytes) continue;
    throw Error(ErrorCode::invalid_argument, "launch: operand " + std::to_string(i) + " has " +
                                                 bytes_text(operands[i].bytes) + ", but step " +
                                                 std::to_string(requirement.step) + " (" +
                                                 steps_[requirement.step]->name() + ") touches " +
                                                 bytes_text(requirement.bytes) + " of it");
  }
}

void SoftProgram::check_follows(const SoftProgram* before) const {
  for (const ScratchpadBytes& found : handover_.found) {
    const auto covers = [&](const ScratchpadBytes& left) { return left.covers(found); };
    if (before && std::ranges::any_of(before->handover_.left, covers)) continue;
    throw Error(ErrorCode::invalid_argument,
                "launch: the program reads bytes " + std::to_string(found.begin) + ".." +
                    std::to_string(found.end) + " of the scratchpads of " +
                    std::to_string(found.cores) + " cores, which the program launched before it " +
                    (before ? "does not leave there; launch it behind the one it was compiled with"
                            : "has to leave there; launch both together"));
  }
}

StepWords SoftProgram::step_words(std::size_t index) const {
  const std::byte* at = memory_->locate(handle_).data + sizeof(ProgramHeader);
  for (;;) {
    StepHeader head;
    std::memcpy(&head, at, sizeof head);
    at += sizeof head;
    const auto opcode = static_cast<Opcode>(head.opcode);
    const bool runs = opcode != Opcode::accounts && opcode != Opcode::handover;
    if (runs && index-- == 0)
      return {opcode, {reinterpret_cast<const std::int64_t*>(at), head.payload_words}};
    at += head.payload_words * sizeof(std::int64_t);
  }
}

void SoftProgram::run(std::span<const Extent> operands, const Scratchpads::Turn* turn) const {
  const bool alone = scratchpad_steps_ == 1 && handover_.found.empty() && handover_.left.empty();
  for (const auto& step : steps_) {
    if (turn) {
      step->run(operands, *turn, alone);
    } else {
      step->run(operands);
    }
  }
}

}  // namespace spyre::card
