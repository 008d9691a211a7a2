// Arbitrary programs: seeds of every opcode, changes to them, and what must hold for each. Shared
// by the fuzzer (fuzz_program.cpp) and the fixed sample of it (test_program_fuzzing.cpp).
#pragma once

#include <algorithm>
#include <cstdlib>
#include <random>

#include "core_support.h"
#include "memory/scratchpads.h"
#include "program/program.h"

namespace spyre::card::test {

/// What follows the header of a program, as 64-bit words.
using Body = std::vector<std::int64_t>;

inline Body body_of(const std::vector<std::byte>& program) {
  Body body((program.size() - sizeof(ProgramHeader)) / 8);
  if (!body.empty())
    std::memcpy(body.data(), program.data() + sizeof(ProgramHeader), body.size() * 8);
  return body;
}

/// The program of a body: its steps counted, its checksum right, so that loading goes on behind the
/// header. A body that is not made of steps stays what it is.
inline std::vector<std::byte> program_of_body(const Body& body) {
  std::vector<std::byte> program(sizeof(ProgramHeader) + body.size() * 8);
  const auto bytes = std::span(program).subspan(sizeof(ProgramHeader));
  if (!body.empty()) std::memcpy(bytes.data(), body.data(), bytes.size());
  std::uint32_t steps = 0;
  for (std::size_t at = 0; at < body.size(); ++steps)
    at += 1 + static_cast<std::size_t>(static_cast<std::uint64_t>(body[at]) >> 32);
  ProgramHeader header{{}, kProgramVersion, steps, program.size(), program_checksum(bytes)};
  std::memcpy(header.magic, kProgramMagic, sizeof header.magic);
  std::memcpy(program.data(), &header, sizeof header);
  return program;
}

/// Programs of one step of each opcode, small and right.
inline const std::vector<Body>& seeds() {
  static const std::vector<Body> all = [] {
    std::vector<Body> made;
    const auto keep = [&](auto&& describe) {
      ProgramBuilder builder;
      describe(builder);
      made.push_back(body_of(builder.finish()));
    };
    const Lines rows({{6, 70}, 64}, 0b10), columns({{6, 70}, 0}, 0b01);
    const Lines one_a_row({{6, 1}, 0}, 0b10);
    keep([](ProgramBuilder& b) {
      DataConversion conversion = copy(0, true, kDl16);
      conversion.dst = kSingle;
      conversion.loops = {{{64, 3}, {1, 64}, {1, 70}, 0, 5}, {{6}, {1}, {2}, 7, 0}};
      b.move(0, 1, conversion);
    });
    keep([](ProgramBuilder& b) {
      const StrideInfo loop{{6, 4}, {}, {1, 64}, 0, 2};
      b.fill(0, kDl16, 0x3e00, {&loop, 1});
    });
    for (const Compute compute : {Compute::fp32, Compute::int64})
      keep([&](ProgramBuilder& b) {
        Pointwise step;
        step.op = OpFunc::add;
        step.compute = compute;
        step.inputs = {{0, kInt32}, {1, kInt32}};
        step.output = {2, kInt32};
        step.nests = {{{{32, {1, 1, 1}}, {5, {32, 0, 32}}}, {0, 3, 0}},
                      {{{7, {2, 1, 3}}}, {1, 2, 0}}};
        b.pointwise(step);
      });
    keep([](ProgramBuilder& b) {
      Pointwise step;
      step.op = OpFunc::exp;
      step.inputs = {{0, kDl16}};
      step.output = {1, kSingle};
      step.nests = {{{{64, {1, 1}}, {3, {64, 70}}}, {0, 0}}};
      b.pointwise(step);
    });
    for (const OpFunc op : {OpFunc::sum, OpFunc::max, OpFunc::var})
      for (const Lines& lines : {rows, columns})
        keep([&](ProgramBuilder& b) {
          Reduce step;
          step.op = op;
          step.input = {0, kDl16, lines.loops};
          step.output = {1, kSingle};
          if (op == OpFunc::max) step.second = {2, kInt32};
          if (op == OpFunc::var) step.constants = {1.0};
          step.accumulators = lines.lines;
          step.extent = lines.length;
          step.results = {{{lines.lines}, {1}, {1}, {1}}};
          b.reduce(step);
        });
    keep([&](ProgramBuilder& b) {
      Rows step;
      step.inputs = {{0, kDl16, rows.loops}};
      step.outputs = {{1, kSingle, rows.loops}};
      step.rows = rows.lines;
      step.row_length = rows.length;
      b.rows(step);
    });
    keep([&](ProgramBuilder& b) {
      Rows step;
      step.op = OpFunc::rmsnorm;
      step.inputs = {{0, kDl16, rows.loops}, {1, kDl16, rows.loops}};
      step.outputs = {{2, kDl16, rows.loops}, {3, kSingle, one_a_row.loops}};
      step.constants = {1e-5};
      step.rows = rows.lines;
      step.row_length = rows.length;
      b.rows(step);
    });
    for (const OpFunc op : {OpFunc::cumsum, OpFunc::cummax})
      keep([&](ProgramBuilder& b) {
        Scan step;
        step.op = op;
        step.input = {0, kDl16, rows.loops};
        step.output = {1, kDl16, columns.loops};
        step.output.loops = rows.loops;
        if (op == OpFunc::cummax) step.indices = {2, kInt32, rows.loops};
        step.lines = rows.lines;
        step.line_length = rows.length;
        b.scan(step);
      });
    keep([&](ProgramBuilder& b) {
      Sort step;
      step.input = {0, kDl16, rows.loops};
      step.values = {1, kDl16, rows.loops};
      step.indices = {2, kInt32, rows.loops};
      step.constants = {0.0};
      step.lines = rows.lines;
      step.line_length = rows.length;
      b.sort(step);
    });
    keep([&](ProgramBuilder& b) {
      Search step;
      step.sequence = {0, kDl16, rows.loops};
      step.queries = {1, kDl16, rows.loops};
      step.output = {2, kInt32, rows.loops};
      step.lines = rows.lines;
      step.line_length = step.query_length = rows.length;
      b.search(step);
    });
    for (const DataFormat format : {kDl16, kSingle, kInt32})
      for (const Matmul::Sticks sticks : {Matmul::Sticks::along_n, Matmul::Sticks::along_k})
        keep([&](ProgramBuilder& b) {
          const std::int64_t eps = stick_of(format);
          Matmul step;
          step.m = 5, step.n = 70, step.k = 33;
          step.a = {0, format, 0, eps, 5 * eps, 1};
          step.b = {1, format, sticks, 0, eps, 70 * eps};
          step.c = {2, format, Narrow::none, 0, eps, 5 * eps};
          step.bias = {3, format, 0, 0, eps, 1};
          step.batch = {{2, 1024, 0, 2048, 0}};
          b.matmul(step);
        });
    for (const OpFunc op : {OpFunc::gather, OpFunc::scatteradd})
      keep([&](ProgramBuilder& b) {
        Index step;
        step.op = op;
        step.dense = {0, kDl16};
        step.indexed = {1, kDl16};
        step.wrap = true;
        step.coordinates = {{2, 9, 0, {{1, 64}}}};
        step.nests = {{0, 0, {0}, {{64, 1, 1, {0}}, {5, 64, 0, {1}}}}};
        b.index(step);
      });
    keep([&](ProgramBuilder& b) {
      Chain step;
      step.lines = rows.lines;
      step.length = rows.length;
      step.tensors = {{0, kDl16, Narrow::none, true, true, rows.loops},
                      {1, kDl16, Narrow::none, true, true, rows.loops}};
      step.values = {
          {Chain::Kind::load, 0, {}, {}, {}, kDl16, Narrow::none},
          {Chain::Kind::reduce, 0, OpFunc::max, {{0, 0}}, {}, kSingle, Narrow::none},
          {Chain::Kind::pointwise, 0, OpFunc::sub, {{0, 0}, {1, 0}}, {}, kDl16, Narrow::none}};
      step.stores = {{2, 1}};
      b.chain(step);
    });
    keep([&](ProgramBuilder& b) {
      CoreProgram program;
      program.cores = 2;
      program.operands = {
          part(0, 2, kStick), part(1, 2, kStick), {kPad, {0, 0}}, part(2, 2, kStick)};
      CoreProgram::Node loop;
      loop.count = 3;
      loop.advances = {{0, 2 * kStick}, {3, 2 * kStick}};
      loop.body = {step_node(add_step(0, 1, 2), 0, 2), step_node(add_step(2, 1, 3), 0, 2)};
      program.nodes = {loop};
      b.cores(program);
    });
    keep([](ProgramBuilder& b) {
      Account account;
      account.name = "add";
      account.count = 1;
      b.accounts({&account, 1});
    });
    keep([](ProgramBuilder& b) { b.handover({{{0, 256, 2}}, {{128, 512, 2}}}); });
    return made;
  }();
  return all;
}

/// Another body like this one: words changed, copied, taken out, steps put behind it.
inline void mutate(Body& body, std::mt19937& random) {
  static constexpr std::int64_t kAwkward[] = {0,
                                              1,
                                              -1,
                                              2,
                                              3,
                                              31,
                                              32,
                                              63,
                                              64,
                                              65,
                                              127,
                                              128,
                                              -64,
                                              1023,
                                              1 << 20,
                                              INT64_MIN,
                                              INT64_MAX,
                                              std::int64_t{1} << 37,
                                              std::int64_t{1} << 62};
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
  if (body.empty()) body = seeds()[below(seeds().size())];
  for (unsigned change = 0; change < 1 + random() % 4; ++change) {
    std::int64_t& word = body[below(body.size())];
    switch (random() % 8) {
      case 0:
      case 1:
        word = kAwkward[below(std::size(kAwkward))];
        break;
      case 2:
      case 3:
        word = static_cast<std::int64_t>(static_cast<std::uint64_t>(word) + random() % 7 - 3);
        break;
      case 4:
        word = body[below(body.size())];
        break;
      case 5:
        word = static_cast<std::int64_t>(random() % 130);
        break;
      case 6:
        if (body.size() < 400) {
          const Body& more = seeds()[below(seeds().size())];
          body.insert(body.end(), more.begin(), more.end());
        }
        break;
      default:
        word ^= std::int64_t{1} << random() % 64;
    }
  }
}

/// Loads a program and, if it is small, runs it on memory of exactly the bytes that it asks for, so
/// that a sanitizer sees every step beyond them. Whether it ran. It may be refused with Error, and
/// nothing else may happen.
inline bool load_and_run(const Body& body) {
  static const std::shared_ptr<DeviceMemory> device =
      std::make_shared<DeviceMemory>(MemoryLimits{64 * kMiB, 0});
  static const Scratchpads scratchpads;
  constexpr std::uint64_t kSmall = 1 << 20;
  try {
    const std::vector<std::byte> binary = program_of_body(body);
    const SoftProgram program(binary, device);
    std::vector<std::uint64_t> needs;
    std::int64_t points = 0;
    for (std::size_t at = 0; at < body.size();) {
      const auto head = static_cast<std::uint64_t>(body[at]);
      const auto opcode = static_cast<std::uint32_t>(head);
      const std::size_t words = head >> 32;
      const auto payload = std::as_bytes(std::span(body).subspan(at + 1, words));
      at += 1 + words;
      if (opcode == static_cast<std::uint32_t>(Opcode::accounts) ||
          opcode == static_cast<std::uint32_t>(Opcode::handover))
        continue;
      const auto step = decode_step(0, opcode, payload);
      points += std::min<std::int64_t>(step->cost().all_points, kSmall);
      for (const Step::Need& need : step->needs()) {
        const auto operand = static_cast<std::size_t>(need.operand);
        if (operand >= needs.size()) needs.resize(operand + 1);
        needs[operand] = std::max(needs[operand], need.bytes);
      }
    }
    if (points >= (1 << 17) || std::ranges::any_of(needs, [](auto n) { return n > kSmall; }))
      return false;
    using Memory = std::unique_ptr<std::byte, decltype(&std::free)>;
    std::vector<Memory> memory;
    std::vector<Extent> extents;
    for (const std::uint64_t bytes : needs) {
      void* at = nullptr;
      if (posix_memalign(&at, 128, std::max<std::uint64_t>(bytes, 1)) != 0) throw std::bad_alloc();
      std::memset(at, 0, bytes);
      memory.emplace_back(static_cast<std::byte*>(at), &std::free);
      extents.push_back({memory.back().get(), bytes});
    }
    program.check(extents);
    const Scratchpads::Turn turn(scratchpads);
    program.run(extents, program.uses_scratchpads() ? &turn : nullptr);
    return true;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace spyre::card::test
