// Reductions of special values and of nothing, and how exact they are.
#include <algorithm>

#include "line_support.h"

using namespace spyre::card;
using namespace spyre::card::test;
using spyre::DataFormat;
using spyre::OpFunc;

namespace {

/// One line of values in fp32 to one result.
double of_values(OpFunc op, const std::vector<double>& values, DataFormat to = kSingle,
                 std::int64_t* index = nullptr) {
  const auto n = static_cast<std::int64_t>(values.size());
  Elements in(kSingle, n), out(to, 1), second(kInt32, 1);
  for (std::int64_t i = 0; i < n; ++i) in.set(i, values[static_cast<std::size_t>(i)]);
  Reduce reduce = reduction(op, Lines({{1, n}, 0}, 0b10), kSingle, to);
  if (index) reduce.second = {2, kInt32};
  run(program_of(reduce), {&in, &out, &second});
  if (index) *index = static_cast<std::int64_t>(second.get(0));
  return out.get(0);
}

}  // namespace

TEST(the_lowest_index_wins_and_the_first_nan) {
  for (const std::int64_t n : {4, 70, 600, 5000}) {
    std::vector<double> values(static_cast<std::size_t>(n), 1.0);
    std::int64_t index;
    CHECK_EQ(of_values(OpFunc::argmax, values, kInt32), 0.0);
    values[static_cast<std::size_t>(n - 1)] = values[static_cast<std::size_t>(n - 2)] = 2.0;
    CHECK_EQ(of_values(OpFunc::max, values, kSingle, &index), 2.0);
    CHECK_EQ(index, n - 2);
    CHECK_EQ(of_values(OpFunc::argmin, values, kInt32), 0.0);
    values[static_cast<std::size_t>(n / 2)] = kNan;
    values[static_cast<std::size_t>(n - 1)] = kNan;
    for (const OpFunc op : {OpFunc::max, OpFunc::min}) {
      const double value = of_values(op, values, kSingle, &index);
      CHECK(value != value);
      CHECK_EQ(index, n / 2);
    }
    CHECK_EQ(of_values(OpFunc::argmax, values, kInt32), static_cast<double>(n / 2));
    const double magnitude = of_values(OpFunc::amaxabs, values);
    CHECK(magnitude != magnitude);
    CHECK_EQ(of_values(OpFunc::any, values, kInt32), 1.0);
    CHECK_EQ(of_values(OpFunc::all, values, kInt32), 1.0);
  }
}

TEST(infinities_go_through) {
  for (const std::int64_t n : {3, 100, 1500}) {
    std::vector<double> values(static_cast<std::size_t>(n), -1.0);
    values[1] = kInf;
    CHECK_EQ(of_values(OpFunc::sum, values), kInf);
    CHECK_EQ(of_values(OpFunc::logsumexp, values), kInf);
    CHECK_EQ(of_values(OpFunc::max, values), kInf);
    CHECK_EQ(of_values(OpFunc::min, values), -1.0);
    values[0] = -kInf;
    CHECK(std::isnan(of_values(OpFunc::sum, values)));
    CHECK(std::isnan(of_values(OpFunc::var, values)));
    CHECK_EQ(of_values(OpFunc::min, values), -kInf);
    std::fill(values.begin(), values.end(), -kInf);
    CHECK_EQ(of_values(OpFunc::logsumexp, values), -kInf);
    CHECK_EQ(of_values(OpFunc::max, values), -kInf);
    CHECK_EQ(of_values(OpFunc::argmax, values, kInt32), 0.0);
    // One piece has only -Infinity, another something small: nothing is lost.
    values.back() = -300;
    CHECK(std::abs(of_values(OpFunc::logsumexp, values) + 300) < 1e-3);
  }
}

TEST(nothing_reduced_is_the_identity_or_refused) {
  const auto of_nothing = [](OpFunc op, DataFormat to = kSingle) { return of_values(op, {}, to); };
  CHECK_EQ(of_nothing(OpFunc::sum), 0.0);
  CHECK_EQ(of_nothing(OpFunc::sumsq), 0.0);
  CHECK_EQ(of_nothing(OpFunc::prod), 1.0);
  CHECK_EQ(of_nothing(OpFunc::any), 0.0);
  CHECK_EQ(of_nothing(OpFunc::all), 1.0);
  CHECK_EQ(of_nothing(OpFunc::countnonzero), 0.0);
  CHECK_EQ(of_nothing(OpFunc::logsumexp), -kInf);
  CHECK(std::isnan(of_nothing(OpFunc::mean)));
  CHECK(std::isnan(of_nothing(OpFunc::var)));
  for (const OpFunc op :
       {OpFunc::max, OpFunc::min, OpFunc::argmax, OpFunc::argmin, OpFunc::amaxabs})
    CHECK_THROWS(of_nothing(op), "extent: there is no");
  // No accumulators at all: nothing to do, nothing to refuse.
  Reduce none = reduction(OpFunc::max, Lines({{0, 5}, 0}, 0b10), kSingle, kSingle);
  Elements in(kSingle), out(kSingle);
  run(program_of(none), {&in, &out});
}

TEST(positions_that_are_not_visited_count_as_the_identity) {
  // Two windows of three over four elements, as in pooling with padding: x0 x1 | x1 x2 x3.
  Elements in(kSingle, 4), out(kSingle, 2);
  for (int i = 0; i < 4; ++i) in.set(i, -1.0 - i);
  for (const auto& [op, first, second] :
       {std::tuple{OpFunc::sum, -3.0, -9.0}, std::tuple{OpFunc::max, -1.0, -2.0},
        std::tuple{OpFunc::min, -2.0, -4.0}, std::tuple{OpFunc::prod, 2.0, -24.0},
        std::tuple{OpFunc::all, 1.0, 1.0}}) {
    Reduce reduce = reduction(op, Lines({{2, 3}, 0}, 0b10), kSingle, kSingle);
    reduce.input.loops = {{{2}, {1}, {0}, {1}, 0, 0, 1}, {{3}, {1}, {0}, {1}, 1, 1, 0}};
    run(program_of(reduce), {&in, &out});
    CHECK_EQ(out.get(0), first);
    CHECK_EQ(out.get(1), second);
  }
}

TEST(a_variance_far_from_zero_keeps_its_digits) {
  std::vector<double> values;
  for (int i = 0; i < 3000; ++i) values.push_back(1000 + (i % 2));
  CHECK(std::abs(of_values(OpFunc::var, values) - 0.25 * 3000 / 2999) < 1e-6);
}

TEST(errors_of_long_sums_stay_small) {
  constexpr std::int64_t n = 3'000'001;
  Elements in(kSingle, n), out(kSingle, 1);
  std::mt19937 random(5);
  double exact = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    in.set(i, std::uniform_real_distribution<>(0, 1)(random));
    exact += in.get(i);
  }
  run(program_of(reduction(OpFunc::sum, Lines({{n}, 0}, 0b1), kSingle, kSingle)), {&in, &out});
  CHECK(std::abs(out.get(0) - exact) < exact * 0x1p-22);
}

TEST(integers_are_exact_and_wrap_at_the_output) {
  Elements in(kInt32, 2000), out(kInt32, 1);
  std::int64_t exact = 0;
  for (int i = 0; i < 2000; ++i) {
    in.set(i, 2'000'000'011);
    exact += 2'000'000'011;
  }
  Reduce reduce = reduction(OpFunc::sum, Lines({{2000}, 0}, 0b1), kInt32, kInt32);
  reduce.compute = Compute::int64;
  run(program_of(reduce), {&in, &out});
  CHECK_EQ(out.get(0), static_cast<double>(static_cast<std::int32_t>(exact)));
  Elements wide(DataFormat::IEEE_INT64, 1);
  reduce.output.format = DataFormat::IEEE_INT64;
  run(program_of(reduce), {&in, &wide});
  CHECK_EQ(wide.get(0), static_cast<double>(exact));
  reduce.narrow = Narrow::uint8;
  run(program_of(reduce), {&in, &wide});
  CHECK_EQ(wide.get(0), static_cast<double>(exact & 0xFF));
}

TEST(counts_go_beyond_what_a_float_counts) {
  constexpr std::int64_t n = (1 << 24) + 3;
  Elements in(kBool), out(kInt32, 1);
  in.bytes.assign(n, std::byte{1});
  run(program_of(reduction(OpFunc::countnonzero, Lines({{n}, 0}, 0b1), kBool, kInt32)),
      {&in, &out});
  CHECK_EQ(out.get(0), static_cast<double>(n));
}

TEST(chunked_sums_round_to_dl16_on_the_way) {
  constexpr std::int64_t n = 64 * 20 + 7;
  Elements in(kDl16, n), out(kSingle, 1);
  for (std::int64_t i = 0; i < n; ++i) in.set(i, 1.0);
  const Reduce reduce = reduction(OpFunc::sum, Lines({{1, n}, 64}, 0b10), kDl16, kSingle);
  {
    const Environment mode("SPYRE_ACCUMULATION", "chunked");
    run(program_of(reduce), {&in, &out});
    // Above 1024 a DL16 counts by twos: 7 is added to 1280 and rounded to 1288, ties away.
    CHECK_EQ(out.get(0), 1288.0);
  }
  run(program_of(reduce), {&in, &out});
  CHECK_EQ(out.get(0), static_cast<double>(n));
  const Environment mode("SPYRE_ACCUMULATION", "sometimes");
  CHECK_THROWS(first_step(program_of(reduce)), "SPYRE_ACCUMULATION");
}
