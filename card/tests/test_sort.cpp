// Sorts, against std::stable_sort of doubles.
#include <algorithm>
#include <numeric>

#include "line_support.h"
#include "nests/step_payload.h"

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
      {{{30, 33}, 0, true}, 0b10},   {{{1, 1}, 0}, 0b10},
  };
}

const OpFunc kEvery[] = {OpFunc::sort,     OpFunc::topk,   OpFunc::topkvalue, OpFunc::topkindex,
                         OpFunc::kthvalue, OpFunc::median, OpFunc::nanmedian, OpFunc::mode};

bool is_float(DataFormat format) { return format == kDl16 || format == kSingle; }
bool below(double a, double b) { return a == a && (b != b || a < b); }
bool same(double a, double b) { return a == b || (a != a && b != b); }

/// Positions of one line in order.
std::vector<std::size_t> sorted(const std::vector<double>& x, bool descending) {
  std::vector<std::size_t> order(x.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return descending ? below(x[b], x[a]) : below(x[a], x[b]);
  });
  return order;
}

std::vector<std::size_t> reference(const Sort& sort, const std::vector<double>& x) {
  const auto k = sort.constants.empty() ? 0 : static_cast<std::size_t>(sort.constants[0]);
  const auto nans = static_cast<std::size_t>(
      std::count_if(x.begin(), x.end(), [](double value) { return value != value; }));
  std::vector<std::size_t> order = sorted(x, false);
  switch (sort.op) {
    case OpFunc::sort:
      return sorted(x, sort.constants[0] != 0);
    case OpFunc::topk:
      order = sorted(x, sort.constants[1] != 0);
      return {order.begin(), order.begin() + static_cast<std::ptrdiff_t>(k)};
    case OpFunc::topkvalue:
    case OpFunc::topkindex:
      order = sorted(x, true);
      return {order.begin(), order.begin() + static_cast<std::ptrdiff_t>(k)};
    case OpFunc::kthvalue:
      return {order[k - 1]};
    case OpFunc::median:
      if (nans > 0) return {order[x.size() - nans]};
      return {order[(x.size() - 1) / 2]};
    case OpFunc::nanmedian:
      return {order[nans == x.size() ? 0 : (x.size() - nans - 1) / 2]};
    default: {
      std::size_t best = order[0], most = 0;
      for (std::size_t begin = 0; begin < order.size();) {
        std::size_t end = begin;
        while (end < order.size() && same(x[order[end]], x[order[begin]])) ++end;
        if (end - begin > most) {
          most = end - begin;
          best = order[end - 1];
        }
        begin = end;
      }
      return {best};
    }
  }
}

Sort description(OpFunc op, const Case& each, DataFormat format, std::int64_t k = 3,
                 bool descending = false) {
  const Lines lines(each.layout, each.along);
  Sort sort;
  sort.op = op;
  sort.lines = lines.lines;
  sort.line_length = lines.length;
  k = std::min(k, lines.length);
  std::int64_t results = 1;
  switch (op) {
    case OpFunc::sort:
      results = lines.length;
      sort.constants = {descending ? 1.0 : 0.0};
      break;
    case OpFunc::topk:
      results = k;
      sort.constants = {static_cast<double>(k), descending ? 1.0 : 0.0};
      break;
    case OpFunc::topkvalue:
    case OpFunc::topkindex:
      results = k;
      sort.constants = {static_cast<double>(k)};
      break;
    case OpFunc::kthvalue:
      sort.constants = {static_cast<double>(k)};
      break;
    default:
      break;
  }
  sort.input = {0, format, lines.loops};
  const LineLoops packed{{results, lines.lines}, {1, results}, {0, 1}, {1, 0}};
  if (op != OpFunc::topkindex) sort.values = {1, format, {packed}};
  if (op != OpFunc::topkvalue) sort.indices = {2, kInt32, {packed}};
  if (!is_float(format)) sort.compute = Compute::int64;
  return sort;
}

void fill(Elements& elements, std::int64_t count, std::mt19937& random) {
  elements.need(static_cast<std::uint64_t>(count * element_bytes(elements.format)));
  const bool floats = is_float(elements.format);
  for (std::int64_t i = 0; i < count; ++i) {
    double value = static_cast<double>(random() % 19) - 9;
    if (random() % 2) value = static_cast<double>(random() % 4000) - 2000;
    if (floats && random() % 20 == 0) value = random() % 2 ? kInf : -kInf;
    if (floats && random() % 30 == 0) value = kNan;
    if (floats && random() % 30 == 0) value = -0.0;
    elements.set(i, value);
  }
}

void check_results(const Sort& sort, const Lines& lines, const Elements& in, const Elements& values,
                   const Elements& indices) {
  const auto from = lines.values(in);
  std::int64_t at = 0;
  for (const std::vector<double>& line : from)
    for (const std::size_t position : reference(sort, line)) {
      if (sort.indices.operand >= 0) CHECK_EQ(indices.get(at), static_cast<double>(position));
      if (sort.values.operand >= 0) {
        CHECK(same(values.get(at), line[position]));
        if (line[position] == 0)
          CHECK_EQ(std::signbit(values.get(at)), std::signbit(line[position]));
      }
      ++at;
    }
}

std::vector<double> positions_of(OpFunc op, const std::vector<double>& line, std::int64_t k = 1,
                                 bool descending = false, DataFormat format = kSingle) {
  const auto n = static_cast<std::int64_t>(line.size());
  Elements in(format, n), values(format), indices(kInt32);
  for (std::int64_t i = 0; i < n; ++i) in.set(i, line[static_cast<std::size_t>(i)]);
  const Case each{{{1, n}, 0}, 0b10};
  const Sort sort = description(op, each, format, k, descending);
  run(program_of(sort), {&in, &values, &indices});
  std::vector<double> found;
  for (std::size_t i = 0; i < indices.bytes.size() / 4; ++i)
    found.push_back(indices.get(static_cast<std::int64_t>(i)));
  return found;
}

Search search_of(std::int64_t lines, std::int64_t length, std::int64_t queries, DataFormat format,
                 bool right) {
  const auto packed = [&](std::int64_t n) {
    return std::vector<LineLoops>{{{n, lines}, {1, n}, {0, 1}, {1, 0}}};
  };
  Search search;
  search.sequence = {0, format, packed(length)};
  search.queries = {1, format, packed(queries)};
  search.output = {2, kInt32, packed(queries)};
  search.right = right;
  if (!is_float(format)) search.compute = Compute::int64;
  search.lines = lines;
  search.line_length = length;
  search.query_length = queries;
  return search;
}

}  // namespace

TEST(every_sort_in_every_direction) {
  std::mt19937 random(1);
  for (const DataFormat format : {kDl16, kSingle, kInt32, DataFormat::SENINT8, kBool})
    for (const Case& each : cases(stick_of(format)))
      for (const OpFunc op : kEvery)
        for (const bool descending : {false, true})
          for (const std::int64_t k : {1, 3, 50}) {
            if (k != 3 && (op == OpFunc::sort || op == OpFunc::median || op == OpFunc::mode))
              continue;
            const Lines lines(each.layout, each.along);
            const Sort sort = description(op, each, format, k, descending);
            Elements in(format), values(format), indices(kInt32);
            fill(in, lines.end(), random);
            run(program_of(sort), {&in, &values, &indices});
            check_results(sort, lines, in, values, indices);
          }
}

TEST(the_lower_position_first_among_equals) {
  CHECK((positions_of(OpFunc::sort, {2, 1, 2, 1}) == std::vector<double>{1, 3, 0, 2}));
  CHECK((positions_of(OpFunc::sort, {2, 1, 2, 1}, 0, true) == std::vector<double>{0, 2, 1, 3}));
  CHECK((positions_of(OpFunc::topk, {5, 7, 7, 7}, 2, true) == std::vector<double>{1, 2}));
  CHECK((positions_of(OpFunc::topkindex, {5, 7, 7, 7}, 2) == std::vector<double>{1, 2}));
  CHECK((positions_of(OpFunc::sort, {0.0, -0.0, 0.0}) == std::vector<double>{0, 1, 2}));
}

TEST(nan_is_the_largest) {
  CHECK((positions_of(OpFunc::sort, {kNan, 1, kInf, kNan}) == std::vector<double>{1, 2, 0, 3}));
  CHECK((positions_of(OpFunc::topk, {1, kNan, kInf}, 2, true) == std::vector<double>{1, 2}));
  CHECK((positions_of(OpFunc::median, {3, kNan, 1, kNan}) == std::vector<double>{1}));
  CHECK((positions_of(OpFunc::nanmedian, {3, kNan, 1, kNan}) == std::vector<double>{2}));
  CHECK((positions_of(OpFunc::nanmedian, {kNan, kNan}) == std::vector<double>{0}));
  CHECK((positions_of(OpFunc::mode, {4, 2, 4, 2, 9}) == std::vector<double>{3}));
}

TEST(integers_of_64_bits_that_differ_in_any_of_them) {
  const double large = 0x1p62;
  CHECK((positions_of(OpFunc::sort, {large, -large, 0, large, 1}, 0, false,
                      DataFormat::IEEE_INT64) == std::vector<double>{1, 2, 4, 0, 3}));
  CHECK((positions_of(OpFunc::sort, {large, -large, 0, large, 1}, 0, true,
                      DataFormat::IEEE_INT64) == std::vector<double>{0, 3, 4, 2, 1}));
  CHECK((positions_of(OpFunc::topk, {large + 1024, large, large + 2048}, 2, true,
                      DataFormat::IEEE_INT64) == std::vector<double>{2, 0}));
}

TEST(a_few_of_many) {
  std::mt19937 random(5);
  for (const std::int64_t n : {2000, 50'257})
    for (const std::int64_t k : {0, 1, 50, 249, 1000})
      for (const bool ascending_input : {false, true}) {
        const Case each{{{2, n}, 64}, 0b10};
        const Lines lines(each.layout, each.along);
        Elements in(kDl16), values(kDl16), indices(kInt32);
        fill(in, lines.end(), random);
        // What replaces all that was found so far, again and again.
        if (ascending_input)
          lines.each([&](std::int64_t at, std::int64_t, std::int64_t position) {
            in.set(at, static_cast<double>(position));
          });
        const Sort sort = description(OpFunc::topk, each, kDl16, k, true);
        run(program_of(sort), {&in, &values, &indices});
        check_results(sort, lines, in, values, indices);
      }
}

TEST(a_sort_may_be_in_place_and_write_only_some_results) {
  std::mt19937 random(2);
  for (const Case& each : cases(64)) {
    const Lines lines(each.layout, each.along);
    Elements in(kDl16), values(kDl16), indices(kInt32);
    fill(in, lines.end(), random);
    Elements same_memory = in;
    Sort sort = description(OpFunc::sort, each, kDl16);
    sort.values.loops = lines.loops;
    run(program_of(sort), {&in, &values, &indices});
    sort.values.operand = 0;
    run(program_of(sort), {&same_memory, &values, &indices});
    const auto a = lines.values(same_memory), b = lines.values(values);
    for (std::size_t line = 0; line < a.size(); ++line)
      for (std::size_t i = 0; i < a[line].size(); ++i) CHECK(same(a[line][i], b[line][i]));
  }
  // Backwards over itself: everything is read before it is overwritten.
  Elements tensor(kSingle, 5);
  for (int i = 0; i < 5; ++i) tensor.set(i, (i * 3) % 5);
  Sort sort = description(OpFunc::sort, {{{1, 5}, 0}, 0b10}, kSingle);
  sort.indices = {};
  sort.values = {0, kSingle, {{{5}, {-1}, {0}, {1}, 4}}};
  run(program_of(sort), {&tensor});
  for (int i = 0; i < 5; ++i) CHECK_EQ(tensor.get(i), 4.0 - i);
  // Only the third smallest.
  Elements one(kSingle);
  sort.values = {1, kSingle, {{{}, {}, {}, {}, 0, 0, 2}}};
  run(program_of(sort), {&tensor, &one});
  CHECK_EQ(one.bytes.size(), std::size_t{4});
  CHECK_EQ(one.get(0), 2.0);
}

TEST(lines_without_elements_have_nothing_to_sort) {
  for (const OpFunc op : {OpFunc::sort, OpFunc::topk}) {
    Elements in(kDl16), values(kDl16), indices(kInt32);
    run(program_of(description(op, {{{4, 0}, 0}, 0b10}, kDl16)), {&in, &values, &indices});
    run(program_of(description(op, {{{0, 4}, 0}, 0b10}, kDl16)), {&in, &values, &indices});
    CHECK(values.bytes.empty());
  }
}

TEST(digest_of_sorts) {
  std::mt19937 random(3);
  std::uint64_t digest = 0;
  for (const DataFormat format : {kDl16, kSingle})
    for (const unsigned along : {0b01u, 0b10u, 0b11u})
      for (const OpFunc op : kEvery) {
        const Case each{{{300, 200}, stick_of(format)}, along};
        Elements in(format), values(format), indices(kInt32);
        fill(in, Lines(each.layout, along).end(), random);
        run(program_of(description(op, each, format, 20)), {&in, &values, &indices});
        digest = digest_of(digest_of(digest, values), indices);
      }
  if (std::getenv("SPYRE_TEST_DIGEST")) std::printf("digest %llu\n", (unsigned long long)digest);
}

TEST(threads_change_no_bit) { check_same_digests("digest_of_sorts"); }

TEST(searches_find_where_queries_belong) {
  std::mt19937 random(6);
  for (const DataFormat format : {kDl16, kSingle, kInt32})
    for (const std::int64_t n : {0, 1, 70, 1000})
      for (const bool right : {false, true}) {
        const Search search = search_of(3, n, 200, format, right);
        Elements sequence(format, 3 * n), queries(format, 600), out(kInt32);
        fill(queries, 600, random);
        for (std::int64_t line = 0; line < 3; ++line) {
          std::vector<double> values;
          for (std::int64_t i = 0; i < n; ++i)
            values.push_back(static_cast<double>(random() % 60) - 30);
          if (n == 70 && is_float(format)) values[0] = values[1] = kNan;
          std::sort(values.begin(), values.end(), below);
          for (std::int64_t i = 0; i < n; ++i)
            sequence.set(line * n + i, values[static_cast<std::size_t>(i)]);
        }
        run(program_of(search), {&sequence, &queries, &out});
        for (std::int64_t i = 0; i < 600; ++i) {
          std::int64_t before = 0;
          const double query = queries.get(i);
          for (std::int64_t at = i / 200 * n; at < (i / 200 + 1) * n; ++at) {
            const double each = sequence.get(at);
            const bool passed = right ? !below(query, each) : below(each, query);
            if (passed) ++before;
          }
          CHECK_EQ(out.get(i), static_cast<double>(before));
        }
      }
}

TEST(malformed_searches_are_refused_by_naming_the_field) {
  const auto refused = [](const char* message, auto change) {
    Search search = search_of(3, 70, 20, kDl16, false);
    change(search);
    CHECK_THROWS(first_step(program_of(search)), message);
  };
  refused("query operand: -1", [](Search& s) { s.queries.operand = -1; });
  refused("sequence format:", [](Search& s) { s.sequence.format = DataFormat::INVALID; });
  refused("compute type: 3", [](Search& s) { s.compute = static_cast<Compute>(3); });
  refused("query length: -5", [](Search& s) { s.query_length = -5; });
  refused("query length: more queries", [](Search& s) { s.query_length = kMaxElements; });
  refused("loop 0, position: 19 of the queries", [](Search& s) { s.query_length = 19; });
  refused("loop 0, position: 69 of the sequence", [](Search& s) { s.line_length = 69; });
  fuzz_program(program_of(search_of(3, 70, 20, kDl16, true)), 3, 77, 3000);
}

TEST(malformed_sorts_are_refused_by_naming_the_field) {
  const auto refused = [](const char* message, auto change) {
    Sort sort = description(OpFunc::topk, {{{6, 70}, 64}, 0b10}, kDl16);
    change(sort);
    CHECK_THROWS(first_step(program_of(sort)), message);
  };
  refused("op: sum is not a sort", [](Sort& s) { s.op = OpFunc::sum; });
  refused("op: 9999 is unknown", [](Sort& s) { s.op = static_cast<OpFunc>(9999); });
  refused("input operand: -1", [](Sort& s) { s.input.operand = -1; });
  refused("value output format:", [](Sort& s) { s.values.format = DataFormat::INVALID; });
  refused("index output format:", [](Sort& s) { s.indices.format = DataFormat::INVALID; });
  refused("value output operand: topkindex has no values",
          [](Sort& s) { s.op = OpFunc::topkindex; });
  refused("index output operand: topkvalue has no indices",
          [](Sort& s) { s.op = OpFunc::topkvalue; });
  refused("index output operand: neither values nor indices are wanted",
          [](Sort& s) { s.values.operand = s.indices.operand = -1; });
  refused("narrow: 7", [](Sort& s) { s.narrow = static_cast<Narrow>(7); });
  refused("compute type: 3", [](Sort& s) { s.compute = static_cast<Compute>(3); });
  refused("constants: topk takes 2, not 1", [](Sort& s) { s.constants = {1}; });
  refused("k: 71.000000 is not a whole number in 0..70", [](Sort& s) { s.constants[0] = 71; });
  refused("k: 0.500000 is not a whole number", [](Sort& s) { s.constants[0] = 0.5; });
  refused("k: nan is not a whole number", [](Sort& s) { s.constants[0] = kNan; });
  refused("k: 0.000000 is not a whole number in 1..70", [](Sort& s) {
    s.op = OpFunc::kthvalue;
    s.constants = {0};
  });
  refused("line length: median needs an element", [](Sort& s) {
    s.op = OpFunc::median;
    s.constants.clear();
    s.line_length = 0;
  });
  refused("lines: -5", [](Sort& s) { s.lines = -5; });
  refused("line length: -5", [](Sort& s) { s.line_length = -5; });
  refused("loop 0, line: 5 of the input is not below 5", [](Sort& s) { s.lines = 5; });
  refused("loop 0, position: 3 of the value output is not below 3",
          [](Sort& s) { s.values.loops[0].position_offset = 1; });
  refused("input: the loops visit", [](Sort& s) { s.input.loops.push_back(s.input.loops[0]); });
}

TEST(mutated_sorts_never_crash) {
  const Case each{{{6, 70}, 64}, 0b10};
  std::uint32_t seed = 1;
  for (const OpFunc op : kEvery)
    fuzz_program(program_of(description(op, each, kDl16)), 3, seed++, 1500);
}
