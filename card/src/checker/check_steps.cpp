#include "checker/check_steps.h"

#include <algorithm>
#include <iterator>

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
  std::vector<std::uint8_t> wrong(static_cast<std::size_t>(lines));
  std::uint8_t shared = 0;
  const auto serves_all = [&](const LineTensorOf& input) {
    return std::all_of(input.nests.begin(), input.nests.end(), [](const LoopNest& nest) {
      const auto reach = nest.empty() ? LoopNest::Reach{} : *nest.reach(1);
      return reach.first == 0 && reach.last == 0;
    });
  };
  bool any = false;
  for (const LineTensorOf& input : inputs) {
    const bool all = serves_all(input);
    each_wrong(rules, input.tensor, input.nests,
               [&](std::int64_t, std::int64_t line, std::int64_t, std::uint8_t here) {
                 (all ? shared : wrong[static_cast<std::size_t>(line)]) |= here | kMixed;
                 any = true;
               });
  }
  const auto origin_of = [&](std::int64_t wanted) {
    std::string text;
    for (const LineTensorOf& input : inputs) {
      const bool all = serves_all(input);
      each_wrong(rules, input.tensor, input.nests,
                 [&](std::int64_t place, std::int64_t line, std::int64_t, std::uint8_t here) {
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

/// Reads an operand and its format. What is absent has no loops.
LineTensorOf line_tensor(PayloadWords& words, std::span<CheckedOperand> operands,
                         std::string role) {
  const std::int64_t operand = words.next();
  const DataFormat format = words.format();
  if (operand < 0) return {};
  return {checked_tensor(operands, operand, format, std::move(role)), {}};
}

void read_loops(PayloadWords& words, std::vector<LineTensorOf>& tensors) {
  for (LineTensorOf& tensor : tensors)
    if (tensor.tensor.operand) tensor.nests = words.nests(3);
}

void check_reduce(CheckRules& rules, PayloadWords words, std::span<CheckedOperand> operands) {
  words.skip(1);  // op
  LineTensorOf input = line_tensor(words, operands, "the input");
  LineTensorOf output = line_tensor(words, operands, "the output");
  words.skip(1);  // narrow
  LineTensorOf second = line_tensor(words, operands, "the second output");
  words.skip(1);  // compute type
  words.skip(words.next());
  const std::int64_t lines = words.next();
  words.skip(1);  // extent
  input.nests = words.nests(3);
  // Result nests begin with the accumulator.
  const auto results = words.nests(second.tensor.operand ? 3 : 2);
  output.nests = over(results, 1, 0);
  if (second.tensor.operand) second.nests = over(results, 2, 0);
  check_lines(rules, lines, {input}, {output, second});
}

void check_rows(CheckRules& rules, PayloadWords words, std::span<CheckedOperand> operands) {
  words.skip(1);  // op
  std::vector<LineTensorOf> inputs, outputs;
  for (const std::int64_t count = words.next(); std::ssize(inputs) < count;)
    inputs.push_back(line_tensor(words, operands, "input " + std::to_string(inputs.size())));
  for (const std::int64_t count = words.next(); std::ssize(outputs) < count;)
    outputs.push_back(line_tensor(words, operands, "output " + std::to_string(outputs.size())));
  words.skip(words.next());
  const std::int64_t rows = words.next();
  words.skip(1);  // row length
  read_loops(words, inputs);
  read_loops(words, outputs);
  check_lines(rules, std::max<std::int64_t>(rows, 1), inputs, outputs);
}

/// Scans, and sorts but for searches: values and where they were.
void check_scan(CheckRules& rules, PayloadWords words, std::span<CheckedOperand> operands) {
  const bool sorts = op_info(static_cast<OpFunc>(words.next())).kind == OpKind::sort;
  std::vector<LineTensorOf> inputs{line_tensor(words, operands, "the input")}, outputs;
  outputs.push_back(line_tensor(words, operands, sorts ? "the values" : "the output"));
  words.skip(1);  // narrow
  outputs.push_back(line_tensor(words, operands, sorts ? "the indices" : "the index output"));
  words.skip(1);  // compute type
  if (sorts) words.skip(words.next());
  const std::int64_t lines = words.next();
  words.skip(1);  // line length
  read_loops(words, inputs);
  read_loops(words, outputs);
  check_lines(rules, lines, inputs, outputs);
}

void check_search(CheckRules& rules, PayloadWords words, std::span<CheckedOperand> operands) {
  words.skip(1);  // op
  std::vector<LineTensorOf> inputs{line_tensor(words, operands, "the sequence")}, outputs;
  inputs.push_back(line_tensor(words, operands, "the queries"));
  outputs.push_back(line_tensor(words, operands, "the output"));
  words.skip(1);  // compute type
  words.skip(words.next());
  const std::int64_t lines = words.next();
  words.skip(2);  // lengths
  read_loops(words, inputs);
  read_loops(words, outputs);
  check_lines(rules, lines, inputs, outputs);
}

void check_sort(CheckRules& rules, PayloadWords words, std::span<CheckedOperand> operands) {
  const bool searches = PayloadWords(words).next() == static_cast<int>(OpFunc::searchsorted);
  (searches ? check_search : check_scan)(rules, words, operands);
}

struct Kind {
  Opcode opcode;
  const char* name;
  bool begins_with_op;
  void (*check)(CheckRules&, PayloadWords, std::span<CheckedOperand>);  ///< null: not by itself
};
constexpr Kind kKinds[] = {
    {Opcode::move, "move", false, check_move},
    {Opcode::fill, "fill", false, check_fill},
    {Opcode::pointwise, "pointwise", true, check_pointwise},
    {Opcode::reduce, "reduce", true, check_reduce},
    {Opcode::rows, "rows", true, check_rows},
    {Opcode::scan, "scan", true, check_scan},
    {Opcode::matmul, "matmul", true, check_matmul},
    {Opcode::index, "index", true, nullptr},
    {Opcode::sort, "sort", true, check_sort},
    {Opcode::cores, "cores", false, nullptr},
    {Opcode::chain, "chain", false, check_chain},
    {Opcode::accounts, "accounts", false, nullptr},
    {Opcode::handover, "handover", false, nullptr},
};

const Kind& kind_of(Opcode opcode) {
  return *std::find_if(std::begin(kKinds), std::end(kKinds),
                       [&](const Kind& kind) { return kind.opcode == opcode; });
}

}  // namespace

std::string step_text(const StepWords& step) {
  const Kind& kind = kind_of(step.opcode);
  const OpInfo* const op =
      kind.begins_with_op ? find_op(static_cast<std::uint64_t>(step.words[0])) : nullptr;
  return op ? std::string(kind.name) + " " + op->name : kind.name;
}

bool check_step(CheckRules& rules, const StepWords& step, std::span<CheckedOperand> operands) {
  const PayloadWords words(step.words);
  if (step.opcode == Opcode::index) return check_index(rules, words, operands);
  const Kind& kind = kind_of(step.opcode);
  if (!kind.check) rules.complain("a step that the checker does not know");
  kind.check(rules, words, operands);
  return true;
}

}  // namespace spyre::card
