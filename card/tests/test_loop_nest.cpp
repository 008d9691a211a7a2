// What is said of loop nests, and done with them, against all their iterations written out.
#include <map>
#include <numeric>
#include <random>
#include <set>

#include "check.h"
#include "nests/byte_range.h"
#include "nests/loop_nest.h"

namespace spyre::card {
namespace {

using Places = std::vector<std::int64_t>;

/// The places of all iterations, in their order, by the definition.
std::vector<Places> written_out(const LoopNest& nest) {
  std::int64_t visits = 1;
  for (std::size_t loop = 0; loop < nest.rank(); ++loop) visits *= nest.size(loop);
  std::vector<Places> all;
  for (std::int64_t visit = 0; visit < visits; ++visit) {
    Places at;
    for (std::size_t k = 0; k < nest.tensors(); ++k) {
      std::int64_t place = nest.offset(k), rest = visit;
      for (std::size_t loop = 0; loop < nest.rank(); ++loop) {
        place += rest % nest.size(loop) * nest.stride(loop, k);
        rest /= nest.size(loop);
      }
      at.push_back(place);
    }
    all.push_back(at);
  }
  return all;
}

std::vector<Places> sorted(std::vector<Places> places) {
  std::sort(places.begin(), places.end());
  return places;
}

class Random {
 public:
  explicit Random(unsigned seed) : engine_(seed) {}
  std::int64_t in(std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(engine_() % static_cast<std::uint64_t>(high - low + 1));
  }
  bool one_in(std::int64_t n) { return in(1, n) == 1; }

  /// Mostly what programs have: strides of dense arrays, some turned, some with gaps; else any.
  LoopNest nest(std::size_t tensors) {
    LoopNest nest(tensors);
    const std::int64_t rank = in(0, 5);
    Places size, order;
    for (std::int64_t d = 0; d < rank; ++d) size.push_back(one_in(30) ? 0 : in(1, 5));
    std::vector<Places> strides;
    for (std::size_t k = 0; k < tensors; ++k) {
      nest.offset(k) = in(-20, 20);
      strides.push_back(one_in(4) ? any_strides(size) : dense_strides(size));
    }
    for (std::size_t d = 0; d < size.size(); ++d) {
      Places each;
      for (std::size_t k = 0; k < tensors; ++k) each.push_back(strides[k][d]);
      nest.add(size[d], each);
    }
    return nest;
  }

 private:
  Places any_strides(const Places& size) {
    Places strides;
    for (std::size_t d = 0; d < size.size(); ++d) strides.push_back(in(-6, 6));
    return strides;
  }
  Places dense_strides(const Places& size) {
    std::vector<std::size_t> order(size.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    if (one_in(2)) std::shuffle(order.begin(), order.end(), engine_);
    Places strides(size.size());
    std::int64_t step = 1;
    for (const std::size_t d : order) {
      strides[d] = one_in(8) ? 0 : one_in(8) ? -step : step;
      step = step * std::max<std::int64_t>(size[d], 1) + (one_in(4) ? in(0, 4) : 0);
    }
    return strides;
  }

  std::mt19937_64 engine_;
};

constexpr int kRounds = 3000;

TEST(count_and_reach_are_those_of_all_iterations) {
  Random random(1);
  for (int round = 0; round < kRounds; ++round) {
    const LoopNest nest = random.nest(2);
    const auto all = written_out(nest);
    CHECK_EQ(nest.count(), all.size());
    CHECK_EQ(nest.empty(), all.empty());
    if (all.empty()) continue;
    for (std::size_t k = 0; k < 2; ++k) {
      const auto [least, most] = std::minmax_element(
          all.begin(), all.end(), [&](const Places& a, const Places& b) { return a[k] < b[k]; });
      CHECK_EQ(nest.reach(k)->first, (*least)[k]);
      CHECK_EQ(nest.reach(k)->last, (*most)[k]);
    }
  }
  LoopNest far(1);
  far.add(std::int64_t{1} << 40, {std::int64_t{1} << 40});
  CHECK(!far.reach(0));
}

TEST(without_single_loops_and_merged_iterations_stay_as_they_are) {
  Random random(2);
  for (int round = 0; round < kRounds; ++round) {
    LoopNest nest = random.nest(static_cast<std::size_t>(random.in(1, 3)));
    const auto all = written_out(nest);
    nest.drop_single();
    CHECK(written_out(nest) == all);
    nest.merge();
    CHECK(written_out(nest) == all);
    for (std::size_t loop = 0; loop < nest.rank(); ++loop) CHECK(nest.size(loop) != 1);
  }
  LoopNest dense(2);
  dense.add(4, {1, 2}), dense.add(5, {4, 8}), dense.add(3, {20, 41});
  dense.merge();
  CHECK_EQ(dense.rank(), 2);
  CHECK_EQ(dense.size(0), 20);
}

TEST(scaled_places_are_so_many_times_as_large) {
  Random random(3);
  for (int round = 0; round < kRounds; ++round) {
    LoopNest nest = random.nest(2);
    auto all = written_out(nest);
    for (Places& at : all) at[0] *= 2, at[1] *= 8;
    nest.scale(Places{2, 8});
    CHECK(written_out(nest) == all);
  }
}

TEST(sorted_by_a_tensor_all_iterations_are_there_and_places_distinct) {
  Random random(4);
  int sorted_ones = 0;
  for (int round = 0; round < kRounds; ++round) {
    LoopNest nest = random.nest(3);
    nest.drop_single();
    const auto all = written_out(nest);
    if (all.empty()) continue;
    const LoopNest before = nest;
    if (!nest.sort_by(1)) {
      CHECK(nest == before);
      continue;
    }
    ++sorted_ones;
    CHECK(sorted(written_out(nest)) == sorted(all));
    std::set<std::int64_t> places;
    for (const Places& at : all) places.insert(at[1]);
    CHECK_EQ(places.size(), all.size());
    for (std::size_t loop = 1; loop < nest.rank(); ++loop)
      CHECK(nest.stride(loop - 1, 1) < nest.stride(loop, 1));
  }
  CHECK(sorted_ones > kRounds / 4);
}

TEST(shortened_what_stays_in_each_place_is_the_same) {
  Random random(5);
  const auto last_written = [](const LoopNest& nest) {
    std::map<std::int64_t, std::int64_t> source_of;
    for (const Places& at : written_out(nest)) source_of[at[1]] = at[0];
    return source_of;
  };
  int any_order = 0;
  for (int round = 0; round < kRounds; ++round) {
    LoopNest nest = random.nest(2);
    if (nest.empty()) continue;
    const auto before = last_written(nest);
    const bool distinct_places = nest.shorten_for(1);
    CHECK(last_written(nest) == before);
    if (distinct_places) CHECK_EQ(nest.count(), before.size());
    any_order += distinct_places;
  }
  CHECK(any_order > kRounds / 4);
}

TEST(distinct_nests_have_no_number_twice) {
  Random random(6);
  int found = 0;
  for (int round = 0; round < kRounds; ++round) {
    std::vector<LoopNest> nests;
    for (std::int64_t n = random.in(1, 3); n > 0; --n) nests.push_back(random.nest(2));
    if (nests.size() > 1)
      for (std::size_t n = 1; n < nests.size(); ++n) nests[n].offset(0) += random.in(0, 300);
    const Places weights{random.in(0, 3), random.in(0, 3)};
    if (!distinct(nests, weights)) continue;
    ++found;
    std::set<std::int64_t> numbers;
    std::size_t visits = 0;
    for (const LoopNest& nest : nests)
      for (const Places& at : written_out(nest)) {
        numbers.insert(at[0] * weights[0] + at[1] * weights[1]);
        ++visits;
      }
    CHECK_EQ(numbers.size(), visits);
  }
  CHECK(found > kRounds / 20);
}

TEST(full_and_partial_sticks_are_seen_to_be_distinct) {
  // Three rows of 100 elements, in sticks of 64: one behind the other, or stick by stick.
  for (const auto& [row, stick] : {std::pair{100, 64}, std::pair{128, 64}, std::pair{64, 192}}) {
    LoopNest full(1), partial(1);
    full.add(64, {1}), full.add(3, {row});
    partial.add(36, {1}), partial.add(3, {row});
    partial.offset(0) = stick;
    CHECK(distinct(std::array{full, partial}, Places{1}));
  }
  LoopNest full(1), partial(1);
  full.add(64, {1}), full.add(3, {99});
  partial.add(36, {1}), partial.add(3, {99});
  partial.offset(0) = 64;
  CHECK(!distinct(std::array{full, partial}, Places{1}));
}

TEST(ascending_nests_lie_behind_each_other) {
  Random random(7);
  int found = 0;
  for (int round = 0; round < kRounds; ++round) {
    std::vector<LoopNest> nests{random.nest(2), random.nest(2)};
    nests[1].offset(1) += random.in(0, 500);
    const auto first = written_out(nests[0]), second = written_out(nests[1]);
    bool behind = true;
    for (const Places& a : first)
      for (const Places& b : second) behind &= a[1] < b[1];
    CHECK_EQ(ascending(nests, 1), behind);
    found += behind;
  }
  CHECK(found > kRounds / 4);
}

TEST(parts_are_the_whole) {
  Random random(8);
  for (int round = 0; round < kRounds; ++round) {
    const LoopNest nest = random.nest(2);
    if (nest.empty() || nest.rank() == 0) continue;
    const LoopNest::Cut cut =
        nest.cut(random.in(1, 9), static_cast<std::size_t>(random.in(0, 2)), random.in(1, 4));
    std::vector<Places> parts;
    for (std::int64_t i = 0; i < cut.parts; ++i)
      for (const Places& at : written_out(nest.part(cut, i))) parts.push_back(at);
    CHECK(sorted(parts) == sorted(written_out(nest)));
  }
}

TEST(rows_of_a_range_are_its_iterations) {
  Random random(9);
  for (int round = 0; round < kRounds; ++round) {
    LoopNest nest = random.nest(2);
    if (nest.empty()) continue;
    // The loops below `inner` stand still.
    const auto inner = static_cast<std::size_t>(random.in(0, 2));
    LoopNest moving(2);
    for (std::size_t k = 0; k < 2; ++k) moving.offset(k) = nest.offset(k);
    for (std::size_t loop = inner; loop < nest.rank(); ++loop)
      moving.add(nest.size(loop), nest.strides(loop));
    const auto all = written_out(moving);
    const auto visits = static_cast<std::int64_t>(all.size());
    const std::int64_t first = random.in(0, visits - 1), count = random.in(0, visits - first);
    std::vector<Places> seen;
    each_row(nest, inner, first, count, std::array{nest.offset(0), nest.offset(1)},
             [&](const std::array<std::int64_t, 2>& at, std::int64_t row) {
               for (std::int64_t i = 0; i < row; ++i)
                 seen.push_back({at[0] + i * nest.stride_or_0(inner, 0),
                                 at[1] + i * nest.stride_or_0(inner, 1)});
             });
    CHECK(seen == std::vector(all.begin() + first, all.begin() + first + count));
  }
}

TEST(loops_move_and_are_sorted) {
  Random random(10);
  for (int round = 0; round < kRounds; ++round) {
    LoopNest nest = random.nest(2);
    const auto all = written_out(nest);
    if (nest.rank() < 2) continue;
    const auto loop = static_cast<std::size_t>(random.in(1, 1000)) % nest.rank();
    const std::size_t to = static_cast<std::size_t>(random.in(0, 1000)) % (loop + 1);
    const std::int64_t size = nest.size(loop);
    nest.bring(loop, to);
    CHECK_EQ(nest.size(to), size);
    CHECK(sorted(written_out(nest)) == sorted(all));
    nest.sort(1, [&](std::size_t each) { return nest.stride(each, 0); });
    for (std::size_t each = 2; each < nest.rank(); ++each)
      CHECK(nest.stride(each - 1, 0) <= nest.stride(each, 0));
    CHECK(sorted(written_out(nest)) == sorted(all));
  }
}

TEST(byte_ranges_begin_and_end_with_what_is_visited) {
  Random random(11);
  for (int round = 0; round < kRounds; ++round) {
    std::vector<LoopNest> nests{random.nest(1), random.nest(1)};
    std::set<std::int64_t> places;
    for (LoopNest& nest : nests) {
      if (!nest.empty()) nest.offset(0) -= nest.reach(0)->first - random.in(0, 50);
      for (const Places& at : written_out(nest)) places.insert(at[0]);
    }
    const ByteRange range = byte_range(nests, 0, DataFormat::IEEE_FP32);
    CHECK_EQ(range.begin, places.empty() ? 0 : *places.begin() * 4);
    CHECK_EQ(range.end, places.empty() ? 0 : (*places.rbegin() + 1) * 4);
    CHECK(range.touched % kStickBytes == 0 && (range.touched > 0) == !places.empty());
  }
}

TEST(what_is_kept_is_read_from_a_copy) {
  std::vector<std::byte> memory(64, std::byte{1});
  ReadBefore before;
  const std::byte* const kept = before.keep(memory.data(), {16, 32, 128});
  std::fill(memory.begin(), memory.end(), std::byte{2});
  for (int i = 16; i < 32; ++i) CHECK(kept[i] == std::byte{1});
}

}  // namespace
}  // namespace spyre::card
