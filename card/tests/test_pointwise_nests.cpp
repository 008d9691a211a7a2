// Where pointwise ops read and write: strides, broadcasting, in place, overlaps; what is refused.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <random>

#include "check.h"
#include "formats/formats.h"
#include "host/thread_pool.h"
#include "steps/steps.h"
#include "support.h"

using namespace spyre::card;
using namespace spyre::card::test;
using spyre::DataFormat;
using spyre::OpFunc;

namespace {

using Ints = std::vector<std::int32_t>;

std::vector<std::byte> payload_of(const Pointwise& pointwise) {
  ProgramBuilder builder;
  builder.pointwise(pointwise);
  const auto program = builder.finish();
  return {program.begin() + sizeof(ProgramHeader) + sizeof(StepHeader), program.end()};
}

std::unique_ptr<const Step> decoded(const Pointwise& pointwise) {
  return decode_step(0, 3, payload_of(pointwise));
}

void run(const Step& step, std::span<Ints* const> operands) {
  std::vector<Extent> extents;
  for (Ints* operand : operands)
    extents.push_back({reinterpret_cast<std::byte*>(operand->data()), operand->size() * 4});
  for (const Step::Need& need : step.needs())
    CHECK(need.bytes <= extents.at(static_cast<std::size_t>(need.operand)).bytes);
  step.run(extents);
}

/// a - 2 b of integers; operand 0 is a, 1 is b, 2 the output.
Pointwise difference(std::vector<Pointwise::Nest> nests, DataFormat format = DataFormat::IEEE_INT32,
                     Compute compute = Compute::int64) {
  Pointwise pointwise;
  pointwise.op = OpFunc::axpy;
  pointwise.compute = compute;
  pointwise.inputs = {{0, format}, {1, format}};
  pointwise.output = {2, format};
  pointwise.constants = {-2};
  pointwise.nests = std::move(nests);
  return pointwise;
}

/// The same, one element after the other, from inputs as they were before.
void expect(const std::vector<Pointwise::Nest>& nests, const Ints a, const Ints b, Ints& out) {
  for (const Pointwise::Nest& nest : nests) {
    std::vector<std::int64_t> position(nest.dims.size());
    std::int64_t visits = 1;
    for (const Pointwise::Dim& dim : nest.dims) visits *= dim.size;
    for (std::int64_t visit = 0; visit < visits; ++visit) {
      std::int64_t at[3] = {nest.offset[0], nest.offset[1], nest.offset[2]}, rest = visit;
      for (const Pointwise::Dim& dim : nest.dims) {
        for (int k = 0; k < 3; ++k)
          at[k] += rest % dim.size * dim.stride[static_cast<std::size_t>(k)];
        rest /= dim.size;
      }
      out.at(static_cast<std::size_t>(at[2])) =
          a.at(static_cast<std::size_t>(at[0])) - 2 * b.at(static_cast<std::size_t>(at[1]));
    }
  }
}

Ints counting(std::size_t n, std::int32_t from) {
  Ints values(n);
  for (std::size_t i = 0; i < n; ++i) values[i] = from + static_cast<std::int32_t>(i);
  return values;
}

void compare(const std::vector<Pointwise::Nest>& nests, std::size_t elements) {
  Ints a = counting(elements, 1), b = counting(elements, 100000), out(elements, -1);
  Ints expected = out;
  expect(nests, a, b, expected);
  Ints* const operands[] = {&a, &b, &out};
  run(*decoded(difference(nests)), operands);
  CHECK(out == expected);
}

}  // namespace

TEST(inputs_are_broadcast_strided_and_reversed) {
  compare({{{{7, {1, 1, 1}}}, {0, 0, 0}}}, 10);
  compare({{{}, {3, 4, 5}}}, 10);                                       // one element
  compare({{{{0, {1, 1, 1}}}, {0, 0, 0}}}, 10);                         // none
  compare({{{{64, {1, 0, 1}}, {50, {64, 1, 64}}}, {0, 0, 0}}}, 3200);   // a value a row
  compare({{{{64, {1, 1, 1}}, {50, {64, 0, 64}}}, {0, 0, 0}}}, 3200);   // a row for all
  compare({{{{64, {0, 0, 1}}, {50, {0, 64, 64}}}, {7, 0, 0}}}, 3200);   // one value
  compare({{{{70, {50, 1, 1}}, {50, {1, 70, 70}}}, {0, 0, 0}}}, 3500);  // transposed
  compare({{{{70, {50, 1, 1}}, {50, {1, 0, 70}}}, {0, 0, 0}}}, 3500);
  compare({{{{70, {-1, 2, -1}}, {50, {70, -70, 70}}}, {69, 3430, 69}}}, 3700);   // backwards
  compare({{{{3, {1, 3, 9}}, {3, {3, 1, 3}}, {3, {9, 9, 1}}}, {0, 0, 0}}}, 27);  // short runs
  compare({{{{3000, {1, 1, 1}}, {3, {0, 3000, 3000}}}, {0, 0, 0}}}, 9000);       // long rows
  compare({{{{1025, {1, 0, 2}}}, {0, 0, 1}}}, 2100);
  compare({{{{6, {1, 1, 1}}, {100, {64, 64, 64}}}, {64, 64, 64}},
           {{{64, {1, 1, 1}}, {100, {0, 64, 64}}}, {0, 0, 6400}}},
          12900);
}

TEST(where_elements_share_a_place_the_last_one_stays) {
  compare({{{{5, {1, 1, 0}}}, {0, 0, 2}}}, 10);
  compare({{{{2000, {1, 1, 0}}, {3, {1, 2, 1}}}, {0, 0, 0}}}, 2100);
  compare({{{{40, {1, 1, 1}}, {40, {40, 40, 7}}}, {0, 0, 0}}}, 1600);
  compare({{{{40, {1, 1, -1}}, {40, {40, 40, 7}}}, {0, 0, 39}}}, 1600);
}

TEST(random_nests_read_and_write_the_right_elements) {
  std::mt19937_64 random(11);
  constexpr std::size_t kElements = 4000;
  for (int round = 0; round < 3000; ++round) {
    std::vector<Pointwise::Nest> nests(1 + random() % 2);
    for (Pointwise::Nest& nest : nests) {
      nest.dims.resize(random() % 5);
      std::int64_t low[3] = {}, high[3] = {}, visits = 1;
      for (Pointwise::Dim& dim : nest.dims) {
        dim.size = static_cast<std::int64_t>(random() % (random() % 3 ? 6 : 70));
        const bool dense = random() % 2;
        for (int k = 0; k < 3; ++k) {
          // Mostly dense, sometimes repeated, sometimes anything.
          std::int64_t stride =
              dense ? high[k] - low[k] + 1 : static_cast<std::int64_t>(random() % 20) - 5;
          if (k < 2 && random() % 4 == 0) stride = 0;
          if (random() % 6 == 0) stride = -stride;
          const std::int64_t extent = (std::max<std::int64_t>(dim.size, 1) - 1) * stride;
          if (high[k] - low[k] + std::abs(extent) >= static_cast<std::int64_t>(kElements) / 2)
            stride = 0;
          (stride < 0 ? low[k] : high[k]) += (std::max<std::int64_t>(dim.size, 1) - 1) * stride;
          dim.stride.push_back(stride);
        }
        visits *= dim.size;
        if (visits > 20000) dim.size = 1;
      }
      for (int k = 0; k < 3; ++k)
        nest.offset.push_back(-low[k] + static_cast<std::int64_t>(random() % 100));
    }
    // Which operands are the same tensor.
    Ints tensors[3] = {counting(kElements, 1), counting(kElements, 70000), counting(kElements, -1)};
    Ints* const a = &tensors[0];
    Ints* const b = random() % 4 ? &tensors[1] : a;
    const std::uint64_t shared = random() % 4;
    Ints* const out = shared == 0 ? a : shared == 1 ? b : &tensors[2];
    if (random() % 3 == 0)
      for (Pointwise::Nest& nest : nests) {  // in place
        nest.offset[0] = nest.offset[2];
        for (Pointwise::Dim& dim : nest.dims) dim.stride[0] = dim.stride[2];
      }
    Ints expected = *out;
    expect(nests, *a, *b, expected);
    Ints* const operands[] = {a, b, out};
    run(*decoded(difference(nests)), operands);
    CHECK(*out == expected);
  }
}

TEST(large_tensors_give_the_same_on_any_number_of_threads) {
  constexpr std::int64_t kRows = 700, kColumns = 900;
  constexpr std::size_t kElements = kRows * kColumns;
  const std::vector<Pointwise::Nest> shapes[] = {
      {{{{kRows * kColumns, {1, 1, 1}}}, {0, 0, 0}}},
      {{{{kColumns, {kRows, 0, 1}}, {kRows, {1, 1, kColumns}}}, {0, 0, 0}}},
      {{{{2, {1, 1, 1}}, {kRows * kColumns / 2, {2, 0, 2}}}, {0, 0, 0}}},
  };
  for (const auto& nests : shapes) {
    Ints a = counting(kElements, 1), b = counting(kElements, 5), out(kElements), alone(kElements);
    const auto step = decoded(difference(nests));
    Ints* const operands[] = {&a, &b, &out};
    run(*step, operands);
    // Within a task of the pool everything stays on one thread.
    ThreadPool::shared().parallel_for(2, [&](std::int64_t task) {
      Ints* const others[] = {&a, &b, &alone};
      if (task == 0) run(*step, others);
    });
    CHECK(out == alone);
    Ints expected(kElements);
    expect(nests, a, b, expected);
    CHECK(out == expected);
  }
  // Many small nests.
  std::vector<Pointwise::Nest> rows;
  for (std::int64_t row = 0; row < kRows; ++row)
    rows.push_back({{{kColumns, {1, 1, 1}}}, {row * kColumns, 0, row * kColumns}});
  compare(rows, kElements);
}

TEST(traffic_counts_every_stick_of_every_tensor_once) {
  Pointwise op = difference({{{{10, {1, 0, 1}}}, {0, 0, 0}}});
  op.inputs[1].format = DataFormat::SEN169_FP16;
  const Traffic traffic = decoded(op)->traffic();
  CHECK_EQ(traffic.read, 128u + 128);
  CHECK_EQ(traffic.written, 128u);
  op.inputs[1] = Pointwise::Input::scalar(1);
  op.nests = {{{{10, {1, 1}}}, {0, 0}}};
  CHECK_EQ(decoded(op)->traffic().read, 128u);
  op.nests = {{{{32, {1, 1}}, {3, {32, 64}}}, {0, 0}}};  // every second stick is written
  CHECK_EQ(decoded(op)->traffic().read, 3 * 128u);
  CHECK_EQ(decoded(op)->traffic().written, 3 * 128u);
  op.nests = {{{{32, {1, 1}}, {3, {0, 32}}}, {0, 0}}};  // one stick is read again and again
  CHECK_EQ(decoded(op)->traffic().read, 128u);
  CHECK_EQ(decoded(op)->cost().all_points, 96);
}

TEST(a_program_with_a_pointwise_step_runs_on_a_card) {
  const auto card = small_card(64 * kMiB);
  const auto stream = card->create_stream(0);
  Tensor a(*card, 5), b(*card, 7), out(*card, 0);
  a.to_card(*stream, Submit::queue);
  b.to_card(*stream, Submit::queue);
  ProgramBuilder builder;
  builder.pointwise(difference({{{{1024, {1, 1, 1}}}, {0, 0, 0}}}));
  const Handle operands[] = {a.handle, b.handle, out.handle};
  stream->launch(card->load_program(builder.finish()), operands, Submit::queue, nullptr);
  out.to_host(*stream, Submit::wait);
  CHECK_EQ(out.host[0], 5 - 2 * 7);
  CHECK_EQ(out.host[1023], 5 - 2 * 7);
}

// -----------------------------------------------------------------------------------------
// refusals

TEST(malformed_payloads_are_refused_by_field) {
  // Words: 0 op, 1 inputs, 2 3 input 0, 4 5 input 1, 6 7 8 output, 9 compute type, 10 constants,
  // 11 constant, 12 loops, 13 dimensions, 14 15 16 offsets, 17 size, 18 19 20 strides.
  const auto good = payload_of(difference({{{{32, {1, 1, 1}}}, {0, 0, 0}}}));
  CHECK_EQ(good.size(), 21u * 8);
  const auto load = [&](std::size_t word, std::int64_t value) {
    auto bad = good;
    std::memcpy(bad.data() + 8 * word, &value, 8);
    decode_step(4, 3, bad);
  };
  CHECK_THROWS(load(0, 0), "step 4 (pointwise), op: 0 is unknown");
  CHECK_THROWS(load(0, 256), "op: sum is no pointwise op");
  CHECK_THROWS(load(0, -1), "op: -1 is unknown");
  CHECK_THROWS(load(0, 2), "constants: add takes 0, not 1");
  CHECK_THROWS(load(0, 6), "inputs: 2, but abs takes 1");
  CHECK_THROWS(load(1, 3), "inputs: 3, but axpy takes 2");
  CHECK_THROWS(load(2, -2), "input 0 operand: -2 is not in -1..1023");
  CHECK_THROWS(load(4, 1024), "input 1 operand: 1024");
  CHECK_THROWS(load(3, 2), "input 0 format: 2 is not a format of device memory");
  CHECK_THROWS(load(5, 32), "input 1 format: 32");
  CHECK_THROWS(load(6, -1), "output operand: -1");
  CHECK_THROWS(load(7, 99), "output format: 99");
  CHECK_THROWS(load(8, 3), "narrow: 3");
  CHECK_THROWS(load(9, 2), "compute type: 2 is not in 0..1");
  CHECK_THROWS(load(10, 0), "constants: axpy takes 1, not 0");
  CHECK_THROWS(load(12, 9), "loop count: 9");
  CHECK_THROWS(load(13, 2), "ends before it");
  CHECK_THROWS(load(14, -1), "loop 0, input 0: element -1");
  CHECK_THROWS(load(16, -1), "loop 0, output: element -1");
  CHECK_THROWS(load(17, -4), "size: -4");
  CHECK_THROWS(load(19, INT64_MAX), "input 1: reaches beyond 64 bits");
  CHECK_THROWS(decode_step(0, 3, std::span(good).first(16)), "input 0 operand: the payload ends");
  CHECK_THROWS(decode_step(0, 3, {}), "op: the payload ends");

  Pointwise exp = difference({});
  exp.op = OpFunc::exp;
  exp.inputs.pop_back();
  exp.constants.clear();
  CHECK_THROWS(decoded(exp), "compute type: exp does not compute in int64");
  exp.op = OpFunc::bitwisenot;
  exp.compute = Compute::fp32;
  CHECK_THROWS(decoded(exp), "compute type: bitwisenot does not compute in fp32");
}

TEST(mutated_payloads_never_touch_other_memory) {
  Pointwise where;
  where.op = OpFunc::where3;
  where.compute = Compute::fp32;
  where.inputs = {
      {0, DataFormat::SEN169_FP16}, {1, DataFormat::SEN169_FP16}, Pointwise::Input::scalar(2)};
  where.output = {2, DataFormat::IEEE_FP32};
  where.nests = {{{{8, {1, 8, 1}}, {4, {8, 1, 8}}}, {0, 0, 0}}, {{{3, {-2, 0, 5}}}, {9, 0, 100}}};
  const std::vector<std::byte> bases[] = {
      payload_of(where), payload_of(difference({{{{8, {1, 8, 1}}, {4, {8, 1, 8}}}, {0, 0, 0}}}))};
  std::mt19937_64 random(5);
  const std::int64_t nasty[] = {0, 1,  2,   3,   -1,   12,        13,        11,
                                5, 64, 255, 256, 1024, INT64_MAX, INT64_MIN, 1ll << 32};
  int ran = 0, refused = 0;
  for (int round = 0; round < 40000; ++round) {
    auto bad = bases[random() % 2];
    for (unsigned n = 0; n <= random() % 3; ++n) {
      const std::size_t word = random() % (bad.size() / 8);
      std::int64_t value = nasty[random() % std::size(nasty)];
      if (random() % 2) {
        std::memcpy(&value, bad.data() + 8 * word, 8);
        value ^= std::int64_t{1} << random() % 64;
      }
      std::memcpy(bad.data() + 8 * word, &value, 8);
    }
    if (random() % 8 == 0) bad.resize(random() % (bad.size() / 8) * 8);
    try {
      const auto step = decode_step(0, 3, bad);
      if (step->cost().all_points > 1 << 18) continue;
      // Allocations that end where the need ends: a sanitizer sees what lies beyond.
      std::vector<std::vector<std::byte>> tensors(1024);
      bool large = false;
      for (const Step::Need& need : step->needs()) {
        auto& tensor = tensors[static_cast<std::size_t>(need.operand)];
        large |= need.bytes > kMiB;
        if (!large) tensor.resize(std::max<std::size_t>(tensor.size(), need.bytes));
      }
      if (large) continue;
      std::vector<Extent> extents;
      for (auto& tensor : tensors) extents.push_back({tensor.data(), tensor.size()});
      step->run(extents);
      ++ran;
    } catch (const Error&) {
      ++refused;
    }
  }
  CHECK(ran > 1000 && refused > 1000);
}

TEST(speed_of_pointwise_steps) {
  const auto rate = [](const char* what, const Pointwise& op, std::int64_t elements,
                       std::size_t operands) {
    const std::size_t bytes = static_cast<std::size_t>(elements * element_bytes(op.output.format));
    std::vector<std::vector<std::byte>> tensors(operands, std::vector<std::byte>(bytes));
    std::vector<Extent> extents;
    for (auto& tensor : tensors) extents.push_back({tensor.data(), tensor.size()});
    const auto step = decoded(op);
    const int rounds = static_cast<int>(std::max<std::int64_t>(1, (1 << 20) / elements));
    step->run(extents);
    double best = 1e9;
    for (int attempt = 0; attempt < 3; ++attempt)
      best = std::min(best, seconds([&] {
                              for (int i = 0; i < rounds; ++i) step->run(extents);
                            }) / rounds);
    std::printf("     %-40s %10.2f us  %6.2f GB/s\n", what, best * 1e6,
                static_cast<double>(bytes * operands) / best * 1e-9);
  };
  const auto of = [](OpFunc op, std::int64_t elements, DataFormat format, Compute compute) {
    Pointwise pointwise;
    pointwise.op = op;
    pointwise.compute = compute;
    const int inputs = spyre::op_info(op).inputs;
    for (int i = 0; i < inputs; ++i) pointwise.inputs.push_back({i, format});
    pointwise.output = {inputs, format};
    const std::size_t tensors = static_cast<std::size_t>(inputs) + 1;
    pointwise.nests = {
        {{{elements, std::vector<std::int64_t>(tensors, 1)}}, std::vector<std::int64_t>(tensors)}};
    return pointwise;
  };
  constexpr DataFormat dl16 = DataFormat::SEN169_FP16;
  constexpr std::int64_t kLarge = 1024 * 1024;
  rate("add 64x64 DL16", of(OpFunc::add, 4096, dl16, Compute::fp32), 4096, 3);
  rate("add 1024x1024 DL16", of(OpFunc::add, kLarge, dl16, Compute::fp32), kLarge, 3);
  rate("add 1024x1024 fp32", of(OpFunc::add, kLarge, DataFormat::IEEE_FP32, Compute::fp32), kLarge,
       3);
  rate("add 1024x1024 int32", of(OpFunc::add, kLarge, DataFormat::IEEE_INT32, Compute::int64),
       kLarge, 3);
  for (const OpFunc op :
       {OpFunc::exp, OpFunc::silu, OpFunc::tanh, OpFunc::gelufwd, OpFunc::gelutanh})
    rate((std::string(spyre::op_info(op).name) + " 1024x1024 DL16").c_str(),
         of(op, kLarge, dl16, Compute::fp32), kLarge, 2);
  Pointwise bias = of(OpFunc::add, kLarge, dl16, Compute::fp32);
  bias.nests = {{{{64, {1, 1, 1}}, {1024, {64, 0, 64}}, {16, {65536, 64, 65536}}}, {0, 0, 0}}};
  rate("add a row 1024x1024 DL16, sticks", bias, kLarge, 3);
  bias.nests = {{{{64, {1, 0, 1}}, {1024, {64, 64, 64}}, {16, {65536, 0, 65536}}}, {0, 0, 0}}};
  rate("add a column 1024x1024 DL16, sticks", bias, kLarge, 3);
  bias.nests = {{{{1024, {1, 1024, 1}}, {1024, {1024, 1, 1024}}}, {0, 0, 0}}};
  rate("add transposed 1024x1024 DL16", bias, kLarge, 3);
  bias.nests = {{{{3, {1, 1, 1}}, {kLarge / 4, {4, 4, 4}}}, {0, 0, 0}}};
  rate("add 3 of every 4 DL16", bias, kLarge, 3);
}
