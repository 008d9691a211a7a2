// Matrix products in programs: what is refused, what a step needs and costs, shared memory.
#include "check.h"
#include "matmul_reference.h"
#include "steps/steps.h"

using namespace spyre::card;
using namespace spyre::card::test;
using spyre::DataFormat;
using spyre::OpFunc;

namespace {

/// (5, 70) = (5, 100) x (100, 70) in DLFloat16, in the layouts of whole tensors.
Matmul small_product() {
  Matmul product;
  product.m = 5, product.n = 70, product.k = 100;
  product.a.operand = 0, product.b.operand = 1, product.c.operand = 2;
  product.a.m_stride = 64, product.a.k_stick_stride = 64 * 5;
  product.b.stride = 64, product.b.stick_stride = 64 * 100;
  product.c.m_stride = 64, product.c.n_stick_stride = 64 * 5;
  return product;
}

std::vector<std::byte> payload_of(const Matmul& product) {
  ProgramBuilder builder;
  builder.matmul(product);
  std::vector<std::byte> program = builder.finish();
  program.erase(program.begin(), program.begin() + sizeof(ProgramHeader) + sizeof(StepHeader));
  return program;
}

std::unique_ptr<const Step> decoded(std::span<const std::byte> payload) {
  return decode_step(0, static_cast<std::uint32_t>(Opcode::matmul), payload);
}
std::unique_ptr<const Step> decoded(const Matmul& product) { return decoded(payload_of(product)); }

/// The small product after `change`.
template <class Change>
std::unique_ptr<const Step> changed(Change&& change) {
  Matmul product = small_product();
  change(product);
  return decoded(product);
}

std::uint64_t needed(const Step& step, std::int64_t operand) {
  std::uint64_t bytes = 0;
  for (const Step::Need& need : step.needs())
    if (need.operand == operand) bytes = std::max(bytes, need.bytes);
  return bytes;
}

}  // namespace

TEST(a_step_computes_what_the_product_says) {
  Random random(1);
  Matmul product = small_product();
  product.bias.operand = 3, product.bias.n_stick_stride = 64;
  product.batch = {{2, 64 * 5 * 2, 0, 64 * 5 * 2, 64 * 2}};
  MatmulCase test{product, {}, {}, {}, {}};
  test.fill(random, 3);
  const auto step = decoded(product);
  CHECK_EQ(std::string(step->name()), "matmul");
  CHECK_EQ(needed(*step, 0), test.a.bytes.size());
  CHECK_EQ(needed(*step, 1), test.b.bytes.size());
  CHECK_EQ(needed(*step, 2), test.c.bytes.size());
  CHECK_EQ(needed(*step, 3), test.bias.bytes.size());
  const std::vector<std::byte> expected = test.run({});
  const Extent operands[] = {{test.a.bytes.data(), test.a.bytes.size()},
                             {test.b.bytes.data(), test.b.bytes.size()},
                             {test.c.bytes.data(), test.c.bytes.size()},
                             {test.bias.bytes.data(), test.bias.bytes.size()}};
  step->run(operands);
  CHECK(test.c.bytes == expected);
}

TEST(traffic_counts_every_stick_once) {
  Matmul product = small_product();
  const Traffic alone = decoded(product)->traffic();
  CHECK_EQ(alone.read, 128u * (5 * 2 + 100 * 2));
  CHECK_EQ(alone.written, 128u * 5 * 2);
  product.batch = {{3, 640, 0, 640, 0}};  // B is shared
  product.bias.operand = 3;
  product.bias.format = DataFormat::IEEE_FP32, product.bias.n_stick_stride = 32;
  const Traffic batched = decoded(product)->traffic();
  CHECK_EQ(batched.read, 128u * (3 * 5 * 2 + 100 * 2 + 3));
  CHECK_EQ(batched.written, 128u * 3 * 5 * 2);
}

TEST(a_product_without_elements_touches_nothing) {
  for (std::int64_t Matmul::* size : {&Matmul::m, &Matmul::n}) {
    const auto step = changed([&](Matmul& product) { product.*size = 0; });
    CHECK_EQ(needed(*step, 0) + needed(*step, 1) + needed(*step, 2), 0u);
    const Extent nothing[3] = {};
    step->run(nothing);
  }
  const auto step = changed([](Matmul& product) { product.k = 0; });
  CHECK_EQ(needed(*step, 0) + needed(*step, 1), 0u);
  CHECK(needed(*step, 2) > 0);
}

TEST(a_result_over_its_inputs_is_computed_from_what_they_were) {
  Random random(2);
  // Square, so that one tensor can be all three.
  Matmul product = small_product();
  product.m = product.n = product.k = 128;
  product.a.k_stick_stride = product.b.stick_stride = product.c.n_stick_stride = 64 * 128;
  MatmulCase test{product, {}, {}, {}, {}};
  test.fill(random, 2);
  test.b = test.a;
  const std::vector<std::byte> expected = test.run({});
  std::vector<std::byte> shared = test.a.bytes;
  const Extent extent{shared.data(), shared.size()};
  const Extent operands[] = {extent, extent, extent};
  decoded(product)->run(operands);
  CHECK(shared == expected);
}

TEST(a_bias_may_be_the_result) {
  Random random(3);
  Matmul product = small_product();
  product.bias.operand = 2, product.beta = 2;
  product.bias.m_stride = product.c.m_stride;
  product.bias.n_stick_stride = product.c.n_stick_stride;
  for (const bool in_place : {true, false}) {
    if (!in_place) product.bias.m_stride = 0;  // its first row, which is also written
    MatmulCase test{product, {}, {}, {}, {}};
    test.fill(random, 3);
    test.bias = test.c;
    const std::vector<std::byte> expected = test.run({});
    const Extent operands[] = {{test.a.bytes.data(), test.a.bytes.size()},
                               {test.b.bytes.data(), test.b.bytes.size()},
                               {test.c.bytes.data(), test.c.bytes.size()}};
    decoded(product)->run(operands);
    CHECK(test.c.bytes == expected);
  }
}

TEST(what_makes_no_sense_is_refused_by_name) {
  using P = Matmul;
  CHECK_THROWS(changed([](P& p) { p.op = OpFunc::add; }), "op: ");
  CHECK_THROWS(changed([](P& p) { p.op = OpFunc::batchmatmulfp8; }), "A format: ");
  CHECK_THROWS(changed([](P& p) {
                 p.op = OpFunc::batchmatmulfp8;
                 p.a.format = DataFormat::SEN143_FP8;
               }),
               "B format: ");
  CHECK_THROWS(changed([](P& p) { p.a.operand = -1; }), "A operand: ");
  CHECK_THROWS(changed([](P& p) { p.b.operand = 1024; }), "B operand: ");
  CHECK_THROWS(changed([](P& p) { p.c.operand = 5000; }), "C operand: ");
  CHECK_THROWS(changed([](P& p) { p.bias.operand = -2; }), "bias operand: ");
  CHECK_THROWS(changed([](P& p) { p.a.format = DataFormat::IEEE_INT64; }), "A format: ");
  CHECK_THROWS(changed([](P& p) { p.b.format = DataFormat::BOOL; }), "B format: ");
  CHECK_THROWS(changed([](P& p) { p.c.format = static_cast<DataFormat>(99); }), "C format: ");
  CHECK_THROWS(changed([](P& p) { p.c.narrow = static_cast<Narrow>(3); }), "narrow: ");
  CHECK_THROWS(changed([](P& p) { p.m = -1; }), "M: ");
  CHECK_THROWS(changed([](P& p) { p.n = kMaxElements + 1; }), "N: ");
  CHECK_THROWS(changed([](P& p) { p.k = -5; }), "K: ");
  CHECK_THROWS(changed([](P& p) { p.m = p.n = p.k = std::int64_t{1} << 20; }), "M x K: ");
  CHECK_THROWS(changed([](P& p) { p.batch = {{-1, 0, 0, 0, 0}}; }), "batch size: ");
  CHECK_THROWS(changed([](P& p) { p.b.sticks = static_cast<P::Sticks>(2); }), "B sticks: ");
  CHECK_THROWS(changed([](P& p) { p.a.offset = -1; }), "A: ");
  CHECK_THROWS(changed([](P& p) { p.b.offset = kMaxElements; }), "B: ");
  CHECK_THROWS(changed([](P& p) { p.b.stride = INT64_MAX; }), "B: ");
  CHECK_THROWS(changed([](P& p) { p.a.k_stick_stride = INT64_MIN; }), "A: ");
  CHECK_THROWS(changed([](P& p) { p.c.m_stride = -64; }), "C: ");
  CHECK_THROWS(changed([](P& p) { p.c.m_stride = 0; }), "C: its strides");
  CHECK_THROWS(changed([](P& p) { p.c.n_stick_stride = 64; }), "C: its strides");
  CHECK_THROWS(changed([](P& p) { p.batch = {{2, 0, 0, 63, 0}}; }), "C: its strides");
  CHECK_THROWS(changed([](P& p) { p.bias = {3, DataFormat::IEEE_FP32, -1, 0, 0, 1}; }), "bias: ");
  CHECK_THROWS(changed([](P& p) {
                 p.a.format = p.b.format = p.c.format = DataFormat::IEEE_INT32;
                 p.a.m_stride = p.b.stride = p.c.m_stride = 128;
                 p.alpha = 0.5;
               }),
               "alpha: ");
}

TEST(rows_may_begin_where_the_last_stick_of_others_ends) {
  Random random(9);
  Matmul product = small_product();
  product.n = 130;
  product.b.stick_stride = 64 * 100;
  product.c.m_stride = 130, product.c.n_stick_stride = 64;
  MatmulCase test{product, {}, {}, {}, {}};
  test.fill(random, 3);
  decoded(product);
  const std::vector<std::byte> result = test.run({});
  Buffer c = test.c;
  test.each_result([&](std::int64_t place, double value, double) { c.set(place, value); });
  CHECK(result == c.bytes);
  const auto close = [](std::int64_t rows, std::int64_t sticks) {
    return changed([&](Matmul& p) {
      p.n = 130;
      p.c.m_stride = rows, p.c.n_stick_stride = sticks;
      p.c.offset = 1000;
    });
  };
  close(-130, 64);
  close(192, -64);
  CHECK_THROWS(close(129, 64), "C: its strides");
  CHECK_THROWS(close(-129, 64), "C: its strides");
  CHECK_THROWS(close(130, -64), "C: its strides");
  CHECK_THROWS(close(130, 63), "C: its strides");
}

TEST(a_payload_has_exactly_its_words) {
  const auto payload = payload_of(small_product());
  for (std::size_t size = 0; size < payload.size(); size += 8)
    CHECK_THROWS(decoded(std::span(payload).first(size)), "matmul");
  auto longer = payload;
  longer.resize(payload.size() + 8);
  CHECK_THROWS(decoded(longer), "payload size");
}

TEST(mutated_payloads_are_refused_or_stay_within_their_operands) {
  Random random(4);
  int accepted = 0;
  for (int round = 0; round < 20000; ++round) {
    Matmul product = small_product();
    if (random() % 2) product.bias = {3, DataFormat::SEN169_FP16, 0, 0, 64, 1};
    product.batch = {{2, 640, 0, 640, 0}};
    if (random() % 8 == 0) product.k = 0;
    product.b.sticks = static_cast<Matmul::Sticks>(random() % 2);
    auto payload = payload_of(product);
    for (std::uint64_t changes = 1 + random() % 3; changes > 0; --changes) {
      const std::size_t word = random() % (payload.size() / 8) * 8;
      std::int64_t value;
      std::memcpy(&value, &payload[word], 8);
      switch (random() % 5) {
        case 0:
          value = static_cast<std::int64_t>(random() % 200);
          break;
        case 1:
          value += static_cast<std::int64_t>(random() % 7) - 3;
          break;
        case 2:
          value = static_cast<std::int64_t>(0 - static_cast<std::uint64_t>(value));
          break;
        case 3:
          value = static_cast<std::int64_t>(std::uint64_t{1} << random() % 64);
          break;
        default:
          value = static_cast<std::int64_t>(random());
      }
      std::memcpy(&payload[word], &value, 8);
    }
    try {
      const auto step = decoded(payload);
      ++accepted;
      std::int64_t size[3];  // M, N, K
      std::memcpy(size, &payload[12 * 8], sizeof size);
      const std::vector<Step::Need> needs = step->needs();
      std::uint64_t bytes = 0;
      for (const Step::Need& need : needs) bytes += need.bytes;
      // Whatever runs must not touch more than it asked for: the sanitizers watch.
      if (bytes > 1 << 20 || static_cast<double>(size[0]) * static_cast<double>(size[1]) *
                                     static_cast<double>(size[2]) >
                                 1e6)
        continue;
      std::vector<std::vector<std::byte>> memory(kMaxProgramOperands);
      std::vector<Extent> operands(kMaxProgramOperands);
      for (const Step::Need& need : needs) {
        auto& operand = memory[static_cast<std::size_t>(need.operand)];
        if (operand.size() < need.bytes) operand.resize(need.bytes);
      }
      for (std::size_t i = 0; i < memory.size(); ++i)
        operands[i] = {memory[i].data(), memory[i].size()};
      step->run(operands);
    } catch (const Error& error) {
      CHECK(error.code == ErrorCode::invalid_argument);
    }
  }
  CHECK(accepted > 1000);
}
