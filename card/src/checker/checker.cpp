#include "checker/checker.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "checker/check_steps.h"
#include "nests/move.h"

namespace spyre::card {

namespace {

constexpr std::size_t kMostFreed = 4096;          // remembered for messages
constexpr std::uint64_t kGuardBytes = 64 * 1024;  // of scratchpads, looked at around what is used

std::string where(const LaunchDescription* description) {
  if (!description) return "a launch";
  return description->op + (description->source.empty() ? "" : " at " + description->source);
}

/// Forgets what belongs to a step, also if a complaint ends it.
struct EndOfStep {
  std::span<Touched> touched;
  explicit EndOfStep(std::span<Touched> all) : touched(all) {}
  ~EndOfStep() {
    for (Touched& each : touched)
      if (each.any()) each.shadow->end_step(each.begin, each.end);
  }
};

std::vector<std::int64_t> outermost_first(const std::vector<std::int64_t>& shape) {
  return {shape.rbegin(), shape.rend()};
}

}  // namespace

/// The scratchpads while programs of one launch run.
struct Checker::Pads {
  explicit Pads(std::byte* memory)
      : shadow(memory, static_cast<std::uint64_t>(kCores * kLxBytesPerCore)) {}

  const Shadow shadow;
  AllTouched used;  // since they were last forgotten
  const Scratchpads::Turn* turn = nullptr;

  /// All but what a program leaves for the next.
  void forget(std::span<const ScratchpadBytes> kept) {
    std::vector<std::pair<std::uint64_t, std::vector<std::uint8_t>>> states;
    for (const ScratchpadBytes& range : kept)
      for (std::int64_t core = 0; core < range.cores; ++core) {
        const auto begin = static_cast<std::uint64_t>(core * kLxBytesPerCore + range.begin);
        const std::uint8_t* const from = shadow.states(begin);
        states.emplace_back(begin, std::vector(from, from + (range.end - range.begin)));
      }
    for (Touched& each : used)
      if (each.any()) shadow.forget(each.begin, each.end);
    for (Touched& each : used) each = {};
    for (const auto& [begin, bytes] : states) {
      std::memcpy(shadow.states(begin), bytes.data(), bytes.size());
      used.back().add(begin, begin + bytes.size());
    }
  }
};

Checker::Checker(std::byte* memory, std::uint64_t bytes) : memory_(memory, bytes) {}
Checker::~Checker() = default;

void start_checking(DeviceMemory& memory) {
  memory.start_watching(
      [](std::byte* bytes, std::uint64_t count) -> std::unique_ptr<MemoryWatcher> {
        return std::make_unique<Checker>(bytes, count);
      });
}

void stop_checking(DeviceMemory& memory) { memory.stop_watching(); }

// ------------------------------------------------------------------------------------ allocations

void Checker::start(const std::vector<Extent>& allocated) {
  const std::lock_guard lock(book_mutex_);
  live_.clear();
  freed_.clear();
  for (const Extent& extent : allocated) {
    const std::uint64_t offset = memory_.offset(extent.data);
    memory_.set_written(offset, offset + extent.bytes);
    live_[offset] = {extent.bytes, next_number_++, {}};
  }
}

void Checker::allocated(const Extent& extent) {
  if (!memory_.has(extent.data)) return;
  const std::lock_guard lock(book_mutex_);
  const std::uint64_t offset = memory_.offset(extent.data);
  memory_.forget(offset, offset + extent.bytes);
  live_[offset] = {extent.bytes, next_number_++, {}};
  // What it covers can no longer be told from it.
  freed_.erase(freed_.lower_bound(offset), freed_.lower_bound(offset + extent.bytes));
}

void Checker::freed(const Extent& extent) {
  if (!memory_.has(extent.data)) return;
  const std::lock_guard lock(book_mutex_);
  const auto found = live_.find(memory_.offset(extent.data));
  if (found == live_.end()) return;
  if (freed_.size() >= kMostFreed) freed_.clear();
  freed_[found->first] = std::to_string(found->second.bytes) + " bytes" +
                         (found->second.name.empty() ? "" : ", allocated by " + found->second.name);
  live_.erase(found);
}

void Checker::name(const Extent& extent, const std::string& name) {
  const std::lock_guard lock(book_mutex_);
  const auto found = live_.find(memory_.offset(extent.data));
  if (found != live_.end()) found->second.name = name;
}

std::string Checker::freed_note(const std::byte* data) const {
  const std::lock_guard lock(book_mutex_);
  const auto found = freed_.find(memory_.offset(data));
  return found == freed_.end() ? "" : " (use after free: " + found->second + ')';
}

void Checker::touched_unseen(const Extent& extent) const {
  if (!memory_.has(extent.data)) return;
  const std::uint64_t offset = memory_.offset(extent.data);
  memory_.set_written(offset, offset + extent.bytes);
}

Checker::Held Checker::hold(const Extent& extent) {
  if (!memory_.has(extent.data))
    throw Error(ErrorCode::fault, "check: memory of programs is not an operand");
  const std::uint64_t offset = memory_.offset(extent.data);
  const std::lock_guard lock(book_mutex_);
  auto found = live_.find(offset);
  if (found == live_.end()) {  // allocated while checking began
    memory_.set_written(offset, offset + extent.bytes);
    found = live_.insert({offset, {extent.bytes, next_number_++, {}}}).first;
  }
  return {extent, found->second.number};
}

std::string Checker::check_held(const Held& held, const std::string& what) const {
  const std::lock_guard lock(book_mutex_);
  const auto found = live_.find(memory_.offset(held.extent.data));
  if (found != live_.end() && found->second.number == held.allocation) return found->second.name;
  const auto freed = freed_.find(memory_.offset(held.extent.data));
  throw Error(ErrorCode::fault, "check: " + what +
                                    ": use after free: the memory was freed after the work was "
                                    "submitted and before it ran" +
                                    (freed == freed_.end() ? "" : " (" + freed->second + ')') +
                                    "; keep it until the work is done (Retained)");
}

// --------------------------------------------------------------------------------------- programs

void Checker::run(const Scratchpads& scratchpads, std::span<const Launch> launches,
                  const Held* operands, const RunStep& run_step) {
  std::optional<Scratchpads::Turn> turn;
  for (const Launch& each : launches)
    if (!turn && SoftProgram::from(each.program.get()).uses_scratchpads())
      turn.emplace(scratchpads);
  const std::lock_guard lock(run_mutex_);
  if (turn) {
    if (!pads_) pads_ = std::make_unique<Pads>(turn->of_core(0));
    pads_->turn = &*turn;
    pads_->forget({});
    things_.forget();
  }
  bool first = true;
  for (const Launch& each : launches) {
    if (turn && !std::exchange(first, false))
      pads_->forget(SoftProgram::from(each.program.get()).handover().found);
    run_program(each, operands, turn ? pads_.get() : nullptr, run_step);
    operands += each.operands.size();
  }
}

void Checker::run_program(const Launch& launch, const Held* operands, Pads* pads,
                          const RunStep& run_step_here) {
  const SoftProgram& program = SoftProgram::from(launch.program.get());
  const LaunchDescription* const description = launch.description;
  const std::size_t count = launch.operands.size();
  CheckRules rules(where(description), things_);
  std::vector<OperandTold> told;
  std::vector<Touched> touched(count);
  std::vector<CheckedOperand> seen(count);
  told.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    const Extent& extent = operands[i].extent;
    const std::string name =
        check_held(operands[i], where(description) + ", operand " + std::to_string(i));
    const OperandDescription* const operand =
        description && i < description->operands.size() ? &description->operands[i] : nullptr;
    told.emplace_back(static_cast<std::int64_t>(i), operand, name, extent.bytes);
    // Operands in one allocation touch it together.
    std::size_t same = 0;
    while (seen[same].data != extent.data && same < i) ++same;
    touched[same].shadow = &memory_;
    seen[i].data = extent.data;
    seen[i].bytes = extent.bytes;
    seen[i].shadow = &memory_;
    seen[i].told = &told.back();
    seen[i].touched = &touched[same];
  }
  for (std::size_t index = 0; index < program.steps().size(); ++index)
    run_step(rules, program, index, seen, touched, pads, run_step_here);
}

void Checker::run_step(CheckRules& rules, const SoftProgram& program, std::size_t index,
                       std::span<CheckedOperand> operands, std::span<Touched> touched, Pads* pads,
                       const RunStep& run_instead) {
  const StepWords words = program.step_words(index);
  rules.begin_step("step " + std::to_string(index) + " (" + step_text(words) + ")");
  for (Touched& each : touched) each.begin = UINT64_MAX, each.end = 0;
  AllTouched lx;
  for (Touched& each : lx) each.shadow = pads ? &pads->shadow : nullptr;
  const EndOfStep end(touched), end_in_pads(lx);
  const Step& step = *program.steps()[index];
  const bool in_pads = step.uses_scratchpads();
  if (words.opcode == Opcode::cores) {
    check_cores(rules, PayloadWords(words.words), operands,
                {in_pads ? &pads->shadow : nullptr, lx});
  } else {
    check_step(rules, words, operands);
  }
  rules.inside({});

  std::vector<std::pair<const CheckedOperand*, Snapshot>> before;
  for (const CheckedOperand& operand : operands)
    if (operand.touched->any() &&
        std::none_of(before.begin(), before.end(),
                     [&](const auto& other) { return other.first->data == operand.data; }))
      before.emplace_back(&operand,
                          Snapshot(memory_, operand.offset(), operand.offset() + operand.bytes));
  std::vector<Snapshot> pads_before;
  const auto pad_bytes = static_cast<std::uint64_t>(kCores * kLxBytesPerCore);
  for (const Touched& each : lx) {
    if (!each.any()) continue;
    pads_before.emplace_back(pads->shadow, each.begin - std::min(each.begin, kGuardBytes),
                             std::min(each.end + kGuardBytes, pad_bytes));
    pads->used.back().add(each.begin, each.end);
  }

  std::vector<Extent> extents;
  for (const CheckedOperand& operand : operands) extents.push_back({operand.data, operand.bytes});
  if (run_instead) {
    run_instead(step, extents);
  } else if (in_pads) {
    step.run(extents, *pads->turn, /*alone=*/false);
  } else {
    step.run(extents);
  }

  for (const auto& [operand, snapshot] : before)
    if (const std::uint64_t byte = snapshot.changed(); byte != UINT64_MAX)
      rules.complain("has changed " + operand->told->element(byte - operand->offset()) + " of " +
                     operand->told->text() + ", which its words do not say: a fault of the card");
  for (const Snapshot& snapshot : pads_before)
    if (const std::uint64_t byte = snapshot.changed(); byte != UINT64_MAX)
      rules.complain("has changed byte " + std::to_string(byte % kLxBytesPerCore) +
                     " of the scratchpad of core " + std::to_string(byte / kLxBytesPerCore) +
                     ", which its words do not say: a fault of the card");
}

// -------------------------------------------------------------------------------------- transfers

void Checker::transfer(const DataConversion& conversion, const Held& device, bool to_card,
                       const std::function<void()>& move) {
  const std::string what = to_card ? "a copy to the card" : "a copy to the host";
  OperandDescription description;
  description.size = outermost_first(to_card ? conversion.input_shape : conversion.output_shape);
  description.format = to_card ? conversion.dst : conversion.src;
  for (const StrideInfo& loop : conversion.loops)
    description.view.push_back(to_card ? loop
                                       : StrideInfo{loop.size, loop.stride_dst, loop.stride_src,
                                                    loop.offset_dst, loop.offset_src});
  const std::lock_guard lock(run_mutex_);
  const OperandTold told(-1, &description, check_held(device, what), device.extent.bytes);
  Touched touched[1];
  touched[0].shadow = &memory_;
  const EndOfStep end(touched);
  CheckedOperand operand;
  operand.data = device.extent.data;
  operand.bytes = device.extent.bytes;
  operand.shadow = &memory_;
  operand.told = &told;
  operand.touched = touched;
  const CheckedTensor tensor{&operand, format_info(description.format).bits / 8, "the tensor"};
  CheckRules rules(what, things_);
  for (const StrideInfo& loop : description.view) {
    const LoopNest nest = nest_of(loop);
    each_row(nest, [&](const std::int64_t* at, std::int64_t count) {
      const std::int64_t place = at[1], stride = stride_in_row(nest, 1);
      if (to_card) return rules.write(tensor, place, stride, count, nullptr, {});
      if (!rules.read(tensor, place, stride, count, nullptr)) return;
      for (std::int64_t i = 0; i < count; ++i)
        if (const std::uint8_t wrong = rules.read(tensor, place + i * stride, 0, 1, nullptr))
          rules.complain("reads " + rules.culprit(tensor, place + i * stride, wrong));
    });
  }
  const Snapshot before(memory_, operand.offset(), operand.offset() + operand.bytes);
  move();
  if (const std::uint64_t byte = before.changed(); byte != UINT64_MAX)
    rules.complain("has changed " + told.element(byte - operand.offset()) +
                   " which the descriptor does not name: a fault of the card");
}

}  // namespace spyre::card
