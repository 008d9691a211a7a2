// Reductions, against references in double.
#include <algorithm>
#include <limits>

#include "line_support.h"
#include "nests/lines.h"

using namespace spyre::card;
using namespace spyre::card::test;
using spyre::DataFormat;
using spyre::OpFunc;

namespace {

double extreme(const std::vector<double>& values, bool largest, std::int64_t& index) {
  index = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (values[i] != values[i]) return index = static_cast<std::int64_t>(i), kNan;
    const double best = values[static_cast<std::size_t>(index)];
    if (largest ? values[i] > best : values[i] < best) index = static_cast<std::int64_t>(i);
  }
  return values[static_cast<std::size_t>(index)];
}

/// The value, and how far fp32 arithmetic may be from it.
double reference(OpFunc op, const std::vector<double>& values, double& slack) {
  const auto n = static_cast<double>(values.size());
  double sum = 0, absolute = 0, squares = 0, product = 1, nonzeros = 0, magnitude = 0;
  for (const double x : values) {
    sum += x;
    absolute += std::abs(x);
    squares += x * x;
    product *= x;
    nonzeros += x != 0;
    magnitude = std::abs(x) > magnitude || x != x ? std::abs(x) : magnitude;
  }
  constexpr double kUnit = 0x1p-22;
  std::int64_t index;
  slack = 0;
  switch (op) {
    case OpFunc::sum:
      return slack = absolute * kUnit, sum;
    case OpFunc::mean:
      return slack = absolute * kUnit / n, sum / n;
    case OpFunc::sumsq:
      return slack = squares * kUnit, squares;
    case OpFunc::prod:
      return slack = std::abs(product) * n * 0x1p-24, product;
    case OpFunc::max:
      return extreme(values, true, index);
    case OpFunc::min:
      return extreme(values, false, index);
    case OpFunc::argmax:
      return extreme(values, true, index), static_cast<double>(index);
    case OpFunc::argmin:
      return extreme(values, false, index), static_cast<double>(index);
    case OpFunc::amaxabs:
      return magnitude;
    case OpFunc::any:
      return nonzeros > 0;
    case OpFunc::all:
      return nonzeros == n;
    case OpFunc::countnonzero:
      return nonzeros;
    case OpFunc::logsumexp: {
      double total = 0;
      const double largest = values.empty() ? -kInf : extreme(values, true, index);
      const double shift = std::isinf(largest) ? 0 : largest;
      for (const double x : values) total += std::exp(x - shift);
      slack = 1e-6 + std::abs(shift) * kUnit;
      return std::log(total) + shift;
    }
    case OpFunc::var: {
      double deviations = 0;
      for (const double x : values) deviations += (x - sum / n) * (x - sum / n);
      slack = deviations / (n - 1) * 1e-6 + 1e-12;
      return deviations / (n - 1);
    }
    default:
      return slack = absolute * kUnit / n, sum / n;  // the first output of exx2
  }
}

void fill(Elements& elements, std::int64_t count, std::mt19937& random) {
  elements.need(static_cast<std::uint64_t>(count * element_bytes(elements.format)));
  for (std::int64_t i = 0; i < count; ++i) {
    const double wide = std::uniform_real_distribution<>(-2, 2)(random);
    if (elements.format == kBool) {
      elements.set(i, random() % 4 != 0);
    } else if (elements.format == kInt32) {
      elements.set(i, static_cast<double>(static_cast<std::int32_t>(random() % 41) - 20));
    } else {
      elements.set(i, random() % 16 == 0 ? 0 : wide);
    }
  }
}

struct Case {
  Layout layout;
  unsigned along;
};

std::vector<Case> cases(DataFormat format) {
  const std::int64_t stick = stick_of(format);
  return {
      {{{5, 64}, stick}, 0b10},
      {{{70, 130}, stick}, 0b10},
      {{{70, 130}, stick}, 0b01},
      {{{70, 130}, stick}, 0b11},
      {{{3, 9, 100}, stick}, 0b010},
      {{{3, 9, 100}, stick}, 0b101},
      {{{3, 9, 100}, stick}, 0b111},
      {{{3, 9, 100}, stick}, 0b001},
      {{{2, 1300}, stick}, 0b10},
      {{{1300, 66}, stick}, 0b01},
      {{{1, 2100}, stick}, 0b10},
      {{{40, 3}, 0}, 0b10},
      {{{700, 11}, 0}, 0b01},
      {{{37, 41}, 0, true}, 0b10},
      {{{600, 70}, 0, true}, 0b01},
      {{{6, 5, 4}, 0, true}, 0b101},
      {{{1}, 0}, 0b1},
      {{{1}, 0}, 0b0},
  };
}

const OpFunc kEvery[] = {OpFunc::sum,  OpFunc::mean,   OpFunc::sumsq,        OpFunc::prod,
                         OpFunc::max,  OpFunc::min,    OpFunc::amaxabs,      OpFunc::any,
                         OpFunc::all,  OpFunc::argmax, OpFunc::countnonzero, OpFunc::argmin,
                         OpFunc::exx2, OpFunc::var,    OpFunc::logsumexp};

void check_case(OpFunc op, const Case& each, DataFormat from, DataFormat to, bool integer,
                const Elements& input) {
  const Lines lines(each.layout, each.along);
  if (op == OpFunc::var && lines.length < 2) return;
  Reduce reduce = reduction(op, lines, from, to);
  if (integer) reduce.compute = Compute::int64;
  Elements in = input, out(to);
  run(program_of(reduce), {&in, &out});
  const auto values = lines.values(in);
  for (std::int64_t i = 0; i < lines.lines; ++i) {
    double slack;
    double wanted = reference(op, values[static_cast<std::size_t>(i)], slack);
    // Integers wrap around; floats that an integer cannot hold would become its minimum.
    if (integer && to == DataFormat::IEEE_INT32)
      wanted = static_cast<std::int32_t>(static_cast<std::int64_t>(wanted));
    if (close(out.get(i), wanted, to, slack)) continue;
    std::cerr << op_info(op).name << " from " << format_info(from).name << " to "
              << format_info(to).name << " line " << i << " of " << lines.lines << " x "
              << lines.length << ": " << out.get(i) << " is not " << wanted << "\n";
    CHECK(false);
    return;
  }
}

/// A program whose inputs are 6 lines of 5, along rows of a stick.
Reduce small_sum() { return reduction(OpFunc::sum, Lines({{6, 5}, 64}, 0b10), kDl16, kSingle); }

std::vector<std::byte> without_last_word(const Reduce& reduce) {
  auto program = program_of(reduce);
  StepHeader head;
  std::memcpy(&head, program.data() + sizeof(ProgramHeader), sizeof head);
  --head.payload_words;
  std::memcpy(program.data() + sizeof(ProgramHeader), &head, sizeof head);
  return program;
}

}  // namespace

TEST(every_reduction_of_floats_in_every_direction) {
  std::mt19937 random(1);
  for (const DataFormat from : {kDl16, kSingle})
    for (const Case& each : cases(from)) {
      Elements input(from);
      fill(input, Lines(each.layout, each.along).end(), random);
      for (const OpFunc op : kEvery)
        for (const DataFormat to : {kDl16, kSingle}) check_case(op, each, from, to, false, input);
    }
}

TEST(every_reduction_of_integers_and_booleans_in_every_direction) {
  std::mt19937 random(2);
  for (const DataFormat from : {kInt32, kBool})
    for (const Case& each : cases(from)) {
      Elements input(from);
      fill(input, Lines(each.layout, each.along).end(), random);
      for (const OpFunc op : kEvery) {
        // Products of many integers wrap, which the reference does not.
        if (op == OpFunc::prod && Lines(each.layout, each.along).length > 10) continue;
        if (op_info(op).int64) check_case(op, each, from, kInt32, true, input);
      }
    }
}

TEST(max_and_min_tell_where) {
  std::mt19937 random(3);
  for (const DataFormat from : {kDl16, kSingle, kInt32})
    for (const Case& each : cases(from))
      for (const OpFunc op : {OpFunc::max, OpFunc::min}) {
        const Lines lines(each.layout, each.along);
        Elements input(from), out(from), where(kInt32);
        fill(input, lines.end(), random);
        Reduce reduce = reduction(op, lines, from, from);
        if (from == kInt32) reduce.compute = Compute::int64;
        reduce.second = {2, kInt32};
        run(program_of(reduce), {&input, &out, &where});
        const auto values = lines.values(input);
        for (std::int64_t i = 0; i < lines.lines; ++i) {
          std::int64_t index;
          const double value =
              extreme(values[static_cast<std::size_t>(i)], op == OpFunc::max, index);
          CHECK_EQ(out.get(i), value);
          CHECK_EQ(where.get(i), static_cast<double>(index));
        }
      }
}

TEST(var_gives_the_mean_and_exx2_the_squares_too) {
  std::mt19937 random(4);
  for (const Case& each : cases(kSingle)) {
    const Lines lines(each.layout, each.along);
    if (lines.length < 2) continue;
    Elements in(kSingle), out(kSingle), second(kSingle);
    fill(in, lines.end(), random);
    const auto values = lines.values(in);
    for (const OpFunc op : {OpFunc::var, OpFunc::exx2}) {
      Reduce reduce = reduction(op, lines, kSingle, kSingle);
      reduce.second = {2, kSingle};
      run(program_of(reduce), {&in, &out, &second});
      for (std::int64_t i = 0; i < lines.lines; ++i) {
        double slack, unused;
        const auto& line = values[static_cast<std::size_t>(i)];
        const double first = reference(op, line, slack);
        CHECK(close(out.get(i), first, kSingle, slack));
        const double other = op == OpFunc::var ? reference(OpFunc::mean, line, slack)
                                               : reference(OpFunc::sumsq, line, unused) /
                                                     static_cast<double>(line.size());
        CHECK(close(second.get(i), other, kSingle, std::max(slack, 1e-6)));
      }
    }
    Reduce zero_mean = reduction(OpFunc::exx2, lines, kSingle, kSingle);
    zero_mean.constants[1] = 1;
    run(program_of(zero_mean), {&in, &out});
    CHECK_EQ(out.get(0), 0.0);
  }
}

TEST(results_go_through_any_loops_and_inputs_come_backwards) {
  Elements in(kSingle, 6), out(kDl16, 10);
  for (int i = 0; i < 6; ++i) in.set(i, i + 1);
  Reduce reduce = reduction(OpFunc::sum, Lines({{3, 2}, 0}, 0b10), kSingle, kDl16);
  reduce.input.loops = {{{2, 3}, {-1, -2}, {0, 1}, {1, 0}, 5, 0, 0}};  // 6+5, 4+3, 2+1
  reduce.results = {{{3}, {1}, {-3}, {}, 0, 8}, {{2}, {0}, {1}, {}, 1, 0}};
  run(program_of(reduce), {&in, &out});
  const double wanted[] = {7, 7, 3, 0, 0, 7, 0, 0, 11, 0};
  for (int i = 0; i < 10; ++i) CHECK_EQ(out.get(i), wanted[i]);
  // A dimension with stride 0 reads one element again and again.
  reduce.input.loops = {{{2, 3}, {0, 1}, {0, 1}, {1, 0}, 1, 0, 0}};
  run(program_of(reduce), {&in, &out});
  CHECK_EQ(out.get(8), 4.0);
}

TEST(a_result_may_go_where_the_input_came_from) {
  Elements tensor(kSingle, 12);
  for (int i = 0; i < 12; ++i) tensor.set(i, i);
  Reduce reduce = reduction(OpFunc::sum, Lines({{4, 3}, 0}, 0b10), kSingle, kSingle);
  reduce.output.operand = 0;
  run(program_of(reduce), {&tensor});
  for (int i = 0; i < 4; ++i) CHECK_EQ(tensor.get(i), 9.0 * i + 3);
}

TEST(all_vector_widths_and_both_arrangements_fold_alike) {
  std::mt19937 random(6);
  const std::int64_t lines = 37;
  for (const std::int64_t length : {1, 2, 31, 64, 65, 200, 512}) {
    std::vector<float> along, across(static_cast<std::size_t>(lines * length));
    for (std::int64_t i = 0; i < lines * length; ++i) {
      const bool special = random() % 97 == 0;
      along.push_back(special ? std::numeric_limits<float>::infinity()
                              : std::uniform_real_distribution<float>(-3, 3)(random));
      across[static_cast<std::size_t>(i % length * lines + i / length)] = along.back();
    }
    const std::vector<float> parameters(static_cast<std::size_t>(lines), 0.5f);
    for (int kind = 0; kind < kFolds; ++kind) {
      std::vector<float> first;
      for (const SimdLevel level : {SimdLevel::baseline, SimdLevel::avx2, SimdLevel::avx512})
        for (const bool is_across : {false, true}) {
          if (!simd_available(level)) continue;
          std::vector<float> results(static_cast<std::size_t>(lines)),
              work(static_cast<std::size_t>(64 * lines));
          line_kernels_at(level).floats.run[kind](
              is_across ? across.data() : along.data(),
              {lines, length, is_across ? lines : length, is_across}, parameters.data(),
              results.data(), work.data());
          for (float& result : results) result = result != result ? 12345.0f : result;
          if (first.empty()) first = results;
          CHECK(std::memcmp(first.data(), results.data(), results.size() * 4) == 0);
        }
    }
  }
}

TEST(digest_of_reductions) {
  std::mt19937 random(7);
  std::uint64_t digest = 0;
  for (const DataFormat from : {kDl16, kSingle})
    for (const Case& each :
         {Case{{{300, 700}, stick_of(from)}, 0b10}, Case{{{300, 700}, stick_of(from)}, 0b01},
          Case{{{300, 700}, stick_of(from)}, 0b11}, Case{{{3, 50, 130}, stick_of(from)}, 0b101}})
      for (const OpFunc op : kEvery) {
        const Lines lines(each.layout, each.along);
        Elements in(from), out(kSingle);
        fill(in, lines.end(), random);
        run(program_of(reduction(op, lines, from, kSingle)), {&in, &out});
        digest = digest_of(digest, out);
      }
  if (std::getenv("SPYRE_TEST_DIGEST")) std::printf("digest %llu\n", (unsigned long long)digest);
}

TEST(threads_and_vector_width_change_no_bit) { check_same_digests("digest_of_reductions"); }

TEST(the_same_bits_from_every_layout) {
  std::mt19937 random(8);
  const Layout tiled{{200, 600}, 64}, plain{{200, 600}, 0}, turned{{200, 600}, 0, true};
  std::vector<double> logical;
  for (int i = 0; i < 200 * 600; ++i)
    logical.push_back(std::uniform_real_distribution<>(-1, 1)(random));
  for (const unsigned along : {0b01u, 0b10u, 0b11u})
    for (const OpFunc op : kEvery) {
      Elements first(kSingle);
      for (const Layout& layout : {tiled, plain, turned}) {
        const Lines places(layout, 0b11), lines(layout, along);
        Elements in(kDl16, places.end()), out(kSingle);
        places.each([&](std::int64_t at, std::int64_t, std::int64_t position) {
          in.set(at, logical[static_cast<std::size_t>(position)]);
        });
        run(program_of(reduction(op, lines, kDl16, kSingle)), {&in, &out});
        if (first.bytes.empty()) first = out;
        CHECK(first.bytes == out.bytes);
      }
    }
}

TEST(malformed_reductions_are_refused_by_naming_the_field) {
  const auto refused = [](const char* message, auto change) {
    Reduce reduce = small_sum();
    change(reduce);
    CHECK_THROWS(first_step(program_of(reduce)), message);
  };
  refused("op: softmax is not a reduction", [](Reduce& r) { r.op = OpFunc::softmax; });
  refused("op: 9999 is unknown", [](Reduce& r) { r.op = static_cast<OpFunc>(9999); });
  refused("input operand: -1", [](Reduce& r) { r.input.operand = -1; });
  refused("input format:", [](Reduce& r) { r.input.format = DataFormat::INVALID; });
  refused("output operand: 1024", [](Reduce& r) { r.output.operand = 1024; });
  refused("output format:", [](Reduce& r) { r.output.format = DataFormat::INVALID; });
  refused("narrow: 3", [](Reduce& r) { r.narrow = static_cast<Narrow>(3); });
  refused("second output operand: sum has one output", [](Reduce& r) { r.second.operand = 2; });
  refused("second output operand: 5000", [](Reduce& r) { r.second.operand = 5000; });
  refused("compute type: 2", [](Reduce& r) { r.compute = static_cast<Compute>(2); });
  refused("compute type: logsumexp does not compute in int64", [](Reduce& r) {
    r.op = OpFunc::logsumexp;
    r.compute = Compute::int64;
  });
  refused("constants: sum takes 0, not 1", [](Reduce& r) { r.constants = {1.0}; });
  refused("constants: mean takes 1, not 0", [](Reduce& r) { r.op = OpFunc::mean; });
  refused("accumulators: -1", [](Reduce& r) { r.accumulators = -1; });
  refused("extent: -1", [](Reduce& r) { r.extent = -1; });
  refused("is more than a card has bytes",
          [](Reduce& r) { r.accumulators = r.extent = std::int64_t{1} << 30; });
  refused("loop 0, accumulator: 5 of the input is not below 5",
          [](Reduce& r) { r.accumulators = 5; });
  refused("loop 0, position: 4 of the input is not below 4", [](Reduce& r) { r.extent = 4; });
  refused("loop 0, accumulator: element -1", [](Reduce& r) { r.input.loops[0].line_offset = -1; });
  refused("loop 0, input: element -1", [](Reduce& r) { r.input.loops[0].tensor_offset = -1; });
  refused("loop 0, size: -2", [](Reduce& r) { r.input.loops[0].size[0] = -2; });
  refused("input: the loops visit 60 elements, but 6 lines have 30",
          [](Reduce& r) { r.input.loops.push_back(r.input.loops[0]); });
  refused("input: the loops visit 30 elements, but argmax needs all 36", [](Reduce& r) {
    r.op = OpFunc::argmax;
    r.extent = 6;
  });
  refused("accumulator: 6 of the output is not below 6",
          [](Reduce& r) { r.results[0].accumulator_offset = 1; });
  refused("input: the loops visit 30 elements, but 600 lines have 3000",
          [](Reduce& r) { r.accumulators = 600; });
  refused("accumulators: 6, but only 5 results are written",
          [](Reduce& r) { r.results[0].size[0] = 5; });
  refused("output: element -1", [](Reduce& r) { r.results[0].output_offset = -1; });
  CHECK_THROWS(first_step(without_last_word(small_sum())), "the payload ends before it");
}

TEST(mutated_reductions_never_crash) {
  Reduce max = reduction(OpFunc::max, Lines({{6, 70}, 64}, 0b10), kDl16, kDl16);
  max.second = {2, kInt32};
  fuzz_program(program_of(max), 3, 1, 4000);
  fuzz_program(program_of(reduction(OpFunc::var, Lines({{6, 70}, 64}, 0b01), kDl16, kSingle)), 3, 2,
               4000);
}

TEST(a_reduction_says_what_it_touches) {
  Reduce reduce = reduction(OpFunc::max, Lines({{6, 70}, 64}, 0b10), kDl16, kSingle);
  reduce.second = {2, kInt32};
  const auto step = first_step(program_of(reduce));
  CHECK_EQ(step->traffic().read, 2u * 6 * 128);  // whole sticks
  CHECK_EQ(step->traffic().written, 128u + 128);
  CHECK_EQ(step->cost().all_points, 6 * 70);
  CHECK_EQ(step->needs().size(), 3u);
  CHECK_EQ(step->needs()[0].bytes, (6u * 64 + 5 * 64 + 6) * 2);
  CHECK_EQ(step->needs()[1].bytes, 24u);
}
