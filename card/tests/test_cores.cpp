// Steps spread over cores: parts of operands, scratchpads, loops, and what is refused.
#include <numeric>

#include "core_support.h"

using namespace spyre::card;
using namespace spyre::card::test;

namespace {

std::vector<std::byte> program(const std::vector<CoreProgram>& steps) {
  ProgramBuilder builder;
  for (const CoreProgram& cores : steps) builder.cores(cores);
  return builder.finish();
}
std::vector<std::byte> program(const CoreProgram& cores) { return program(std::vector{cores}); }

/// y = 4 x: the double of x waits in the scratchpad. `tiles` sticks a core, in a loop.
CoreProgram quadruple(std::int64_t cores, std::int64_t tiles) {
  CoreProgram description;
  description.cores = cores;
  description.operands = {part(0, cores, tiles * kStick), part(kPad, cores, 0, 4096),
                          part(1, cores, tiles * kStick)};
  description.nodes = {
      loop_node(tiles, {{0, kStick}, {2, kStick}},
                {step_node(add_step(0, 0, 1), 0, cores), step_node(add_step(1, 1, 2), 0, cores)})};
  return description;
}

struct Bench {
  std::shared_ptr<SoftCard> card = small_card(64 * kMiB);
  std::unique_ptr<Stream> stream = card->create_stream(0);

  std::vector<std::int32_t> run(const auto& description, std::int64_t elements) {
    std::vector<std::int32_t> host(static_cast<std::size_t>(elements));
    std::iota(host.begin(), host.end(), 1);
    const std::size_t bytes = host.size() * 4;
    const Handle x = card->allocate(bytes, MemoryKind::tensor),
                 y = card->allocate(bytes, MemoryKind::tensor);
    stream->to_card(host.data(), bytes, x, copy(elements, true), Submit::wait, nullptr);
    const Handle operands[] = {x, y};
    stream->launch(card->load_program(program(description)), operands, Submit::wait, nullptr);
    stream->to_host(y, host.data(), bytes, copy(elements, false), Submit::wait, nullptr);
    card->free(x);
    card->free(y);
    return host;
  }
};

}  // namespace

TEST(every_core_works_on_its_part_through_its_scratchpad) {
  Bench bench;
  for (const std::int64_t cores : {1, 2, 7, 32}) {
    const std::int64_t tiles = 3;
    const auto got = bench.run(quadruple(cores, tiles), cores * tiles * kLanes);
    for (std::size_t i = 0; i < got.size(); ++i)
      CHECK_EQ(got[i], 4 * (static_cast<std::int32_t>(i) + 1));
  }
}

TEST(a_core_reads_what_another_left_in_its_scratchpad) {
  Bench bench;
  constexpr std::int64_t kCount = 5;
  CoreProgram leave;  // the double of x
  leave.cores = kCount;
  leave.operands = {part(0, kCount, kStick), part(kPad, kCount, 0, 4096)};
  leave.nodes = {step_node(add_step(0, 0, 1), 0, kCount)};
  CoreProgram take;  // from the next core
  take.cores = kCount;
  take.operands = {{CoreProgram::Operand::kAllScratchpads, {}}, part(1, kCount, kStick)};
  for (std::int64_t core = 0; core < kCount; ++core)
    take.operands[0].offset.push_back((core + 1) % kCount * spyre::kLxBytesPerCore + 4096);
  take.nodes = {step_node(add_step(0, 0, 1), 0, kCount)};
  const auto got = bench.run(std::vector{leave, take}, kCount * kLanes);
  for (std::size_t i = 0; i < got.size(); ++i)
    CHECK_EQ(got[i], 4 * (static_cast<std::int32_t>((i + kLanes) % got.size()) + 1));
}

TEST(the_last_core_may_do_something_else) {
  Bench bench;
  CoreProgram description;
  description.cores = 4;
  description.operands = {part(0, 4, 2 * kStick), part(1, 4, 2 * kStick)};
  description.nodes = {step_node(add_step(0, 0, 1, 2), 0, 3),
                       step_node(add_step(0, 0, 1, 1), 3, 4)};
  const auto got = bench.run(description, 7 * kLanes);
  for (std::size_t i = 0; i < got.size(); ++i)
    CHECK_EQ(got[i], 2 * (static_cast<std::int32_t>(i) + 1));
}

TEST(loops_nest_and_a_loop_of_no_iterations_does_nothing) {
  Bench bench;
  CoreProgram description;
  description.cores = 2;
  description.operands = {part(0, 2, 6 * kStick), part(1, 2, 6 * kStick)};
  const auto body = loop_node(3, {{0, kStick}, {1, kStick}}, {step_node(add_step(0, 0, 1), 0, 2)});
  description.nodes = {loop_node(2, {{0, 3 * kStick}, {1, 3 * kStick}}, {body}),
                       loop_node(0, {{0, kStick}}, {step_node(add_step(0, 1, 1), 0, 2)})};
  const auto got = bench.run(description, 12 * kLanes);
  for (std::size_t i = 0; i < got.size(); ++i)
    CHECK_EQ(got[i], 2 * (static_cast<std::int32_t>(i) + 1));
}

/// y = 2 A B for A (128, 256) and B (256, 64), which follow each other in x: over 4 x 2 cores, rows
/// in two tiles, a tile of the product in the scratchpad.
CoreProgram doubled_product() {
  constexpr std::int64_t rows = 128, depth = 256, tile = 16;
  Matmul product;
  product.a.format = product.b.format = product.c.format = kInt32;
  product.a.operand = 0, product.b.operand = 1, product.c.operand = 2;
  product.m = tile, product.n = kLanes, product.k = depth;
  product.a.m_stride = product.b.stride = product.c.m_stride = kLanes;
  product.a.k_stick_stride = rows * kLanes;
  ProgramBuilder builder;
  builder.matmul(product);
  CoreProgram description;
  description.cores = 8;
  description.operands = {{0, {}}, {0, {}}, part(kPad, 8, 0, 4096), {1, {}}};
  for (std::int64_t core = 0; core < 8; ++core) {
    const std::int64_t row = core / 2 * 2 * tile, stick = core % 2;
    description.operands[0].offset.push_back(row * kStick);
    description.operands[1].offset.push_back((rows * depth / kLanes + stick * depth) * kStick);
    description.operands[3].offset.push_back((stick * rows + row) * kStick);
  }
  description.nodes = {
      loop_node(2, {{0, tile * kStick}, {3, tile * kStick}},
                {step_node(builder.finish(), 0, 8), step_node(add_step(2, 2, 3, tile), 0, 8)})};
  return description;
}

TEST(products_of_few_rows_are_right_at_once_and_core_by_core) {
  const auto check = [](const CoreProgram& description) {
    Bench bench;
    const auto got = bench.run(description, (128 + 64) * 256);
    const auto x = [](std::int64_t place) { return static_cast<std::uint32_t>(place + 1); };
    for (std::int64_t row = 0; row < 128; row += 3) {
      for (std::int64_t column = 0; column < 64; column += 5) {
        const std::int64_t stick = column / kLanes, lane = column % kLanes;
        std::uint32_t sum = 0;
        for (std::int64_t k = 0; k < 256; ++k)
          sum += x((k / kLanes * 128 + row) * kLanes + k % kLanes) *
                 x(128 * 256 + (stick * 256 + k) * kLanes + lane);
        CHECK_EQ(static_cast<std::uint32_t>(
                     got[static_cast<std::size_t>((stick * 128 + row) * kLanes + lane)]),
                 2 * sum);
      }
    }
  };
  CoreProgram description = doubled_product();
  check(description);
  // Tiles that lie in no regular order.
  description.operands[2].offset[3] = 65536;
  check(description);
  // Some cores only; the others come after them.
  description = doubled_product();
  auto& body = description.nodes[0].body;
  body.insert(body.begin(), body[0]);
  body[0].end_core = body[1].first_core = 4;
  check(description);
}

TEST(what_a_core_cannot_have_is_refused_at_load) {
  const auto card = small_card();
  const auto load = [&](const CoreProgram& description) {
    card->load_program(program(description));
  };
  const CoreProgram good = quadruple(4, 2);
  load(good);

  CoreProgram bad = good;
  bad.operands[1].offset[3] = spyre::kLxBytesPerCore;
  CHECK_THROWS(load(bad), "a scratchpad has 2097152");
  bad.operands[1].operand = CoreProgram::Operand::kAllScratchpads;
  bad.operands[1].offset[3] = 32 * spyre::kLxBytesPerCore;
  CHECK_THROWS(load(bad), "all scratchpads have 67108864");
  bad = good;
  bad.operands[0].offset[1] = 64;
  CHECK_THROWS(load(bad), "are not whole sticks");
  bad = good;
  bad.operands[0].offset[1] = -128;
  CHECK_THROWS(load(bad), "offset");
  bad = good;
  bad.cores = 33;
  CHECK_THROWS(load(bad), "cores");
  bad = good;
  bad.operands.pop_back();
  bad.nodes[0].advances.pop_back();
  CHECK_THROWS(load(bad), "operand: 2, but the cores have 2");
  bad = good;
  bad.nodes[0].body[0].end_core = 5;
  CHECK_THROWS(load(bad), "end core");
  bad = good;
  bad.nodes[0].body[0].step = program(good);
  CHECK_THROWS(load(bad), "cores have no cores of their own");
  bad = good;
  bad.nodes[0].advances[0].bytes = std::int64_t{1} << 36;
  bad.nodes[0].count = 1 << 20;
  CHECK_THROWS(load(bad), "advance");
}

TEST(a_launch_needs_what_the_farthest_core_touches) {
  Bench bench;
  const Handle small = bench.card->allocate(7 * kStick, MemoryKind::tensor),
               large = bench.card->allocate(8 * kStick, MemoryKind::tensor);
  const auto loaded = bench.card->load_program(program(quadruple(4, 2)));
  const Handle good[] = {large, large}, bad[] = {small, large};
  bench.stream->launch(loaded, good, Submit::wait, nullptr);
  CHECK_THROWS(bench.stream->launch(loaded, bad, Submit::wait, nullptr), "(cores) touches");
}

#ifndef __SANITIZE_THREAD__  // damage makes cores write to the same places, which is their affair
TEST(damaged_core_programs_are_refused_or_run) {
  CoreProgram description = quadruple(3, 2);
  description.operands[1].operand = 1;  // no scratchpad: the fuzzer runs steps without a card
  description.operands[1].offset.assign(3, 3 * 2 * kStick);
  fuzz_program(program(description), 3, 1, 4000);
}
#endif
