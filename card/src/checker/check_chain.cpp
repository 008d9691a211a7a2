// What a chain of ops reads and writes: what is wrong with each of its values, line by line and
// position by position.
#include <algorithm>

#include "checker/check_steps.h"

namespace spyre::card {
namespace {

struct Tensor {
  CheckedTensor tensor;
  bool has_lines, has_positions;
  std::vector<LoopNest> nests;  // over (tensor, line, position)
};

/// What is wrong with a value; empty if nothing is.
struct Value {
  Chain::Kind kind = Chain::Kind::load;
  std::size_t tensor = 0;  // of a load
  std::vector<std::size_t> inputs;
  bool has_lines = false, has_positions = false, needed = false;
  std::vector<std::uint8_t> wrong;  // [line][position], of those that it has
};

class ChainCheck {
 public:
  ChainCheck(CheckRules& rules, PayloadWords words, std::span<CheckedOperand> operands)
      : rules_(rules), lines_(words.next()), length_(words.next()) {
    for (std::int64_t count = words.next(); count > 0; --count) {
      const std::int64_t operand = words.next();
      const DataFormat format = words.format();
      words.skip(1);  // narrow
      const bool has_lines = words.next() == 1, has_positions = words.next() == 1;
      tensors_.push_back(
          {checked_tensor(operands, operand, format, "tensor " + std::to_string(tensors_.size())),
           has_lines, has_positions, words.nests(3)});
    }
    for (std::int64_t count = words.next(); count > 0; --count) values_.push_back(value(words));
    for (std::int64_t count = words.next(); count > 0; --count) {
      const auto value = static_cast<std::size_t>(words.next());
      stores_.emplace_back(value, static_cast<std::size_t>(words.next()));
    }
  }

  void run() {
    for (const auto& [value, tensor] : stores_) values_[value].needed = true;
    for (std::size_t i = values_.size(); i-- > 0;)
      for (const std::size_t input : values_[i].inputs) values_[input].needed |= values_[i].needed;
    for (Value& value : values_)
      if (value.needed) compute(value);
    for (const auto& [value, tensor] : stores_) store(values_[value], tensors_[tensor]);
  }

 private:
  Value value(PayloadWords& words) const {
    Value value;
    value.kind = static_cast<Chain::Kind>(words.next());
    if (value.kind == Chain::Kind::load) {
      value.tensor = static_cast<std::size_t>(words.next());
      value.has_lines = tensors_[value.tensor].has_lines;
      value.has_positions = tensors_[value.tensor].has_positions;
      return value;
    }
    words.skip(1);  // op
    if (value.kind == Chain::Kind::pointwise) {
      for (std::int64_t inputs = words.next(); inputs > 0; --inputs) {
        const std::int64_t input = words.next();
        words.skip(1);  // scalar
        if (input >= 0) value.inputs.push_back(static_cast<std::size_t>(input));
      }
    } else {
      value.inputs.push_back(static_cast<std::size_t>(words.next()));
    }
    for (const std::size_t input : value.inputs) {
      value.has_lines |= values_[input].has_lines;
      value.has_positions |= values_[input].has_positions;
    }
    if (value.kind == Chain::Kind::reduce) value.has_positions = false;
    words.skip(words.next());  // constants
    words.skip(2);             // format, narrow
    return value;
  }

  std::int64_t lines(const Value& value) const { return value.has_lines ? lines_ : 1; }
  std::int64_t length(const Value& value) const { return value.has_positions ? length_ : 1; }
  std::uint8_t wrong(const Value& value, std::int64_t line, std::int64_t position) const {
    if (value.wrong.empty()) return 0;
    return value.wrong[static_cast<std::size_t>((value.has_lines ? line * length(value) : 0) +
                                                (value.has_positions ? position : 0))];
  }

  template <class Use>
  void each_wrong(const Tensor& tensor, Use&& use) const {
    spyre::card::each_wrong(rules_, tensor.tensor, tensor.nests, use);
  }

  void compute(Value& value) const {
    const auto room = static_cast<std::size_t>(lines(value) * length(value));
    if (value.kind == Chain::Kind::load) {
      each_wrong(tensors_[value.tensor],
                 [&](std::int64_t, std::int64_t line, std::int64_t position, std::uint8_t here) {
                   value.wrong.resize(room);
                   value.wrong[static_cast<std::size_t>(line * length(value) + position)] |= here;
                 });
      return;
    }
    for (const std::size_t input : value.inputs) {
      const Value& from = values_[input];
      if (from.wrong.empty()) continue;
      value.wrong.resize(room);
      const std::int64_t wide = std::max(length(from), length(value));
      for (std::int64_t line = 0; line < lines(value); ++line)
        for (std::int64_t position = 0; position < wide; ++position) {
          const std::uint8_t here = wrong(from, line, position);
          if (!here) continue;
          const bool mixes = value.kind == Chain::Kind::reduce;
          value.wrong[static_cast<std::size_t>(line * length(value) + (mixes ? 0 : position))] |=
              mixes ? here | kMixed : here;
        }
    }
  }

  void store(const Value& value, const Tensor& tensor) const {
    std::vector<std::uint8_t> row;
    for (const LoopNest& nest : tensor.nests)
      each_row(nest, [&](const std::int64_t* at, std::int64_t count) {
        row.assign(static_cast<std::size_t>(count), 0);
        const auto line = [&](std::int64_t i) { return at[1] + i * stride_in_row(nest, 1); };
        const auto position = [&](std::int64_t i) { return at[2] + i * stride_in_row(nest, 2); };
        for (std::int64_t i = 0; i < count && !value.wrong.empty(); ++i)
          row[static_cast<std::size_t>(i)] = wrong(value, line(i), position(i));
        rules_.write(tensor.tensor, at[0], stride_in_row(nest, 0), count,
                     value.wrong.empty() ? nullptr : row.data(),
                     [&](std::int64_t i) { return origin(line(i), position(i)); });
      });
  }

  /// The first wrong element of the line, at this position if there is one.
  std::string origin(std::int64_t line, std::int64_t position) const {
    std::string found, same;
    for (const Value& value : values_) {
      if (value.kind != Chain::Kind::load || !value.needed || value.wrong.empty()) continue;
      const Tensor& tensor = tensors_[value.tensor];
      each_wrong(tensor, [&](std::int64_t place, std::int64_t its_line, std::int64_t its_position,
                             std::uint8_t here) {
        if (tensor.has_lines && its_line != line) return;
        if (found.empty()) found = rules_.culprit(tensor.tensor, place, here);
        if (same.empty() && (!tensor.has_positions || its_position == position))
          same = rules_.culprit(tensor.tensor, place, here);
      });
    }
    if (!same.empty()) return same;
    return found.empty() ? "something that has been overwritten" : found;
  }

  CheckRules& rules_;
  const std::int64_t lines_, length_;
  std::vector<Tensor> tensors_;
  std::vector<Value> values_;
  std::vector<std::pair<std::size_t, std::size_t>> stores_;  // value, tensor
};

}  // namespace

void check_chain(CheckRules& rules, PayloadWords words, std::span<CheckedOperand> operands) {
  ChainCheck(rules, words, operands).run();
}

}  // namespace spyre::card
