// Scans, against references in double.
#include <algorithm>

#include "line_support.h"

using namespace spyre::card;
using namespace spyre::card::test;
using spyre::DataFormat;
using spyre::OpFunc;

namespace {

struct Case {
  Layout layout;
  unsigned along;
};

std::vector<Case> cases(std::int64_t stick) {
  return {
      {{{5, 64}, stick}, 0b10},      {{{70, 130}, stick}, 0b10},    {{{70, 130}, stick}, 0b01},
      {{{3, 9, 100}, stick}, 0b100}, {{{3, 9, 100}, stick}, 0b010}, {{{3, 9, 100}, stick}, 0b111},
      {{{600, 5}, stick}, 0b01},     {{{1, 3000}, stick}, 0b10},    {{{30, 33}, 0}, 0b10},
      {{{30, 33}, 0, true}, 0b10},   {{{1, 1}, 0}, 0b10},           {{{0, 4}, 0}, 0b10},
      {{{4, 0}, 0}, 0b10},
  };
}

const OpFunc kEvery[] = {OpFunc::cumsum, OpFunc::cumprod, OpFunc::cummax, OpFunc::cummin,
                         OpFunc::logcumsumexp};

std::vector<double> reference(OpFunc op, const std::vector<double>& x, std::vector<double>& index) {
  std::vector<double> out(x.size());
  index.assign(x.size(), 0.0);
  double value = op == OpFunc::cumprod ? 1 : 0, at = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    switch (op) {
      case OpFunc::cumsum:
        value += x[i];
        break;
      case OpFunc::cumprod:
        value *= x[i];
        break;
      case OpFunc::logcumsumexp: {
        const double largest = i ? std::max(value, x[i]) : x[i];
        const double shift = std::isinf(largest) ? 0 : largest;
        value = shift + std::log((i ? std::exp(value - shift) : 0) + std::exp(x[i] - shift));
        break;
      }
      default: {
        const bool better = op == OpFunc::cummax ? x[i] >= value : x[i] <= value;
        if (i == 0 || x[i] != x[i] || better) {
          value = x[i];
          at = static_cast<double>(i);
        }
      }
    }
    out[i] = value;
    index[i] = at;
  }
  return out;
}

Scan description(OpFunc op, const Lines& lines, DataFormat format) {
  Scan scan;
  scan.op = op;
  scan.input = {0, format, lines.loops};
  scan.output = {1, format, lines.loops};
  if (op == OpFunc::cummax || op == OpFunc::cummin) scan.indices = {2, kInt32, lines.loops};
  if (format == kInt32) scan.compute = Compute::int64;
  scan.lines = lines.lines;
  scan.line_length = lines.length;
  return scan;
}

void fill(Elements& elements, std::int64_t count, std::mt19937& random) {
  elements.need(static_cast<std::uint64_t>(count * element_bytes(elements.format)));
  for (std::int64_t i = 0; i < count; ++i) {
    // A few equal values, and nothing that makes a long product leave the format.
    const double value = elements.format == kInt32
                             ? static_cast<double>(random() % 7) - 3
                             : static_cast<double>(random() % 64) / 64.0 + 0.5;
    elements.set(i, value);
  }
}

std::vector<double> of_values(OpFunc op, const std::vector<double>& values,
                              std::vector<double>* indices = nullptr) {
  const auto n = static_cast<std::int64_t>(values.size());
  Elements in(kSingle, n), out(kSingle), where(kInt32);
  for (std::int64_t i = 0; i < n; ++i) in.set(i, values[static_cast<std::size_t>(i)]);
  const Lines lines({{1, n}, 0}, 0b10);
  run(program_of(description(op, lines, kSingle)), {&in, &out, &where});
  if (indices) *indices = lines.values(where)[0];
  return lines.values(out)[0];
}

}  // namespace

TEST(every_scan_in_every_direction) {
  std::mt19937 random(1);
  for (const DataFormat format : {kDl16, kSingle, kInt32})
    for (const Case& each : cases(stick_of(format)))
      for (const OpFunc op : kEvery) {
        if (format == kInt32 && !op_info(op).int64) continue;
        const Lines lines(each.layout, each.along);
        // Long products of integers wrap, which the reference does not.
        if (format == kInt32 && op == OpFunc::cumprod && lines.length > 30) continue;
        Elements in(format), out(format), where(kInt32);
        fill(in, lines.end(), random);
        run(program_of(description(op, lines, format)), {&in, &out, &where});
        const auto from = lines.values(in), to = lines.values(out);
        const bool extremes = op == OpFunc::cummax || op == OpFunc::cummin;
        const auto found = extremes ? lines.values(where) : from;
        for (std::size_t line = 0; line < from.size(); ++line) {
          std::vector<double> index;
          const auto wanted = reference(op, from[line], index);
          for (std::size_t i = 0; i < wanted.size(); ++i) {
            CHECK(close(to[line][i], wanted[i], format,
                        op == OpFunc::logcumsumexp ? 1e-5 : std::abs(wanted[i]) * 1e-6));
            if (extremes) CHECK_EQ(found[line][i], index[i]);
          }
        }
      }
}

TEST(the_last_of_equals_and_the_last_nan) {
  std::vector<double> index;
  of_values(OpFunc::cummax, {1, 3, 3, 2, kNan, 5, kNan}, &index);
  CHECK((index == std::vector<double>{0, 1, 2, 2, 4, 4, 6}));
  const auto values = of_values(OpFunc::cummin, {2, 3, kNan, 1}, &index);
  CHECK_EQ(values[1], 2.0);
  CHECK(std::isnan(values[2]));
  CHECK(std::isnan(values[3]));
  CHECK((index == std::vector<double>{0, 0, 2, 2}));
  CHECK_EQ(of_values(OpFunc::cummax, {-kInf, -kInf})[1], -kInf);
}

TEST(logcumsumexp_of_special_values) {
  const auto values = of_values(OpFunc::logcumsumexp, {-kInf, -kInf, -500, 3, kInf, 1});
  CHECK_EQ(values[0], -kInf);
  CHECK_EQ(values[1], -kInf);
  CHECK(std::abs(values[2] + 500) < 1e-3);
  CHECK(std::abs(values[3] - 3) < 1e-6);
  CHECK_EQ(values[4], kInf);
  CHECK_EQ(values[5], kInf);
  const auto with_nan = of_values(OpFunc::logcumsumexp, {1, kNan, 2});
  CHECK_EQ(with_nan[0], 1.0);
  CHECK(std::isnan(with_nan[2]));
}

TEST(errors_of_long_running_sums_stay_small) {
  const auto values = of_values(OpFunc::cumsum, std::vector<double>(1'000'000, 0.1));
  const double tenth = static_cast<double>(0.1f);
  CHECK(std::abs(values.back() - 1e6 * tenth) < 1e6 * tenth * 0x1p-23);
}

TEST(integers_wrap_at_the_output) {
  Elements in(kInt32, 3), out(kInt32);
  for (int i = 0; i < 3; ++i) in.set(i, 2'000'000'000);
  const Lines lines({{1, 3}, 0}, 0b10);
  run(program_of(description(OpFunc::cumsum, lines, kInt32)), {&in, &out});
  CHECK_EQ(out.get(2), static_cast<double>(static_cast<std::int32_t>(6'000'000'000)));
  Scan narrow = description(OpFunc::cumsum, lines, kInt32);
  narrow.narrow = Narrow::uint8;
  run(program_of(narrow), {&in, &out});
  CHECK_EQ(out.get(0), static_cast<double>(2'000'000'000 & 0xFF));
}

TEST(a_scan_may_be_in_place_and_go_backwards) {
  std::mt19937 random(2);
  for (const Case& each : cases(64)) {
    const Lines lines(each.layout, each.along);
    Elements in(kDl16), out(kDl16);
    fill(in, lines.end(), random);
    Elements same = in;
    Scan scan = description(OpFunc::cumsum, lines, kDl16);
    run(program_of(scan), {&in, &out});
    scan.output.operand = 0;
    run(program_of(scan), {&same});
    CHECK(lines.values(same) == lines.values(out));
  }
  // Reversed within one tensor: everything is read before it is overwritten.
  Elements tensor(kSingle, 5);
  for (int i = 0; i < 5; ++i) tensor.set(i, i + 1);
  Scan scan = description(OpFunc::cumsum, Lines({{1, 5}, 0}, 0b10), kSingle);
  scan.output.operand = 0;
  scan.output.loops[0].tensor[0] = -1;
  scan.output.loops[0].tensor_offset = 4;
  run(program_of(scan), {&tensor});
  const double wanted[] = {15, 10, 6, 3, 1};
  for (int i = 0; i < 5; ++i) CHECK_EQ(tensor.get(i), wanted[i]);
}

TEST(digest_of_scans) {
  std::mt19937 random(3);
  std::uint64_t digest = 0;
  for (const DataFormat format : {kDl16, kSingle})
    for (const unsigned along : {0b01u, 0b10u, 0b11u})
      for (const OpFunc op : kEvery) {
        const Lines lines({{300, 200}, stick_of(format)}, along);
        Elements in(format), out(format), where(kInt32);
        fill(in, lines.end(), random);
        run(program_of(description(op, lines, format)), {&in, &out, &where});
        digest = digest_of(digest_of(digest, out), where);
      }
  if (std::getenv("SPYRE_TEST_DIGEST")) std::printf("digest %llu\n", (unsigned long long)digest);
}

TEST(threads_and_vector_width_change_no_bit) { check_same_digests("digest_of_scans"); }

TEST(malformed_scans_are_refused_by_naming_the_field) {
  const auto refused = [](const char* message, auto change) {
    Scan scan = description(OpFunc::cummax, Lines({{6, 70}, 64}, 0b10), kDl16);
    change(scan);
    CHECK_THROWS(first_step(program_of(scan)), message);
  };
  refused("op: sum is not a scan", [](Scan& s) { s.op = OpFunc::sum; });
  refused("op: 9999 is unknown", [](Scan& s) { s.op = static_cast<OpFunc>(9999); });
  refused("input operand: -1", [](Scan& s) { s.input.operand = -1; });
  refused("output format:", [](Scan& s) { s.output.format = DataFormat::INVALID; });
  refused("index output operand: cumsum has no indices", [](Scan& s) { s.op = OpFunc::cumsum; });
  refused("narrow: 7", [](Scan& s) { s.narrow = static_cast<Narrow>(7); });
  refused("compute type: 3", [](Scan& s) { s.compute = static_cast<Compute>(3); });
  refused("compute type: logcumsumexp does not compute in int64", [](Scan& s) {
    s.op = OpFunc::logcumsumexp;
    s.indices.operand = -1;
    s.compute = Compute::int64;
  });
  refused("lines: -5", [](Scan& s) { s.lines = -5; });
  refused("line length: -5", [](Scan& s) { s.line_length = -5; });
  refused("loop 0, line: 5 of the input is not below 5", [](Scan& s) { s.lines = 5; });
  refused("loop 0, position: 70 of the output is not below 70",
          [](Scan& s) { s.output.loops[0].position_offset = 7; });
  refused("input: the loops visit", [](Scan& s) { s.input.loops.push_back(s.input.loops[0]); });
}

TEST(mutated_scans_never_crash) {
  const Lines lines({{6, 70}, 64}, 0b10);
  fuzz_program(program_of(description(OpFunc::cummax, lines, kDl16)), 3, 1, 4000);
  fuzz_program(program_of(description(OpFunc::cumsum, lines, kDl16)), 3, 2, 4000);
}
