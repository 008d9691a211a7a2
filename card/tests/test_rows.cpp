// Row operations, against references in double.
#include <algorithm>

#include "line_support.h"

using namespace spyre::card;
using namespace spyre::card::test;
using spyre::DataFormat;
using spyre::OpFunc;

namespace {

using Values = std::vector<double>;
constexpr double kEpsilon = 1e-5;

struct Case {
  Layout layout;
  unsigned along;
};

std::vector<Case> cases(std::int64_t stick) {
  return {
      {{{5, 64}, stick}, 0b10},      {{{70, 130}, stick}, 0b10},    {{{70, 130}, stick}, 0b01},
      {{{3, 9, 100}, stick}, 0b100}, {{{3, 9, 100}, stick}, 0b010}, {{{3, 9, 100}, stick}, 0b110},
      {{{2, 1300}, stick}, 0b10},    {{{600, 5}, stick}, 0b01},     {{{300, 9}, stick}, 0b10},
      {{{30, 33}, 0}, 0b10},         {{{30, 33}, 0, true}, 0b10},   {{{30, 33}, 0, true}, 0b01},
      {{{1, 1}, 0}, 0b10},
  };
}

const OpFunc kEvery[] = {OpFunc::softmax,       OpFunc::logsoftmax, OpFunc::softmaxbwd,
                         OpFunc::logsoftmaxbwd, OpFunc::layernorm,  OpFunc::rmsnorm,
                         OpFunc::layernormbwd};

/// What an op gives for one row. `second` is the result of the forward op, or x of layernormbwd.
Values reference(OpFunc op, const Values& first, const Values& second, const Values& weight,
                 const Values& bias, double& mean, double& scale) {
  const auto n = static_cast<double>(first.size());
  Values out(first.size());
  double largest = -kInf, sum = 0, square = 0;
  for (const double x : first) largest = std::max(largest, x);
  switch (op) {
    case OpFunc::softmax:
    case OpFunc::logsoftmax:
      for (const double x : first) sum += std::exp(x - largest);
      for (std::size_t i = 0; i < out.size(); ++i)
        out[i] = op == OpFunc::softmax ? std::exp(first[i] - largest) / sum
                                       : first[i] - largest - std::log(sum);
      break;
    case OpFunc::softmaxbwd:
      for (std::size_t i = 0; i < out.size(); ++i) sum += first[i] * second[i];
      for (std::size_t i = 0; i < out.size(); ++i) out[i] = second[i] * (first[i] - sum);
      break;
    case OpFunc::logsoftmaxbwd:
      for (const double g : first) sum += g;
      for (std::size_t i = 0; i < out.size(); ++i) out[i] = first[i] - std::exp(second[i]) * sum;
      break;
    case OpFunc::layernorm:
    case OpFunc::rmsnorm:
      mean = 0;
      if (op == OpFunc::layernorm) {
        for (const double x : first) mean += x / n;
      }
      for (const double x : first) square += (x - mean) * (x - mean) / n;
      scale = 1 / std::sqrt(square + kEpsilon);
      for (std::size_t i = 0; i < out.size(); ++i)
        out[i] = (first[i] - mean) * scale * weight[i] + bias[i];
      break;
    default:
      for (std::size_t i = 0; i < out.size(); ++i) {
        sum += first[i] * weight[i] / n;
        square += first[i] * weight[i] * (second[i] - mean) * scale / n;
      }
      for (std::size_t i = 0; i < out.size(); ++i)
        out[i] = scale * (first[i] * weight[i] - sum - (second[i] - mean) * scale * square);
  }
  return out;
}

void fill(Elements& elements, std::int64_t count, std::mt19937& random, double low = -3,
          double high = 3) {
  elements.need(static_cast<std::uint64_t>(count * element_bytes(elements.format)));
  for (std::int64_t i = 0; i < count; ++i)
    elements.set(i, std::uniform_real_distribution<>(low, high)(random));
}

/// Weights: one row for all, or one a row, or none.
enum class Weights { none, shared, full };

/// Operands: 0 first, 1 second, 2 weight, 3 bias, 4 mean, 5 scale, 6 output, 7 and 8 mean and scale
/// written.
Rows description(OpFunc op, const Lines& lines, DataFormat format, Weights weights) {
  Rows rows;
  rows.op = op;
  rows.rows = lines.lines;
  rows.row_length = lines.length;
  const LineTensor first{0, format, lines.loops}, second{1, format, lines.loops};
  LineTensor weight{2, format, {{{lines.length}, {1}, {0}, {1}}}}, bias = weight;
  if (weights == Weights::full) {
    weight.loops = {{{lines.length, lines.lines}, {1, lines.length}, {0, 1}, {1, 0}}};
    bias.loops = weight.loops;
  }
  bias.operand = 3;
  if (weights == Weights::none) weight.operand = bias.operand = -1;
  const LineTensor column{4, kSingle, {{{lines.lines}, {1}, {1}, {0}}}};
  LineTensor scale = column, mean_out = column, scale_out = column;
  scale.operand = 5;
  mean_out.operand = 7;
  scale_out.operand = 8;
  rows.outputs = {{6, format, lines.loops}};
  switch (op) {
    case OpFunc::softmax:
    case OpFunc::logsoftmax:
      rows.inputs = {first};
      break;
    case OpFunc::softmaxbwd:
    case OpFunc::logsoftmaxbwd:
      rows.inputs = {first, second};
      break;
    case OpFunc::layernorm:
      rows.inputs = {first, weight, bias};
      rows.outputs.insert(rows.outputs.end(), {mean_out, scale_out});
      rows.constants = {kEpsilon};
      break;
    case OpFunc::rmsnorm:
      rows.inputs = {first, weight};
      rows.outputs.push_back(scale_out);
      rows.constants = {kEpsilon};
      break;
    default:
      rows.inputs = {first, second, column, scale, weight};
  }
  return rows;
}

struct Operands {
  Elements first, second, weight, bias, mean{kSingle}, scale{kSingle}, output, mean_out{kSingle},
      scale_out{kSingle};
  explicit Operands(DataFormat format)
      : first(format), second(format), weight(format), bias(format), output(format) {}
  std::vector<Elements*> all() {
    return {&first, &second, &weight, &bias, &mean, &scale, &output, &mean_out, &scale_out};
  }
};

Operands filled(const Lines& lines, DataFormat format, std::mt19937& random) {
  Operands operands(format);
  fill(operands.first, lines.end(), random);
  fill(operands.second, lines.end(), random, -2, 0.5);
  fill(operands.weight, lines.length * lines.lines, random);
  fill(operands.bias, lines.length * lines.lines, random);
  fill(operands.mean, lines.lines, random, -0.1, 0.1);
  fill(operands.scale, lines.lines, random, 0.5, 1);
  return operands;
}

void check_case(OpFunc op, const Case& each, DataFormat format, Weights weights,
                std::mt19937& random) {
  const Lines lines(each.layout, each.along);
  Operands operands = filled(lines, format, random);
  run(program_of(description(op, lines, format, weights)), operands.all());
  const auto first = lines.values(operands.first), second = lines.values(operands.second),
             output = lines.values(operands.output);
  for (std::int64_t row = 0; row < lines.lines; ++row) {
    const auto at = static_cast<std::size_t>(row);
    Values weight(first[at].size(), 1.0), bias(first[at].size(), 0.0);
    for (std::size_t i = 0; i < weight.size() && weights != Weights::none; ++i) {
      const auto from =
          static_cast<std::int64_t>(i) + (weights == Weights::full ? row * lines.length : 0);
      weight[i] = operands.weight.get(from);
      if (op == OpFunc::layernorm) bias[i] = operands.bias.get(from);
    }
    double mean = operands.mean.get(row), scale = operands.scale.get(row);
    const Values wanted = reference(op, first[at], second[at], weight, bias, mean, scale);
    const double slack = op == OpFunc::logsoftmaxbwd || op == OpFunc::softmaxbwd ? 2e-4 : 4e-6;
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      if (close(output[at][i], wanted[i], format, slack)) continue;
      std::cerr << op_info(op).name << " " << format_info(format).name << " row " << row << " of "
                << lines.lines << " x " << lines.length << " position " << i << ": "
                << output[at][i] << " is not " << wanted[i] << "\n";
      CHECK(false);
      return;
    }
    if (op == OpFunc::layernorm) CHECK(close(operands.mean_out.get(row), mean, kSingle, 1e-6));
    if (op == OpFunc::layernorm || op == OpFunc::rmsnorm)
      CHECK(close(operands.scale_out.get(row), scale, kSingle, scale * 1e-6));
  }
}

/// Softmax of one row in fp32.
Values softmax_of(const Values& values) {
  const auto n = static_cast<std::int64_t>(values.size());
  Operands operands(kSingle);
  operands.first = Elements(kSingle, n);
  for (std::int64_t i = 0; i < n; ++i) operands.first.set(i, values[static_cast<std::size_t>(i)]);
  const Lines lines({{1, n}, 0}, 0b10);
  run(program_of(description(OpFunc::softmax, lines, kSingle, Weights::none)), operands.all());
  return lines.values(operands.output)[0];
}

}  // namespace

TEST(every_row_operation_in_every_direction) {
  std::mt19937 random(1);
  for (const DataFormat format : {kDl16, kSingle})
    for (const Case& each : cases(stick_of(format)))
      for (const OpFunc op : kEvery) check_case(op, each, format, Weights::shared, random);
}

TEST(weights_are_optional_and_may_differ_from_row_to_row) {
  std::mt19937 random(2);
  for (const Case& each : cases(64))
    for (const OpFunc op : {OpFunc::layernorm, OpFunc::rmsnorm, OpFunc::layernormbwd})
      for (const Weights weights : {Weights::none, Weights::full})
        check_case(op, each, kDl16, weights, random);
}

TEST(a_softmax_of_large_and_masked_values) {
  const Values all = softmax_of({1000, 1000, -kInf, 998});
  CHECK(std::abs(all[0] - all[1]) < 1e-9);
  CHECK_EQ(all[2], 0.0);
  CHECK(std::abs(all[0] + all[1] + all[3] - 1) < 1e-6);
  for (const double x : softmax_of({-kInf, -kInf})) CHECK(std::isnan(x));
  for (const double x : softmax_of({1, kNan, 2})) CHECK(std::isnan(x));
  for (const double x : softmax_of({1, kInf, 2})) CHECK(std::isnan(x) || x == 0);
  CHECK_EQ(softmax_of({-80, -80})[0], 0.5);
  CHECK_EQ(softmax_of({0, -200})[1], 0.0);
}

TEST(a_result_may_take_the_place_of_its_input) {
  std::mt19937 random(3);
  for (const Case& each : cases(64)) {
    const Lines lines(each.layout, each.along);
    Operands apart = filled(lines, kDl16, random), same = apart;
    Rows rows = description(OpFunc::softmax, lines, kDl16, Weights::none);
    run(program_of(rows), apart.all());
    rows.outputs[0].operand = 0;
    run(program_of(rows), same.all());
    CHECK(lines.values(same.first) == lines.values(apart.output));
  }
}

TEST(an_input_that_the_output_overlaps_is_read_first) {
  // The output lies one row behind the input, in the same tensor; 200 rows in several blocks.
  std::mt19937 random(4);
  const Lines lines({{200, 700}, 0}, 0b10);
  Operands apart = filled(lines, kDl16, random), same = apart;
  Rows rows = description(OpFunc::softmax, lines, kDl16, Weights::none);
  run(program_of(rows), apart.all());
  rows.outputs[0].operand = 0;
  rows.outputs[0].loops[0].tensor_offset = 700;
  run(program_of(rows), same.all());
  for (std::int64_t i = 0; i < 200 * 700; ++i)
    CHECK_EQ(same.first.get(i + 700), apart.output.get(i));
  // And the weight's place.
  Operands norm = filled(Lines({{9, 64}, 0}, 0b10), kDl16, random), other = norm;
  rows = description(OpFunc::rmsnorm, Lines({{9, 64}, 0}, 0b10), kDl16, Weights::shared);
  run(program_of(rows), norm.all());
  rows.outputs[0].operand = 2;
  run(program_of(rows), other.all());
  for (std::int64_t i = 0; i < 9 * 64; ++i) CHECK_EQ(other.weight.get(i), norm.output.get(i));
}

TEST(empty_rows_and_no_rows_do_nothing) {
  Operands operands(kSingle);
  for (const std::int64_t rows : {0, 3})
    for (const OpFunc op : kEvery) {
      const Lines lines({{rows, rows ? 0 : 3}, 0}, 0b10);
      Operands empty(kSingle);
      run(program_of(description(op, lines, kSingle, Weights::none)), empty.all());
    }
}

TEST(rows_that_share_an_output_run_in_order) {
  Operands operands(kSingle);
  const Lines lines({{500, 300}, 0}, 0b10);
  std::mt19937 random(5);
  operands = filled(lines, kSingle, random);
  Rows rows = description(OpFunc::softmax, lines, kSingle, Weights::none);
  run(program_of(rows), operands.all());
  const Values last = lines.values(operands.output).back();
  Elements one(kSingle);
  std::vector<Elements*> all = operands.all();
  all[6] = &one;
  rows.outputs[0].loops = {{{300, 500}, {1, 0}, {0, 1}, {1, 0}}};
  run(program_of(rows), all);
  for (std::int64_t i = 0; i < 300; ++i) CHECK_EQ(one.get(i), last[static_cast<std::size_t>(i)]);
}

TEST(digest_of_rows) {
  std::mt19937 random(6);
  std::uint64_t digest = 0;
  for (const DataFormat format : {kDl16, kSingle})
    for (const unsigned along : {0b01u, 0b10u})
      for (const OpFunc op : kEvery) {
        const Lines lines({{500, 700}, stick_of(format)}, along);
        Operands operands = filled(lines, format, random);
        operands.first.set(77, kNan);
        operands.first.set(1077, kInf);
        run(program_of(description(op, lines, format, Weights::shared)), operands.all());
        digest = digest_of(digest, operands.output);
      }
  if (std::getenv("SPYRE_TEST_DIGEST")) std::printf("digest %llu\n", (unsigned long long)digest);
}

TEST(threads_and_vector_width_change_no_bit) { check_same_digests("digest_of_rows"); }

TEST(malformed_row_operations_are_refused_by_naming_the_field) {
  const auto refused = [](const char* message, OpFunc op, auto change) {
    Rows rows = description(op, Lines({{6, 70}, 64}, 0b10), kDl16, Weights::shared);
    change(rows);
    CHECK_THROWS(first_step(program_of(rows)), message);
  };
  const OpFunc softmax = OpFunc::softmax, norm = OpFunc::layernorm;
  refused("op: sum is not a row operation", softmax, [](Rows& r) { r.op = OpFunc::sum; });
  refused("op: 9999 is unknown", softmax, [](Rows& r) { r.op = static_cast<OpFunc>(9999); });
  refused("inputs: 2 where the op has 1", softmax,
          [](Rows& r) { r.inputs.push_back(r.inputs[0]); });
  refused("outputs: 0 where the op has 1", softmax, [](Rows& r) { r.outputs.clear(); });
  refused("input: -1 is not in 0..1023", softmax, [](Rows& r) { r.inputs[0].operand = -1; });
  refused("weight: -2 is not in -1..1023", norm, [](Rows& r) { r.inputs[1].operand = -2; });
  refused("input: 2 is not a format", softmax,
          [](Rows& r) { r.inputs[0].format = DataFormat::INVALID; });
  refused("constants: layernorm takes 1, not 0", norm, [](Rows& r) { r.constants.clear(); });
  refused("rows: -1", softmax, [](Rows& r) { r.rows = -1; });
  refused("row length: -1", softmax, [](Rows& r) { r.row_length = -1; });
  refused("loop 0, row: 5 of the input is not below 5", softmax, [](Rows& r) { r.rows = 5; });
  refused("loop 1, position: 69 of the input is not below 69", softmax,
          [](Rows& r) { r.row_length = 69; });
  refused("loop 0, position: 5 of the mean output is not below 1", norm, [](Rows& r) {
    r.outputs[1].loops[0].line[0] = 0;
    r.outputs[1].loops[0].position[0] = 1;
  });
  refused("input: the loops visit 840 elements, but 6 lines have 420", softmax, [](Rows& r) {
    r.inputs[0].loops.insert(r.inputs[0].loops.end(), r.outputs[0].loops.begin(),
                             r.outputs[0].loops.end());
  });
  refused("output: element -1", softmax, [](Rows& r) { r.outputs[0].loops[0].tensor_offset = -1; });
}

TEST(mutated_row_operations_never_crash) {
  const Lines lines({{6, 70}, 64}, 0b10);
  fuzz_program(program_of(description(OpFunc::layernorm, lines, kDl16, Weights::shared)), 9, 1,
               4000);
  fuzz_program(program_of(description(OpFunc::layernormbwd, lines, kDl16, Weights::full)), 9, 2,
               4000);
}

TEST(a_row_operation_says_what_it_touches) {
  const auto step = first_step(program_of(
      description(OpFunc::layernorm, Lines({{6, 70}, 64}, 0b10), kDl16, Weights::shared)));
  CHECK_EQ(step->traffic().read, (2u * 6 + 2 * 2) * 128);  // whole sticks
  CHECK_EQ(step->traffic().written, (2u * 6 + 2) * 128);
  CHECK_EQ(step->needs().size(), 6u);
}
