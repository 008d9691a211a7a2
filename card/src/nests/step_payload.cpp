#include "nests/step_payload.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>

#include "spyre/program.h"

namespace spyre::card {

void PayloadReader::refuse(const std::string& field, const std::string& why) const {
  std::string where = "step " + std::to_string(step_index_) + " (" + step_name_ + ")";
  if (loop_ >= 0) where += std::string(", ") + part_ + ' ' + std::to_string(loop_);
  throw Error(ErrorCode::invalid_argument, "program: " + where + ", " + field + ": " + why);
}

std::int64_t PayloadReader::word(const char* field) { return word_of(nullptr, field); }

std::int64_t PayloadReader::word_of(const char* owner, const char* field) {
  if (payload_.empty())
    refuse(owner ? std::string(owner) + ' ' + field : field, "the payload ends before it");
  std::int64_t value;
  std::memcpy(&value, payload_.data(), sizeof value);
  payload_ = payload_.subspan(sizeof value);
  return value;
}

std::int64_t PayloadReader::within(const char* field, std::int64_t lowest, std::int64_t highest) {
  const std::int64_t value = word(field);
  if (value < lowest || value > highest)
    refuse(field, std::to_string(value) + " is not in " + std::to_string(lowest) + ".." +
                      std::to_string(highest));
  return value;
}

std::int64_t PayloadReader::count(const char* field) {
  const std::int64_t value = word(field);
  if (value < 0 || static_cast<std::uint64_t>(value) > words_left())
    refuse(field, std::to_string(value) + " does not fit in the " + std::to_string(words_left()) +
                      " words that follow");
  return value;
}

std::int64_t PayloadReader::operand(const char* field) {
  return within(field, 0, kMaxProgramOperands - 1);
}

DataFormat PayloadReader::format(const char* field) {
  const std::int64_t value = word(field);
  for (const FormatInfo& info : kFormats)
    if (static_cast<std::int64_t>(info.format) == value && info.elems_per_stick > 0)
      return info.format;
  refuse(field, std::to_string(value) + " is not a format of device memory");
}

Narrow PayloadReader::narrow(const char* field) {
  return static_cast<Narrow>(within(field, 0, static_cast<std::int64_t>(Narrow::uint8)));
}

double PayloadReader::real(const char* field) { return std::bit_cast<double>(word(field)); }

const OpInfo& PayloadReader::op(OpKind kind, const char* is_not) {
  const std::int64_t id = word("op");
  const OpInfo* const op = find_op(static_cast<std::uint64_t>(id));
  if (!op) refuse("op", std::to_string(id) + " is unknown");
  if (op->kind != kind) refuse("op", std::string(op->name) + ' ' + is_not);
  return *op;
}

int PayloadReader::inputs(const OpInfo& op) {
  const std::int64_t inputs = word("inputs");
  if (inputs != op.inputs)
    refuse("inputs",
           std::to_string(inputs) + ", but " + op.name + " takes " + std::to_string(op.inputs));
  return op.inputs;
}

bool PayloadReader::integers(const OpInfo& op) {
  const bool integers = within("compute type", 0, 1) == 1;
  if (!(integers ? op.int64 : op.fp32))
    refuse("compute type",
           std::string(op.name) + " does not compute in " + (integers ? "int64" : "fp32"));
  return integers;
}

std::vector<double> PayloadReader::constants(const OpInfo& op) {
  const std::int64_t count = word("constants");
  if (count != op.constants)
    refuse("constants", std::string(op.name) + " takes " + std::to_string(op.constants) + ", not " +
                            std::to_string(count));
  std::vector<double> constants;
  for (std::int64_t i = 0; i < count; ++i) constants.push_back(real("constant"));
  return constants;
}

PayloadReader::Tensor PayloadReader::tensor(const std::string& name) {
  const std::int64_t operand = this->operand((name + " operand").c_str());
  return {operand, format((name + " format").c_str())};
}

PayloadReader::Tensor PayloadReader::optional_tensor(const std::string& name) {
  const std::int64_t operand = within((name + " operand").c_str(), -1, kMaxProgramOperands - 1);
  const std::string field = name + " format";
  if (operand >= 0) return {operand, format(field.c_str())};
  word(field.c_str());  // says nothing
  return {};
}

std::span<const std::byte> PayloadReader::words(const char* field, std::int64_t count) {
  if (count < 0 || static_cast<std::uint64_t>(count) > words_left())
    refuse(field, std::to_string(count) + " words do not fit in the " +
                      std::to_string(words_left()) + " that follow");
  const auto taken = payload_.first(static_cast<std::size_t>(count) * sizeof(std::int64_t));
  payload_ = payload_.subspan(taken.size());
  return taken;
}

void PayloadReader::finish() const {
  if (!payload_.empty()) refuse("payload size", std::to_string(words_left()) + " words too many");
}

void check_reach(const PayloadReader& reader, const char* field, const LoopNest& nest,
                 std::size_t tensor) {
  if (nest.empty()) return;
  const auto reach = nest.reach(tensor);
  if (!reach) reader.refuse(field, "reaches beyond 64 bits");
  if (reach->first < 0)
    reader.refuse(field, "element " + std::to_string(reach->first) + " lies before the operand");
  if (reach->last >= kDefaultCardBytes)
    reader.refuse(field,
                  "element " + std::to_string(reach->last) + " lies beyond any card's memory");
}

LoopNests read_nests(PayloadReader& reader, std::span<const char* const> names) {
  LoopNests loops;
  const std::int64_t nests = reader.count("loop count");
  loops.nests.reserve(static_cast<std::size_t>(nests));
  std::vector<std::int64_t> strides(names.size());
  for (std::int64_t n = 0; n < nests; ++n) {
    reader.in_loop(n);
    LoopNest& nest = loops.nests.emplace_back(names.size());
    const std::int64_t dims = reader.count("dimensions");
    for (std::size_t k = 0; k < names.size(); ++k)
      nest.offset(k) = reader.word_of(names[k], "offset");
    for (std::int64_t d = 0; d < dims; ++d) {
      const std::int64_t size = reader.within("size", 0, kMaxElements);
      for (std::size_t k = 0; k < names.size(); ++k)
        strides[k] = reader.word_of(names[k], "stride");
      nest.add(size, strides);
    }
    std::int64_t visits = nest.empty() ? 0 : 1;
    for (std::size_t d = 0; d < nest.rank() && visits != 0; ++d)
      if (__builtin_mul_overflow(visits, nest.size(d), &visits) || visits > kMaxElements)
        reader.refuse("size", "visits more elements than a card has bytes");
    loops.visits += visits;
    if (loops.visits > kMaxElements)
      reader.refuse("size", "visits more elements than a card has bytes");
    for (std::size_t k = 0; k < names.size(); ++k) check_reach(reader, names[k], nest, k);
  }
  reader.in_loop(-1);
  return loops;
}

}  // namespace spyre::card
