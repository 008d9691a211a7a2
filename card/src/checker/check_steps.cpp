#include "checker/check_steps.h"

#include <algorithm>

#include "spyre/ops.h"

namespace spyre::card {

std::vector<LoopNest> PayloadWords::nests(std::size_t tensors) {
  std::vector<LoopNest> nests;
  for (std::int64_t count = next(); count > 0; --count) {
    LoopNest& nest = nests.emplace_back(tensors);
    const std::int64_t dims = next();
    for (std::size_t k = 0; k < tensors; ++k) nest.offset(k) = next();
    for (std::int64_t d = 0; d < dims; ++d) {
      const std::int64_t size = next();
      nest.add(size, take(static_cast<std::int64_t>(tensors)));
    }
    nest.drop_single();
  }
  return nests;
}

namespace {

constexpr const char* kOpcodeNames[] = {"",      "move",  "fill",     "pointwise", "reduce",
                                        "rows",  "scan",  "matmul",   "index",     "sort",
                                        "cores", "chain", "accounts", "handover"};

/// Outputs of which each element depends on the input elements of the same iteration. All is read
/// before anything is written. The last tensor is the output.
void check_elements(CheckRules& rules, const std::vector<CheckedTensor>& tensors,
                    const std::vector<LoopNest>& nests) {
  std::int64_t visits = 0;
  const auto each = [&](auto&& row) {
    visits = 0;
    for (const LoopNest& nest : nests)
      each_row(nest, [&](const std::int64_t* at, std::int64_t count) {
        row(nest, at, count);
        visits += count;
      });
  };
  each([](const LoopNest&, const std::int64_t*, std::int64_t) {});
  std::vector<std::uint8_t> wrong(static_cast<std::size_t>(visits));
  std::uint8_t any = 0;
  const std::size_t output = tensors.size() - 1;
  each([&](const LoopNest& nest, const std::int64_t* at, std::int64_t count) {
    for (std::size_t k = 0; k < output; ++k)
      any |= rules.read(tensors[k], at[k], stride_in_row(nest, k), count, wrong.data() + visits);
  });
  each([&](const LoopNest& nest, const std::int64_t* at, std::int64_t count) {
    const auto origin = [&](std::int64_t i) {
      for (std::size_t k = 0; k < output; ++k) {
        const std::int64_t place = at[k] + i * stride_in_row(nest, k);
        std::uint8_t here = 0;
        if (rules.read(tensors[k], place, 0, 1, &here))
          return rules.culprit(tensors[k], place, here);
      }
      return std::string("something that has been overwritten");
    };
    rules.write(tensors[output], at[output], stride_in_row(nest, output), count,
                any ? wrong.data() + visits : nullptr, origin);
  });
}

/// A tensor seen as lines: nests over (tensor, line, ...).
struct LineTensorOf {
  CheckedTensor tensor;
  std::vector<LoopNest> nests;
};

/// Results of which each depends on all inputs of its line. An input of line 0 alone serves all.
void check_lines(CheckRules& rules, std::int64_t lines, const std::vector<LineTensorOf>& inputs,
                 const std::vector<LineTensorOf>& outputs) {
  std::vector<std::uint8_t> wrong(static_cast<std::size_t>(lines)), row;
  std::uint8_t shared = 0;
  const auto serves_all = [&](const LineTensorOf& input) {
    return std::all_of(input.nests.begin(), input.nests.end(), [](const LoopNest& nest) {
      const auto reach = nest.empty() ? LoopNest::Reach{} : *nest.reach(1);
      return reach.first == 0 && reach.last == 0;
    });
  };
  // Calls use(place, line, wrong) for what is wrong with the elements of an input.
  const auto each = [&](const LineTensorOf& input, auto&& use) {
    for (const LoopNest& nest : input.nests)
      each_row(nest, [&](const std::int64_t* at, std::int64_t count) {
        const std::int64_t stride = stride_in_row(nest, 0), line = stride_in_row(nest, 1);
        row.assign(static_cast<std::size_t>(count), 0);
        if (!rules.read(input.tensor, at[0], stride, count, row.data())) return;
        for (std::int64_t i = 0; i < count; ++i)
          if (row[static_cast<std::size_t>(i)])
            use(at[0] + i * stride, at[1] + i * line, row[static_cast<std::size_t>(i)]);
      });
  };
  bool any = false;
  for (const LineTensorOf& input : inputs) {
    const bool all = serves_all(input);
    each(input, [&](std::int64_t, std::int64_t line, std::uint8_t here) {
      (all ? shared : wrong[static_cast<std::size_t>(line)]) |= here | kMixed;
      any = true;
    });
  }
  const auto origin_of = [&](std::int64_t wanted) {
    std::string text;
    for (const LineTensorOf& input : inputs) {
      const bool all = serves_all(input);
      each(input, [&](std::int64_t place, std::int64_t line, std::uint8_t here) {
        if (text.empty() && (all || line == wanted))
          text = rules.culprit(input.tensor, place, here);
      });
    }
    return text.empty() ? std::string("something that has been overwritten") : text;
  };
  std::vector<std::uint8_t> results;
  for (const LineTensorOf& output : outputs)
    for (const LoopNest& nest : output.nests)
      each_row(nest, [&](const std::int64_t* at, std::int64_t count) {
        const std::int64_t line = stride_in_row(nest, 1);
        results.assign(static_cast<std::size_t>(count), shared);
        for (std::int64_t i = 0; any && i < count; ++i)
          results[static_cast<std::size_t>(i)] |= wrong[static_cast<std::size_t>(at[1] + i * line)];
        rules.write(output.tensor, at[0], stride_in_row(nest, 0), count,
                    any ? results.data() : nullptr,
                    [&](std::int64_t i) { return origin_of(at[1] + i * line); });
      });
}

// -------------------------------------------------------------------------------- kinds of steps

void check_move(CheckRules& rules, PayloadWords words, std::span<CheckedOperand> operands) {
  const std::int64_t src = words.next(), dst = words.next();
  const DataFormat from = words.format(), to = words.format();
  words.skip(1);  // narrow
  check_elements(rules,
                 {checked_tensor(operands, src, from, "the source"),
                  checked_tensor(operands, dst, to, "the destination")},
                 words.nests(2));
}

void check_fill(CheckRules& rules, PayloadWords words, std::span<CheckedOperand> operands) {
  const std::int64_t dst = words.next();
  const DataFormat format = words.format();
  words.skip(1);  // bits
  check_elements(rules, {checked_tensor(operands, dst, format, "the destination")}, words.nests(1));
}

void check_pointwise(CheckRules& rules, PayloadWords words, std::span<CheckedOperand> operands) {
  words.skip(1);  // op
  const std::int64_t inputs = words.next();
  std::vector<CheckedTensor> tensors;
  for (std::int64_t i = 0; i < inputs; ++i) {
    const std::int64_t operand = words.next(), format = words.next();
    if (operand >= 0)
      tensors.push_back(checked_tensor(operands, operand, static_cast<DataFormat>(format),
                                       "input " + std::to_string(i)));
  }
  const std::int64_t output = words.next();
  tensors.push_back(checked_tensor(operands, output, words.format(), "the output"));
  words.skip(2);  // narrow, compute type
  words.skip(words.next());
  const std::size_t count = tensors.size();
  check_elements(rules, tensors, words.nests(count));
}

void check_reduce(CheckRules& rules, PayloadWords words, std::span<CheckedOperand> operands) {
  words.skip(1);  // op
  const std::int64_t input = words.next();
  const DataFormat input_format = words.format();
  const std::int64_t output = words.next();
  const DataFormat output_format = words.format();
  words.skip(1);  // narrow
  const std::int64_t second = words.next();
  const DataFormat second_format = words.format();
  words.skip(1);  // compute type
  words.skip(words.next());
  const std::int64_t lines = words.next();
  words.skip(1);  // extent
  const std::vector<LineTensorOf> inputs{
      {checked_tensor(operands, input, input_format, "the input"), words.nests(3)}};
  // Result nests begin with the accumulator.
  const auto results = words.nests(second >= 0 ? 3 : 2);
  const auto side = [&](std::size_t k) { return over(results, k, 0); };
  std::vector<LineTensorOf> outputs{
      {checked_tensor(operands, output, output_format, "the output"), side(1)}};
  if (second >= 0)
    outputs.push_back(
        {checked_tensor(operands, second, second_format, "the second output"), side(2)});
  check_lines(rules, lines, inputs, outputs);
}

void check_rows(CheckRules& rules, PayloadWords words, std::span<CheckedOperand> operands) {
  words.skip(1);  // op
  std::vector<LineTensorOf> tensors[2];
  const char* const roles[] = {"input ", "output "};
  for (int side = 0; side < 2; ++side) {
    const std::int64_t count = words.next();
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t operand = words.next(), format = words.next();
      if (operand >= 0)
        tensors[side].push_back({checked_tensor(operands, operand, static_cast<DataFormat>(format),
                                                roles[side] + std::to_string(i)),
                                 {}});
    }
  }
  words.skip(words.next());
  const std::int64_t rows = words.next();
  words.skip(1);  // row length
  for (auto& side : tensors)
    for (LineTensorOf& tensor : side) tensor.nests = words.nests(3);
  check_lines(rules, std::max<std::int64_t>(rows, 1), tensors[0], tensors[1]);
}

void check_scan(CheckRules& rules, PayloadWords words, std::span<CheckedOperand> operands) {
  words.skip(1);  // op
  const std::int64_t input = words.next();
  const DataFormat input_format = words.format();
  const std::int64_t output = words.next();
  const DataFormat output_format = words.format();
  words.skip(1);  // narrow
  const std::int64_t indices = words.next();
  const DataFormat index_format = words.format();
  words.skip(1);  // compute type
  const std::int64_t lines = words.next();
  words.skip(1);  // line length
  const std::vector<LineTensorOf> inputs{
      {checked_tensor(operands, input, input_format, "the input"), words.nests(3)}};
  std::vector<LineTensorOf> outputs{
      {checked_tensor(operands, output, output_format, "the output"), words.nests(3)}};
  if (indices >= 0)
    outputs.push_back(
        {checked_tensor(operands, indices, index_format, "the index output"), words.nests(3)});
  check_lines(rules, lines, inputs, outputs);
}

void check_search(CheckRules& rules, PayloadWords words, std::span<CheckedOperand> operands) {
  const std::int64_t sequence = words.next();
  const DataFormat sequence_format = words.format();
  const std::int64_t queries = words.next();
  const DataFormat query_format = words.format();
  const std::int64_t output = words.next();
  const DataFormat output_format = words.format();
  words.skip(1);  // compute type
  words.skip(words.next());
  const std::int64_t lines = words.next();
  words.skip(2);  // lengths
  std::vector<LineTensorOf> inputs;
  inputs.push_back(
      {checked_tensor(operands, sequence, sequence_format, "the sequence"), words.nests(3)});
  inputs.push_back(
      {checked_tensor(operands, queries, query_format, "the queries"), words.nests(3)});
  check_lines(rules, lines, inputs,
              {{checked_tensor(operands, output, output_format, "the output"), words.nests(3)}});
}

void check_sort(CheckRules& rules, PayloadWords words, std::span<CheckedOperand> operands) {
  if (words.next() == static_cast<std::int64_t>(OpFunc::searchsorted))
    return check_search(rules, words, operands);
  const std::int64_t input = words.next();
  const DataFormat input_format = words.format();
  const std::int64_t values = words.next();
  const DataFormat value_format = words.format();
  words.skip(1);  // narrow
  const std::int64_t indices = words.next();
  const DataFormat index_format = words.format();
  words.skip(1);  // compute type
  words.skip(words.next());
  const std::int64_t lines = words.next();
  words.skip(1);  // line length
  const std::vector<LineTensorOf> inputs{
      {checked_tensor(operands, input, input_format, "the input"), words.nests(3)}};
  std::vector<LineTensorOf> outputs;
  if (values >= 0)
    outputs.push_back(
        {checked_tensor(operands, values, value_format, "the values"), words.nests(3)});
  if (indices >= 0)
    outputs.push_back(
        {checked_tensor(operands, indices, index_format, "the indices"), words.nests(3)});
  check_lines(rules, lines, inputs, outputs);
}

}  // namespace

std::string step_text(const StepWords& step) {
  std::string text = kOpcodeNames[static_cast<std::size_t>(step.opcode)];
  switch (step.opcode) {
    case Opcode::pointwise:
    case Opcode::reduce:
    case Opcode::rows:
    case Opcode::scan:
    case Opcode::index:
    case Opcode::sort:
    case Opcode::matmul:
      if (const OpInfo* const op = find_op(static_cast<std::uint64_t>(step.words[0])))
        text += std::string(" ") + op->name;
      break;
    default:
      break;
  }
  return text;
}

bool check_step(CheckRules& rules, const StepWords& step, std::span<CheckedOperand> operands) {
  PayloadWords words(step.words);
  switch (step.opcode) {
    case Opcode::move:
      return check_move(rules, words, operands), true;
    case Opcode::fill:
      return check_fill(rules, words, operands), true;
    case Opcode::pointwise:
      return check_pointwise(rules, words, operands), true;
    case Opcode::reduce:
      return check_reduce(rules, words, operands), true;
    case Opcode::rows:
      return check_rows(rules, words, operands), true;
    case Opcode::scan:
      return check_scan(rules, words, operands), true;
    case Opcode::sort:
      return check_sort(rules, words, operands), true;
    case Opcode::matmul:
      return check_matmul(rules, words, operands), true;
    case Opcode::index:
      return check_index(rules, words, operands);
    case Opcode::chain:
      return check_chain(rules, words, operands);
    default:
      rules.complain("a step that the checker does not know");
  }
}

}  // namespace spyre::card
