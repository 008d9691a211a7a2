// Chains in programs: what they may overwrite, where they run, what is refused.
#include <cstring>

#include "chain_support.h"

using namespace spyre::card;
using namespace spyre::card::test;
using spyre::DataFormat;
using spyre::OpFunc;

namespace {

/// x - max(x) of operand 0 to operand 1, the maxima to operand 2.
Chain less_largest(std::int64_t lines, std::int64_t length, Form form = Form::sticks) {
  Chain chain;
  chain.lines = lines;
  chain.length = length;
  chain.tensors = {chain_tensor(0, kDl16, chain, form), chain_tensor(1, kDl16, chain, form),
                   chain_tensor(2, kSingle, chain, Form::rows, true, false)};
  chain.values = {load(0), reduced(OpFunc::max, 0), op(OpFunc::sub, {{0}, {1}})};
  chain.stores = {{2, 1}, {1, 2}};
  return chain;
}

/// (x + row) of operands 0 and 1 to operand 2.
Chain plus_row(std::int64_t lines, std::int64_t length, Form form = Form::sticks) {
  Chain chain;
  chain.lines = lines;
  chain.length = length;
  chain.tensors = {chain_tensor(0, kDl16, chain, form),
                   chain_tensor(1, kDl16, chain, Form::rows, false),
                   chain_tensor(2, kDl16, chain, form)};
  chain.values = {load(0), load(1), op(OpFunc::add, {{0}, {1}}, kDl16)};
  chain.stores = {{2, 2}};
  return chain;
}

}  // namespace

TEST(a_result_may_take_the_place_of_its_input) {
  std::mt19937 random(1);
  for (const Form form : {Form::rows, Form::sticks, Form::columns}) {
    Chain chain = less_largest(200, 300, form);
    const std::vector<Elements> operands = filled_operands(chain, random, false);
    const std::vector<Elements> apart = check_chain(chain, operands, "apart");
    chain.tensors[1].operand = 0;
    std::vector<Elements> same = operands;
    run(program_of(chain), pointers(same));
    Lines lines(Layout{{200, 300}}, 0b10);
    lines.loops = chain.tensors[1].loops;
    CHECK(lines.values(same[0]) == lines.values(apart[1]));
  }
}

TEST(cores_compute_a_chain_at_once_as_one_after_the_other) {
  constexpr std::int64_t kCores = 5, kLines = 24, kLength = 192;
  constexpr std::int64_t kPart = kLines * kLength * 2;  // bytes
  std::mt19937 random(11);
  const Chain one = plus_row(kLines, kLength, Form::rows);
  const Chain all = plus_row(kCores * kLines, kLength, Form::rows);
  const auto places = [&](std::int64_t operand, std::int64_t bytes) {
    CoreProgram::Operand result{operand, {}};
    for (std::int64_t core = 0; core < kCores; ++core) result.offset.push_back(core * bytes);
    return result;
  };
  CoreProgram cores;
  cores.cores = kCores;
  cores.operands = {places(0, kPart), places(1, 0), places(2, kPart)};
  CoreProgram::Node node;
  node.step = program_of(one);
  node.end_core = kCores;
  cores.nodes = {node};
  const auto results = [&](std::vector<Elements> operands, std::size_t result) {
    ProgramBuilder builder;
    builder.cores(cores);
    run(builder.finish(), pointers(operands));
    return operands[result].bytes;
  };
  const std::vector<Elements> operands = filled_operands(all, random);
  const auto wanted = check_chain(all, operands, "apart")[2].bytes;
  CHECK(results(operands, 2) == wanted);
  // In the place of the input.
  cores.operands[2] = places(0, kPart);
  CHECK(results(operands, 0) == wanted);
  // With something else to do, and so core by core.
  cores.operands[2] = places(2, kPart);
  cores.nodes = {node, node};
  CHECK(results(operands, 2) == wanted);
  // Every core has a row of its own.
  cores.nodes = {node};
  cores.operands[1] = places(1, kLength * 2);
  const Chain rows = plus_row(kCores, kLength, Form::rows);
  std::vector<Elements> others = operands;
  others[1] = filled_operands(rows, random)[0];
  const auto got = results(others, 2);
  for (std::int64_t core = 0; core < kCores; ++core) {
    std::vector<Elements> mine = others;
    const auto skip = [&](Elements& elements, std::int64_t bytes) {
      elements.bytes.erase(elements.bytes.begin(), elements.bytes.begin() + bytes);
    };
    skip(mine[0], core * kPart);
    skip(mine[1], core * kLength * 2);
    run(program_of(one), pointers(mine));
    CHECK(std::equal(mine[2].bytes.begin(), mine[2].bytes.begin() + kPart,
                     got.begin() + core * kPart));
  }
}

TEST(what_a_store_disturbs_is_read_first) {
  std::mt19937 random(2);
  // One row behind the input, in the same memory.
  Chain chain = less_largest(200, 700, Form::rows);
  std::vector<Elements> operands = filled_operands(chain, random, false);
  const std::vector<Elements> apart = check_chain(chain, operands, "apart");
  chain.tensors[1].operand = 0;
  chain.tensors[1].loops[0].tensor_offset = 700;
  run(program_of(chain), pointers(operands));
  for (std::int64_t i = 0; i < 200 * 700; ++i) CHECK_EQ(operands[0].get(i + 700), apart[1].get(i));
  // And in the place of a row that all lines share.
  Chain sum = plus_row(500, 64);
  std::vector<Elements> others = filled_operands(sum, random, false);
  const std::vector<Elements> wanted = check_chain(sum, others, "apart");
  sum.tensors[2].operand = 1;
  run(program_of(sum), pointers(others));
  CHECK(others[1].bytes == wanted[2].bytes);
}

TEST(packed_fp32_is_computed_where_it_is_stored) {
  // The input is needed again after the first op, whose result would have taken its place.
  std::mt19937 random(7);
  Chain chain;
  chain.lines = 300;
  chain.length = 128;
  for (std::int64_t i = 0; i < 4; ++i)
    chain.tensors.push_back(chain_tensor(i, kSingle, chain, Form::rows));
  chain.values = {load(0), load(1), op(OpFunc::add, {{0}, {1}}), op(OpFunc::mul, {{2}, {0}}),
                  op(OpFunc::exp, {{0}})};
  chain.stores = {{3, 2}, {4, 3}};
  std::vector<Elements> operands = filled_operands(chain, random);
  const std::vector<Elements> apart = check_chain(chain, operands, "apart");
  const auto check_in_place = [&](const Chain& shared, const char* what) {
    std::vector<Elements> left = operands;
    run(program_of(shared), pointers(left));
    const auto operand = static_cast<std::size_t>(shared.tensors[2].operand);
    const std::int64_t offset = shared.tensors[2].loops[0].tensor_offset;
    const bool same = std::equal(apart[2].bytes.begin(), apart[2].bytes.end(),
                                 left[operand].bytes.begin() + offset * 4);
    if (!same) std::cerr << what << "\n";
    CHECK(same);
    CHECK(left[3].bytes == apart[3].bytes);
  };
  Chain in_place = chain;
  in_place.tensors[2].operand = 0;
  check_in_place(in_place, "in the place of an input");
  in_place.tensors[2].loops[0].tensor_offset = 128;
  check_in_place(in_place, "a line behind an input");
  in_place = chain;
  in_place.stores[0].tensor = 0;
  in_place.tensors[2] = in_place.tensors[0];
  check_in_place(in_place, "the same tensor");
  // The last of two stores stays.
  chain.stores = {{4, 2}, {3, 2}, {4, 3}};
  check_in_place(chain, "two stores");
  // What is loaded is not changed, though a NaN is stored without its bits.
  chain.stores = {{0, 2}};
  const std::uint32_t nan = 0xFFC12345;
  std::memcpy(operands[0].bytes.data(), &nan, 4);
  const std::vector<Elements> copied = check_chain(chain, operands, "a copy");
  CHECK(copied[0].bytes == operands[0].bytes);
  CHECK(std::memcmp(copied[2].bytes.data(), &nan, 4) != 0);
}

TEST(stores_that_share_elements_leave_the_last_line) {
  std::mt19937 random(3);
  Chain chain = plus_row(3000, 64, Form::rows);
  std::vector<Elements> operands = filled_operands(chain, random, false);
  const std::vector<Elements> apart = check_chain(chain, operands, "apart");
  chain.tensors[2].loops[0].tensor = {1, 0};
  operands[2] = Elements(kDl16);
  run(program_of(chain), pointers(operands));
  for (std::int64_t i = 0; i < 64; ++i) CHECK_EQ(operands[2].get(i), apart[2].get(2999 * 64 + i));
}

TEST(no_lines_and_no_positions_do_nothing) {
  std::mt19937 random(4);
  for (const auto& [lines, length] : {std::pair{0, 3}, std::pair{3, 0}, std::pair{0, 0}}) {
    const Chain chain = plus_row(lines, length, Form::rows);
    check_chain(chain, filled_operands(chain, random), "empty");
  }
  Chain sums = less_largest(3, 0, Form::rows);
  sums.values[1].op = OpFunc::sum;
  const auto left = check_chain(sums, filled_operands(sums, random), "sum of nothing");
  CHECK_EQ(left[2].get(1), 0.0);
  CHECK_THROWS(first_step(program_of(less_largest(3, 0, Form::rows))),
               "length: there is no max of no elements");
}

TEST(what_all_lines_share_is_stored_once) {
  std::mt19937 random(5);
  Chain chain = plus_row(100, 200);
  chain.tensors.push_back(chain_tensor(3, kSingle, chain, Form::rows, false));
  chain.tensors.push_back(chain_tensor(4, kSingle, chain, Form::rows, false, false));
  chain.values.push_back(op(OpFunc::exp, {{1}}));
  chain.values.push_back(reduced(OpFunc::sum, 3));
  chain.values.push_back(op(OpFunc::mul, {{2}, {4}}, kDl16));
  chain.stores = {{5, 2}, {3, 3}, {4, 4}};
  check_chain(chain, filled_operands(chain, random), "shared");
}

TEST(cores_run_chains_in_their_scratchpads) {
  // x to the scratchpad with 1 added, then softmax-like from there; 4 cores of 8 lines.
  constexpr std::int64_t kCores = 4, kLines = 8, kLength = 128, kPart = kLines * kLength * 2;
  Chain first;
  first.lines = kLines;
  first.length = kLength;
  first.tensors = {chain_tensor(0, kDl16, first, Form::sticks),
                   chain_tensor(1, kDl16, first, Form::sticks)};
  first.values = {load(0), op(OpFunc::add, {{0}, {-1, 1.0}}, kDl16)};
  first.stores = {{1, 1}};
  Chain second = less_largest(kLines, kLength);
  second.tensors.pop_back();
  second.stores.pop_back();
  second.tensors[0].operand = 1;
  second.tensors[1].operand = 2;
  CoreProgram cores;
  cores.cores = kCores;
  for (const std::int64_t operand :
       {std::int64_t{0}, CoreProgram::Operand::kScratchpad, std::int64_t{1}}) {
    CoreProgram::Operand& each = cores.operands.emplace_back();
    each.operand = operand;
    for (std::int64_t core = 0; core < kCores; ++core)
      each.offset.push_back(operand == CoreProgram::Operand::kScratchpad ? 4096 : core * kPart);
  }
  for (const Chain& chain : {first, second}) {
    CoreProgram::Node& node = cores.nodes.emplace_back();
    node.step = program_of(chain);
    node.end_core = kCores;
  }
  ProgramBuilder builder;
  builder.cores(cores);

  std::mt19937 random(6);
  Elements x(kDl16, kCores * kPart / 2), y(kDl16, kCores * kPart / 2);
  for (std::int64_t i = 0; i < kCores * kPart / 2; ++i)
    x.set(i, std::uniform_real_distribution<>(-4, 4)(random));
  run(builder.finish(), {&x, &y});
  for (std::int64_t core = 0; core < kCores; ++core) {
    const auto part = [&](const Elements& from) {
      Elements one(kDl16);
      one.bytes.assign(from.bytes.begin() + core * kPart, from.bytes.begin() + (core + 1) * kPart);
      return one;
    };
    Elements in = part(x), between(kDl16, kPart / 2), out(kDl16, kPart / 2);
    run(program_of(first), {&in, &between});
    run(program_of(second), {&in, &between, &out});
    CHECK(part(y).bytes == out.bytes);
  }
}

TEST(malformed_chains_are_refused_by_naming_the_field) {
  const auto refused = [](const char* message, auto change) {
    Chain chain = less_largest(6, 70);
    change(chain);
    CHECK_THROWS(first_step(program_of(chain)), message);
  };
  refused("lines: -1", [](Chain& c) { c.lines = -1; });
  refused("loop 0, line: 5 of the tensor 0 is not below 5", [](Chain& c) { c.lines = 5; });
  refused("tensor operand: -1", [](Chain& c) { c.tensors[0].operand = -1; });
  refused("tensor format: 2 is not a format",
          [](Chain& c) { c.tensors[0].format = DataFormat::INVALID; });
  refused("tensor narrow: 2 is not in 0..1", [](Chain& c) { c.tensors[0].narrow = Narrow::uint8; });
  refused("line: 5 of the tensor 0 is not below 1",
          [](Chain& c) { c.tensors[0].has_lines = false; });
  refused("value kind: 3", [](Chain& c) { c.values[1].kind = static_cast<Chain::Kind>(3); });
  refused("loaded tensor: 3 is not in 0..2", [](Chain& c) { c.values[0].tensor = 3; });
  refused("loaded tensor: the loops of tensor 0 visit 384 elements, but a load needs all 420",
          [](Chain& c) { c.tensors[0].loops.pop_back(); });
  refused("op: add is not a reduction", [](Chain& c) { c.values[1].op = OpFunc::add; });
  refused("op: sum is no pointwise op", [](Chain& c) { c.values[2].op = OpFunc::sum; });
  refused("op: 9999 is unknown", [](Chain& c) { c.values[2].op = static_cast<OpFunc>(9999); });
  refused("op: gcd does not compute in fp32", [](Chain& c) { c.values[2].op = OpFunc::gcd; });
  refused("inputs: 1, but sub takes 2", [](Chain& c) { c.values[2].inputs.pop_back(); });
  refused("input value: 2 is not in -1..1", [](Chain& c) { c.values[2].inputs[0].value = 2; });
  refused("input value: -1 is not in 0..0", [](Chain& c) { c.values[1].inputs[0].value = -1; });
  refused("input value: 1 has no positions to reduce",
          [](Chain& c) { c.values[2] = reduced(OpFunc::sum, 1); });
  refused("constants: max takes 0, not 1", [](Chain& c) { c.values[1].constants = {1.0}; });
  refused("value format: IEEE_INT32 is neither SEN169_FP16 nor IEEE_FP32",
          [](Chain& c) { c.values[1].format = kInt32; });
  refused("value narrow: 2", [](Chain& c) { c.values[1].narrow = Narrow::uint8; });
  refused("stored value: 3 is not in 0..2", [](Chain& c) { c.stores[0].value = 3; });
  refused("stored tensor: -1", [](Chain& c) { c.stores[0].tensor = -1; });
  refused("stored tensor: 1 has lines and positions, but value 1 has lines and no positions",
          [](Chain& c) { c.stores[0].value = 1; });
  refused("stored tensor: 2 has lines and no positions, but value 2 has lines and positions",
          [](Chain& c) { c.stores[0].tensor = 2; });
}

TEST(mutated_chains_never_crash) {
  fuzz_program(program_of(less_largest(6, 70)), 3, 1, 6000);
  Chain chain = plus_row(6, 70);
  chain.tensors.push_back(chain_tensor(3, kSingle, chain, Form::rows, false));
  chain.values.push_back(op(OpFunc::exp, {{1}}));
  chain.values.push_back(op(OpFunc::mul, {{-1, 2.0}, {2}}));
  chain.stores = {{4, 2}, {3, 3}};
  fuzz_program(program_of(chain), 4, 2, 6000);
}

TEST(a_chain_says_what_it_touches) {
  Chain chain = less_largest(6, 70);
  chain.values.push_back(load(0));
  chain.values.push_back(op(OpFunc::add, {{2}, {3}}));
  chain.stores[0].value = 4;
  const auto step = first_step(program_of(chain));
  CHECK_EQ(step->traffic().read, 2u * 6 * 128);  // whole sticks
  CHECK_EQ(step->traffic().written, 2u * 6 * 128 + 128);
  CHECK_EQ(step->needs().size(), 3u);
  CHECK_EQ(step->needs()[2].bytes, 6u * 4);
}
