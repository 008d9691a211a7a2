// What the tests of chains have in common: a chain's ops run as separate steps, through memory.
#pragma once

#include <set>

#include "line_support.h"

namespace spyre::card::test {

/// How a tensor of a chain lies in memory.
enum class Form {
  rows,           ///< row-major, or what is left of it without lines or positions
  sticks,         ///< sticks along the positions
  columns,        ///< the positions are the outer dimension: neighbours belong to different lines
  sticks_across,  ///< the same, in sticks along the lines
};

inline std::vector<LineLoops> loops_of(Form form, std::int64_t lines, std::int64_t length,
                                       DataFormat format) {
  const std::int64_t stick = stick_of(format);
  switch (form) {
    case Form::rows:
      return Lines(Layout{{lines, length}}, 0b10).loops;
    case Form::sticks:
      return Lines(Layout{{lines, length}, stick}, 0b10).loops;
    case Form::columns:
      return Lines(Layout{{length, lines}}, 0b01).loops;
    default:
      return Lines(Layout{{length, lines}, stick}, 0b01).loops;
  }
}

inline Chain::Tensor chain_tensor(std::int64_t operand, DataFormat format, const Chain& chain,
                                  Form form, bool has_lines = true, bool has_positions = true) {
  Chain::Tensor tensor;
  tensor.operand = operand;
  tensor.format = format;
  tensor.has_lines = has_lines;
  tensor.has_positions = has_positions;
  tensor.loops =
      loops_of(form, has_lines ? chain.lines : 1, has_positions ? chain.length : 1, format);
  return tensor;
}

inline Chain::Value load(std::int64_t tensor) {
  Chain::Value value;
  value.tensor = tensor;
  return value;
}

inline Chain::Value op(OpFunc func, std::vector<Chain::Input> inputs, DataFormat format = kSingle,
                       std::vector<double> constants = {}) {
  return {Chain::Kind::pointwise, 0, func, std::move(inputs), std::move(constants), format};
}

inline Chain::Value reduced(OpFunc func, std::int64_t input, DataFormat format = kSingle,
                            std::vector<double> constants = {}) {
  return {Chain::Kind::reduce, 0, func, {{input}}, std::move(constants), format};
}

/// The chain's values, each in memory of its own: packed, line by line.
class SeparateSteps {
 public:
  SeparateSteps(const Chain& chain, const std::vector<Elements*>& operands) : chain_(chain) {
    for (const Chain::Value& value : chain.values) {
      if (value.kind == Chain::Kind::load) {
        read(value, operands);
      } else if (value.kind == Chain::Kind::pointwise) {
        compute(value);
      } else {
        fold(value);
      }
    }
    for (const Chain::Store& store : chain.stores) write(store, operands);
  }

 private:
  struct Dense {
    bool lines, positions;
    Elements elements;
  };

  std::int64_t lines(const Dense& value) const { return value.lines ? chain_.lines : 1; }
  std::int64_t length(const Dense& value) const { return value.positions ? chain_.length : 1; }
  Dense& add(bool lines, bool positions, DataFormat format) {
    Dense value{lines, positions, Elements(format)};
    value.elements = Elements(format, this->lines(value) * length(value));
    values_.push_back(std::move(value));
    return values_.back();
  }
  /// Where (line, position) lies, as strides.
  std::int64_t line_stride(const Dense& value) const { return value.lines ? length(value) : 0; }
  static std::int64_t position_stride(const Dense& value) { return value.positions ? 1 : 0; }

  void read(const Chain::Value& value, const std::vector<Elements*>& operands) {
    const Chain::Tensor& tensor = chain_.tensors.at(static_cast<std::size_t>(value.tensor));
    Elements& from = *operands.at(static_cast<std::size_t>(tensor.operand));
    Dense& to = add(tensor.has_lines, tensor.has_positions, tensor.format);
    const std::int64_t width = element_bytes(tensor.format);
    each(tensor, [&](std::int64_t at, std::int64_t line, std::int64_t position) {
      std::copy_n(from.bytes.data() + at * width, width,
                  to.elements.bytes.data() + (line * length(to) + position) * width);
    });
  }

  void compute(const Chain::Value& value) {
    Pointwise step;
    step.op = value.op;
    step.constants = value.constants;
    std::vector<Elements*> operands;
    bool has_lines = false, has_positions = false;
    for (const Chain::Input& input : value.inputs) {
      if (input.value < 0) continue;
      has_lines |= values_[static_cast<std::size_t>(input.value)].lines;
      has_positions |= values_[static_cast<std::size_t>(input.value)].positions;
    }
    values_.reserve(values_.size() + 1);
    Dense& result = add(has_lines, has_positions, value.format);
    Pointwise::Nest nest;
    nest.dims = {{length(result), {}}, {lines(result), {}}};
    const auto use = [&](Dense& dense) {
      operands.push_back(&dense.elements);
      nest.offset.push_back(0);
      nest.dims[0].stride.push_back(position_stride(dense));
      nest.dims[1].stride.push_back(line_stride(dense));
      return static_cast<std::int64_t>(operands.size()) - 1;
    };
    for (const Chain::Input& input : value.inputs) {
      if (input.value < 0) {
        step.inputs.push_back(Pointwise::Input::scalar(input.scalar));
      } else {
        Dense& from = values_[static_cast<std::size_t>(input.value)];
        step.inputs.push_back({use(from), from.elements.format});
      }
    }
    step.output = {use(result), value.format, value.narrow};
    step.nests = {nest};
    run(program_of(step), operands);
  }

  void fold(const Chain::Value& value) {
    values_.reserve(values_.size() + 1);
    Dense& from = values_[static_cast<std::size_t>(value.inputs[0].value)];
    Dense& result = add(from.lines, false, value.format);
    Reduce step;
    step.op = value.op;
    step.constants = value.constants;
    step.input = {0, from.elements.format, loops_of(Form::rows, lines(from), length(from), kDl16)};
    step.output = {1, value.format};
    step.narrow = value.narrow;
    step.accumulators = lines(from);
    step.extent = length(from);
    step.results = {{{lines(from)}, {1}, {1}, {}}};
    run(program_of(step), {&from.elements, &result.elements});
  }

  void write(const Chain::Store& store, const std::vector<Elements*>& operands) {
    Dense& from = values_[static_cast<std::size_t>(store.value)];
    const Chain::Tensor& tensor = chain_.tensors.at(static_cast<std::size_t>(store.tensor));
    Pointwise step;
    step.inputs = {{0, from.elements.format}};
    step.output = {1, tensor.format, tensor.narrow};
    for (const LineLoops& loop : tensor.loops) {
      Pointwise::Nest nest;
      nest.offset = {loop.line_offset * length(from) + loop.position_offset, loop.tensor_offset};
      for (std::size_t d = 0; d < loop.size.size(); ++d)
        nest.dims.push_back(
            {loop.size[d], {loop.line[d] * length(from) + loop.position[d], loop.tensor[d]}});
      step.nests.push_back(nest);
    }
    run(program_of(step), {&from.elements, operands.at(static_cast<std::size_t>(tensor.operand))});
  }

  static void each(const Chain::Tensor& tensor,
                   const std::function<void(std::int64_t, std::int64_t, std::int64_t)>& body) {
    Lines all{Layout{{1}}, 0};
    all.loops = tensor.loops;
    all.each(body);
  }

  const Chain& chain_;
  std::vector<Dense> values_;
};

/// Elements that a tensor of a chain reaches.
inline std::int64_t end_of(const Chain::Tensor& tensor) {
  Lines all{Layout{{1}}, 0};
  all.loops = tensor.loops;
  return all.end();
}

/// Memory for all operands of a chain, filled with numbers, some of them special.
inline std::vector<Elements> filled_operands(const Chain& chain, std::mt19937& random,
                                             bool specials = true) {
  std::vector<Elements> operands;
  for (const Chain::Tensor& tensor : chain.tensors) {
    while (std::cmp_less_equal(operands.size(), tensor.operand))
      operands.emplace_back(tensor.format);
    Elements& elements = operands[static_cast<std::size_t>(tensor.operand)];
    const std::int64_t end = end_of(tensor);
    elements.need(static_cast<std::uint64_t>(end * element_bytes(tensor.format)));
    for (std::int64_t i = 0; i < end; ++i) {
      double value = std::uniform_real_distribution<>(-4, 4)(random);
      const auto dice = specials ? random() % 997 : 500;
      if (dice == 0) value = kNan;
      if (dice == 1) value = kInf;
      if (dice == 2) value = -kInf;
      if (dice == 3) value = -0.0;
      if (dice == 4) value = 1e30;
      if (dice == 5) value = -1e-30;
      elements.set(i, value);
    }
  }
  return operands;
}

inline std::vector<Elements*> pointers(std::vector<Elements>& operands) {
  std::vector<Elements*> all;
  for (Elements& each : operands) all.push_back(&each);
  return all;
}

/// The same bits as by separate steps. Returns what the chain has left in memory.
inline std::vector<Elements> check_chain(const Chain& chain, std::vector<Elements> operands,
                                         const std::string& what) {
  std::vector<Elements> separate = operands;
  SeparateSteps(chain, pointers(separate));
  run(program_of(chain), pointers(operands));
  for (std::size_t i = 0; i < operands.size(); ++i) {
    if (operands[i].bytes == separate[i].bytes) continue;
    CHECK(false);
    std::cerr << what << ": operand " << i << " differs\n";
    const std::int64_t width = element_bytes(operands[i].format);
    int shown = 0;
    for (std::int64_t at = 0;
         shown < 3 && (at + 1) * width <= static_cast<std::int64_t>(operands[i].bytes.size());
         ++at) {
      if (std::equal(operands[i].bytes.begin() + at * width,
                     operands[i].bytes.begin() + (at + 1) * width,
                     separate[i].bytes.begin() + at * width))
        continue;
      std::cerr << "  element " << at << ": " << operands[i].get(at) << " is not "
                << separate[i].get(at) << "\n";
      ++shown;
    }
  }
  return operands;
}

}  // namespace spyre::card::test
