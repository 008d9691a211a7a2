// Programs: the format, what is refused, what a launch does and costs.
#include <atomic>
#include <bit>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <random>

#include "check.h"
#include "host/thread_pool.h"
#include "program/program.h"
#include "support.h"

using namespace spyre::card;
using namespace spyre::card::test;
using spyre::DataFormat;
using spyre::OpFunc;

namespace {

/// A card with operands that tests can look into.
struct Bench {
  std::shared_ptr<SoftCard> card = small_card(64 * kMiB);
  std::unique_ptr<Stream> stream = card->create_stream(0);

  Handle tensor(const std::vector<std::int32_t>& values) {
    const Handle handle = card->allocate(values.size() * 4, MemoryKind::tensor);
    stream->to_card(values.data(), values.size() * 4, handle,
                    copy(static_cast<std::int64_t>(values.size()), true), Submit::wait, nullptr);
    return handle;
  }
  std::vector<std::int32_t> values(Handle handle, std::size_t elements) {
    std::vector<std::int32_t> host(elements);
    stream->to_host(handle, host.data(), elements * 4,
                    copy(static_cast<std::int64_t>(elements), false), Submit::wait, nullptr);
    return host;
  }
  void run(std::span<const std::byte> binary, std::vector<Handle> operands,
           Submit submit = Submit::wait) {
    stream->launch(card->load_program(binary), operands, submit, nullptr);
    stream->synchronize();
  }
};

/// Word `index` after the header becomes `value`, and the checksum is right again.
std::vector<std::byte> changed(std::vector<std::byte> binary, std::size_t index,
                               std::int64_t value) {
  std::memcpy(binary.data() + sizeof(ProgramHeader) + 8 * index, &value, 8);
  const std::uint64_t sum = program_checksum(std::span(binary).subspan(sizeof(ProgramHeader)));
  std::memcpy(binary.data() + offsetof(ProgramHeader, checksum), &sum, 8);
  return binary;
}

std::vector<std::byte> header_changed(std::vector<std::byte> binary, std::size_t offset,
                                      std::uint8_t value) {
  binary[offset] = std::byte{value};
  return binary;
}

std::vector<std::byte> fill_program(std::int64_t elements, std::uint64_t bits) {
  ProgramBuilder builder;
  const StrideInfo loop{{elements}, {}, {1}, 0, 0};
  builder.fill(0, DataFormat::IEEE_INT32, bits, {&loop, 1});
  return builder.finish();
}

}  // namespace

TEST(steps_run_in_order_on_their_operands) {
  for (const Submit submit : {Submit::wait, Submit::queue, Submit::either}) {
    Bench bench;
    const Handle in = bench.tensor({1, 2, 3, 4}), out = bench.tensor({0, 0, 0, 0});
    ProgramBuilder builder;
    const StrideInfo all{{4}, {}, {1}, 0, 0};
    builder.fill(1, DataFormat::IEEE_INT32, 9, {&all, 1});
    DataConversion reversed = copy(0, true);
    reversed.loops = {{{3}, {1}, {-1}, 0, 3}};  // the first three, backwards from the end
    builder.move(0, 1, reversed);
    bench.run(builder.finish(), {in, out}, submit);
    CHECK((bench.values(out, 4) == std::vector<std::int32_t>{9, 3, 2, 1}));
  }
}

TEST(a_move_converts_between_device_formats) {
  Bench bench;
  const Handle in = bench.tensor({1, -2, 3, 70000}), out = bench.tensor({0, 0, 0, 0});
  ProgramBuilder builder;
  DataConversion conversion = copy(4, true);
  conversion.dst = DataFormat::IEEE_FP32;
  builder.move(0, 1, conversion);
  bench.run(builder.finish(), {in, out});
  const auto bits = bench.values(out, 4);
  float values[4];
  std::memcpy(values, bits.data(), sizeof values);
  CHECK_EQ(values[1], -2.0f);
  CHECK_EQ(values[3], 70000.0f);
}

TEST(a_move_within_one_tensor_reads_all_before_it_writes) {
  Bench bench;
  const Handle tensor = bench.tensor({0, 1, 2, 3, 4, 5, 6, 7});
  ProgramBuilder builder;
  DataConversion shifted = copy(0, true);
  shifted.loops = {{{6}, {1}, {1}, 1, 2}};
  builder.move(0, 1, shifted);
  bench.run(builder.finish(), {tensor, tensor});
  CHECK((bench.values(tensor, 8) == std::vector<std::int32_t>{0, 1, 1, 2, 3, 4, 5, 6}));
}

TEST(the_bytes_of_a_program_are_those_of_the_documentation) {
  const auto binary = fill_program(64, 7);
  const std::uint8_t expected[] = {
      'S', 'P', 'Y', 'R', 'E', 'P', 'R', 'G', 1, 0, 0, 0, 1, 0, 0, 0,  //
      104, 0,   0,   0,   0,   0,   0,   0,                            // then the checksum
  };
  CHECK_EQ(binary.size(), 104u);
  CHECK(std::memcmp(binary.data(), expected, sizeof expected) == 0);
  const std::int64_t words[] = {2 | (8ll << 32), 0, 12, 7, 1, 1, 0, 64, 1};
  CHECK(std::memcmp(binary.data() + 32, words, sizeof words) == 0);
  std::uint64_t checksum;
  std::memcpy(&checksum, binary.data() + 24, 8);
  CHECK_EQ(checksum, 0x64acb816c8654bc5u);
}

TEST(a_program_lies_in_the_program_segment_until_it_is_dropped) {
  Bench bench;
  const auto binary = copy_program(32);
  auto program = bench.card->load_program(binary);
  CHECK_EQ(program->bytes(), binary.size());
  CHECK_EQ(program->device_address(), static_cast<std::uint64_t>(spyre::kProgramSegmentBase));
  CHECK_EQ(bench.card->memory_info(MemoryKind::program).allocations, 1u);
  CHECK_EQ(bench.card->counters().programs_loaded, 1u);
  program.reset();
  CHECK_EQ(bench.card->memory_info(MemoryKind::program).allocations, 0u);
}

TEST(a_queued_launch_keeps_its_program) {
  Bench bench;
  const Handle tensor = bench.tensor({0, 0});
  const Handle operands[] = {tensor};
  bench.stream->host_callback([] {});
  bench.stream->launch(bench.card->load_program(fill_program(2, 5)), operands, Submit::queue,
                       nullptr);
  CHECK_EQ(bench.values(tensor, 2)[1], 5);
}

TEST(an_empty_program_is_a_program) {
  Bench bench;
  bench.run(ProgramBuilder().finish(), {});
  CHECK_EQ(bench.card->counters().launches, 1u);
}

// -----------------------------------------------------------------------------------------
// refusals

TEST(damaged_headers_are_refused_by_name) {
  Bench bench;
  const auto good = copy_program(32);
  const auto load = [&](std::span<const std::byte> binary) { bench.card->load_program(binary); };
  CHECK_THROWS(load({}), "header: 0 bytes are too few");
  CHECK_THROWS(load(std::span(good).first(31)), "header: 31 bytes are too few");
  CHECK_THROWS(load(header_changed(good, 0, 'X')), "magic");
  CHECK_THROWS(load(header_changed(good, 8, 2)), "version: 2, this card runs version 1");
  CHECK_THROWS(load(header_changed(good, 12, 2)), "step 1: the program ends before it");
  CHECK_THROWS(load(header_changed(good, 12, 0)), "step count: 0");
  CHECK_THROWS(load(header_changed(good, 16, 1)), "total bytes");
  CHECK_THROWS(load(header_changed(good, 24, 1)), "checksum");
  CHECK_THROWS(load(header_changed(good, 50, 1)), "checksum");
  CHECK_THROWS(load(std::span(good).first(good.size() - 8)), "total bytes");
  CHECK_EQ(bench.card->counters().programs_loaded, 0u);
  CHECK_EQ(bench.card->memory_info(MemoryKind::program).allocations, 0u);
}

TEST(malformed_steps_are_refused_by_step_and_field) {
  Bench bench;
  // Words: 0 step header, 1 src, 2 dst, 3 src format, 4 dst format, 5 narrow, 6 loops,
  // 7 dimensions, 8 src offset, 9 dst offset, 10 size, 11 src stride, 12 dst stride.
  const auto good = copy_program(32);
  const auto load = [&](std::size_t word, std::int64_t value) {
    bench.card->load_program(changed(good, word, value));
  };
  const auto header = [](std::int64_t opcode, std::int64_t words) { return opcode | words << 32; };
  CHECK_THROWS(load(0, header(77, 12)), "step 0, opcode: 77 is unknown");
  CHECK_THROWS(load(0, header(1, 13)), "step 0, payload size: 13 words, but the program ends");
  CHECK_THROWS(load(0, header(1, 11)), "step 0 (move), loop 0, destination stride");
  CHECK_THROWS(load(0, header(1, 0)), "step 0 (move), source operand: the payload ends before it");
  CHECK_THROWS(load(1, -1), "step 0 (move), source operand: -1 is not in 0..1023");
  CHECK_THROWS(load(2, 1024), "destination operand: 1024");
  CHECK_THROWS(load(3, 2), "source format: 2 is not a format of device memory");
  CHECK_THROWS(load(4, 32), "destination format: 32 is not a format of device memory");
  CHECK_THROWS(load(4, 4096 + 12), "destination format: 4108");
  CHECK_THROWS(load(5, 3), "narrow: 3 is not in 0..2");
  CHECK_THROWS(load(6, -1), "loop count: -1");
  CHECK_THROWS(load(6, 2), "loop 1, dimensions: the payload ends before it");
  CHECK_THROWS(load(6, 0), "payload size: 6 words too many");
  CHECK_THROWS(load(6, INT64_MAX), "loop count");
  CHECK_THROWS(load(7, INT64_MAX), "loop 0, dimensions");
  CHECK_THROWS(load(8, -1), "loop 0, source: element -1 lies before the operand");
  CHECK_THROWS(load(9, INT64_MAX), "loop 0, destination");
  CHECK_THROWS(load(10, -1), "loop 0, size: -1 is not in");
  CHECK_THROWS(load(10, INT64_MAX), "loop 0, size");
  CHECK_THROWS(load(11, INT64_MAX), "loop 0, source: reaches beyond 64 bits");
  CHECK_THROWS(load(12, -1), "loop 0, destination: element -31 lies before");
  CHECK_THROWS(load(12, INT64_MIN), "loop 0, destination");
}

TEST(launches_check_their_operands_when_submitted) {
  Bench bench;
  const Handle small = bench.tensor(std::vector<std::int32_t>(32)),
               large = bench.tensor(std::vector<std::int32_t>(64));
  const auto program = bench.card->load_program(copy_program(64));
  const auto launch = [&](std::vector<Handle> operands) {
    bench.stream->launch(program, operands, Submit::queue, nullptr);
  };
  CHECK_THROWS(launch({large}), "has 2 operands, 1 were given");
  CHECK_THROWS(launch({large, small}),
               "operand 1 has 128 bytes, but step 0 (move) touches 256 bytes of it");
  CHECK_THROWS(launch({large, nullptr}), "not an allocation of this card");
  CHECK_THROWS(bench.stream->launch(nullptr, {}, Submit::queue, nullptr), "no program");
  launch({large, large});
  launch(std::vector<Handle>(40, large));  // more operands than the program looks at
  bench.stream->synchronize();
  CHECK_EQ(bench.card->counters().launches, 2u);
}

TEST(the_program_segment_can_be_full) {
  const auto card = std::make_shared<SoftCard>(MemoryLimits{64 * kKiB, 0});
  ProgramBuilder builder;
  for (int i = 0; i < 1000; ++i) builder.move(0, 1, copy(32, true));
  CHECK_THROWS(card->load_program(builder.finish()), "out of program memory");
  card->load_program(copy_program(32));
}

TEST(random_damage_is_refused_or_stays_within_bounds) {
  Bench bench;
  constexpr std::size_t kElements = 256;
  const Handle in = bench.tensor(std::vector<std::int32_t>(kElements, 1));
  const Handle fence = bench.tensor(std::vector<std::int32_t>(kElements, 77));
  const Handle out = bench.tensor(std::vector<std::int32_t>(kElements, 0));
  const Handle after = bench.tensor(std::vector<std::int32_t>(kElements, 77));
  const Handle operands[] = {in, out};
  ProgramBuilder builder;
  DataConversion two_dimensional = copy(0, true);
  two_dimensional.loops = {{{8, 4}, {1, 8}, {4, 1}, 0, 0}, {{3}, {-2}, {5}, 9, 100}};
  builder.move(0, 1, two_dimensional);
  const StrideInfo part{{4, 4}, {}, {1, 16}, 0, 32};
  builder.fill(1, DataFormat::IEEE_INT32, 3, {&part, 1});
  builder.move(1, 0, copy(16, true));
  const auto good = builder.finish();
  const std::size_t words = (good.size() - sizeof(ProgramHeader)) / 8;

  std::mt19937_64 random(1);
  const std::int64_t nasty[] = {0,   1,   2,    -1,        12,        64,
                                255, 256, 1024, INT64_MAX, INT64_MIN, 1ll << 32};
  int refused = 0, ran = 0;
  for (int i = 0; i < 20000; ++i) {
    std::vector<std::byte> bad = good;
    for (unsigned n = 0; n <= random() % 3; ++n) {
      const std::size_t word = random() % words;
      std::int64_t value = nasty[random() % std::size(nasty)];
      if (random() % 2) {
        std::memcpy(&value, bad.data() + sizeof(ProgramHeader) + 8 * word, 8);
        value ^= std::int64_t{1} << random() % 64;
      }
      bad = changed(std::move(bad), word, value);
    }
    if (random() % 8 == 0) bad.resize(random() % bad.size());
    try {
      const auto program = bench.card->load_program(bad);
      // Legal, but nothing to wait for: a loop of a million million steps over one element.
      if (SoftProgram::from(program.get()).bill().sfp_elements > 1 << 18) continue;
      bench.stream->launch(program, operands, Submit::either, nullptr);
      ++ran;
    } catch (const Error&) {
      ++refused;
    }
  }
  // Without a corrected checksum nothing gets through at all.
  for (int i = 0; i < 20000; ++i) {
    std::vector<std::byte> bad = good;
    bad[random() % bad.size()] ^= static_cast<std::byte>(1 + random() % 255);
    CHECK_THROWS(bench.card->load_program(bad), "program: ");
  }
  CHECK(refused > 1000 && ran > 1000);
  CHECK((bench.values(fence, kElements) == std::vector<std::int32_t>(kElements, 77)));
  CHECK((bench.values(after, kElements) == std::vector<std::int32_t>(kElements, 77)));
}

TEST(a_stream_takes_large_programs_over_from_a_thread_that_has_more_to_do) {
  constexpr std::int64_t kElements = 256 * 1024;
  Bench bench;
  ProgramBuilder builder;
  Pointwise increment;
  increment.op = OpFunc::add;
  increment.compute = Compute::fp32;
  increment.inputs = {{0, DataFormat::IEEE_FP32}, Pointwise::Input::scalar(1)};
  increment.output = {0, DataFormat::IEEE_FP32};
  increment.nests = {{{{kElements, {1, 1}}}, {0, 0}}};
  builder.pointwise(increment);
  const auto program = bench.card->load_program(builder.finish());
  CHECK(SoftProgram::from(program.get()).takes_long());
  const Handle operands[] = {bench.tensor(std::vector<std::int32_t>(kElements))};
  const auto event = bench.card->create_event();
  std::atomic<int> callbacks = 0, taken_over = 0;
  int launches = 0;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (launches < 300 || (taken_over == 0 && std::chrono::steady_clock::now() < deadline)) {
    bench.stream->launch(program, operands, Submit::either, nullptr);
    taken_over += !bench.stream->query();
    if (++launches % 7 == 0) bench.stream->host_callback([&] { ++callbacks; });
    if (launches % 11 == 0) {
      bench.stream->record(*event);
      event->synchronize();
      CHECK(event->query());
    }
    if (launches % 50 == 0) {
      const auto values = bench.values(operands[0], kElements);
      const auto expected = std::bit_cast<std::int32_t>(static_cast<float>(launches));
      CHECK(values == std::vector<std::int32_t>(kElements, expected));
    }
    const auto ready = std::chrono::steady_clock::now() + std::chrono::microseconds(40);
    while (std::chrono::steady_clock::now() < ready) continue;
  }
  bench.stream->synchronize();
  CHECK_EQ(callbacks.load(), launches / 7);
  CHECK(taken_over > 0 || ThreadPool::shared().size() == 1);
}

TEST(launching_a_small_program_is_fast) {
  Bench bench;
  const Handle in = bench.tensor(std::vector<std::int32_t>(64)),
               out = bench.tensor(std::vector<std::int32_t>(64));
  const Handle operands[] = {in, out};
  const auto program = bench.card->load_program(copy_program(64));
  constexpr int kRounds = 20000;
  for (const Submit submit : {Submit::either, Submit::queue}) {
    const double time = seconds([&] {
      for (int i = 0; i < kRounds; ++i) bench.stream->launch(program, operands, submit, nullptr);
      bench.stream->synchronize();
    });
    std::printf("     launch of one small move, %s: %.0f ns\n",
                submit == Submit::either ? "inline" : "queued", time / kRounds * 1e9);
    CHECK(time / kRounds < 100e-6);  // generous: sanitizers and busy machines
  }
}
