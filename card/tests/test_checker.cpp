// The checker: faults of every kind are planted and found, and clean programs of every kind pass.
#include <numeric>

#include "chain_support.h"
#include "checker/checker.h"
#include "core_support.h"

using namespace spyre::card;
using namespace spyre::card::test;
using spyre::DataFormat;
using spyre::OpFunc;

namespace {

/// So many elements one after the other, from a place on.
std::vector<StrideInfo> run_of(std::int64_t count, std::int64_t from = 0) {
  return {{{count}, {1}, {1}, 0, from}};
}

/// A tensor of integers: `count` of the `all` elements of its storage.
OperandDescription described(std::int64_t count, std::int64_t all, std::int64_t from = 0) {
  return {
      "int32[" + std::to_string(count) + "]", {count}, kInt32, run_of(count, from), run_of(all)};
}

struct Bench {
  explicit Bench(std::uint64_t bytes = 64 * kMiB) : card(small_card(bytes)) {
    stream->set_checks(true);
  }
  ~Bench() {
    for (const Handle handle : handles) card->free(handle);
  }
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  /// Memory for so many 32-bit numbers, of which the first are written.
  Handle memory(std::int64_t elements, std::int64_t written = 0) {
    const auto bytes = static_cast<std::size_t>(elements * 4);
    handles.push_back(card->allocate(bytes, MemoryKind::tensor));
    write(handles.back(), 0, written);
    return handles.back();
  }
  void write(Handle handle, std::int64_t from, std::int64_t count) {
    std::vector<std::int32_t> host(static_cast<std::size_t>(count), 1);
    DataConversion conversion = copy(count, true);
    conversion.loops[0].offset_dst = from;
    stream->to_card(host.data(), host.size() * 4, handle, conversion, Submit::wait, nullptr);
  }
  void read(Handle handle, std::int64_t count) {
    std::vector<std::int32_t> host(static_cast<std::size_t>(count));
    stream->to_host(handle, host.data(), host.size() * 4, copy(count, false), Submit::wait,
                    nullptr);
  }
  void launch(const std::vector<std::byte>& binary, const std::vector<Handle>& operands,
              const std::vector<OperandDescription>& told = {}) {
    const LaunchDescription description{"aten::test", "model.py:12", told};
    const Launch launch{card->load_program(binary), operands, &description};
    stream->launch({&launch, 1}, Submit::wait, nullptr);
  }

  std::shared_ptr<SoftCard> card;
  std::unique_ptr<Stream> stream = card->create_stream(0);
  std::vector<Handle> handles;
};

/// Operand 1 = operand 0 + operand 0, so many elements from the beginning.
Pointwise pointwise_doubled(std::int64_t elements) {
  Pointwise step;
  step.op = OpFunc::add;
  step.compute = Compute::int64;
  step.inputs = {{0, kInt32}, {0, kInt32}};
  step.output = {1, kInt32};
  step.nests = {{{{elements, {1, 1, 1}}}, {0, 0, 0}}};
  return step;
}

std::vector<std::byte> doubled(std::int64_t elements) {
  return program_of(pointwise_doubled(elements));
}

/// Lines of operand 0 summed up into operand 1.
std::vector<std::byte> summed(std::int64_t lines, std::int64_t length) {
  return program_of(reduction(OpFunc::sum, Lines(Layout{{lines, length}}, 0b10), kSingle, kSingle));
}

std::vector<std::byte> program(const CoreProgram& cores) {
  ProgramBuilder builder;
  builder.cores(cores);
  return builder.finish();
}

std::vector<std::byte> move_step(std::int64_t from, std::int64_t to, std::int64_t elements) {
  ProgramBuilder builder;
  builder.move(from, to, copy(elements, true));
  return builder.finish();
}

/// A product of fp32: C (1, 32) = A (1, k) x B (k, 32), where C begins at an element.
std::vector<std::byte> product(std::int64_t k, std::int64_t c_offset = 0) {
  Matmul matmul;
  matmul.a = {0, kSingle, 0, 32, 32, 1};
  matmul.b = {1, kSingle, Matmul::Sticks::along_n, 0, 32, 0};
  matmul.c = {2, kSingle, Narrow::none, c_offset, 32, 0};
  matmul.m = 1, matmul.n = 32, matmul.k = k;
  ProgramBuilder builder;
  builder.matmul(matmul);
  return builder.finish();
}

/// Operand 0 [i] = operand 1 [operand 2 [i]].
std::vector<std::byte> gathered(std::int64_t count, std::int64_t size) {
  Index index;
  index.dense = {0, kInt32};
  index.indexed = {1, kInt32};
  index.coordinates = {{2, size, 0, {{1, 1}}}};
  index.nests = {{0, 0, {0}, {{count, 1, 0, {1}}}}};
  return program_of(index);
}

}  // namespace

// ------------------------------------------------------------------------ memory and its contents

TEST(clean_programs_pass) {
  Bench bench;
  const Handle x = bench.memory(64, 64), y = bench.memory(64);
  bench.launch(doubled(64), {x, y}, {described(64, 64), described(64, 64)});
  bench.read(y, 64);
  bench.launch(doubled(64), {x, y});  // and without a description
  bench.read(y, 64);
}

TEST(never_written_memory_is_found_when_it_leaves_the_card) {
  Bench bench;
  const Handle x = bench.memory(64, 10);
  bench.read(x, 10);
  CHECK_THROWS(bench.read(x, 12),
               "a copy to the host: reads element 10 of the tensor, which was "
               "never written");
  bench.card->name_allocation(x, "aten::empty at a.py:3");
  CHECK_THROWS(bench.read(x, 12), "since it was allocated by aten::empty at a.py:3");
}

TEST(undefined_values_are_followed_through_copies_and_pointwise_ops) {
  Bench bench;
  const Handle x = bench.memory(64, 40), y = bench.memory(64), z = bench.memory(64);
  bench.launch(doubled(64), {x, y});  // copying is no fault
  bench.launch(copy_program(64), {y, z});
  bench.read(z, 40);
  CHECK_THROWS(bench.read(z, 41), "element 40 of the tensor, which was computed from memory never");
  bench.write(x, 40, 24);
  bench.launch(doubled(64), {x, z});
  bench.read(z, 64);
}

TEST(undefined_values_that_are_summed_up_are_found_at_once) {
  Bench bench;
  const Handle x = bench.memory(64, 60), y = bench.memory(32);
  bench.launch(summed(7, 8), {x, y});
  CHECK_THROWS(bench.launch(summed(8, 8), {x, y}),
               "check: aten::test at model.py:12, step 0 "
               "(reduce sum): ");
  CHECK_THROWS(bench.launch(summed(8, 8), {x, y}),
               "is made of byte 240 of the input (operand 0), which was never written");
}

TEST(undefined_operands_of_products_are_found_at_once) {
  Bench bench;
  const Handle a = bench.memory(32, 3), b = bench.memory(4 * 32, 3 * 32), c = bench.memory(32);
  bench.launch(product(3), {a, b, c});
  bench.read(c, 32);
  CHECK_THROWS(bench.launch(product(4), {a, b, c}), "step 0 (matmul batchmatmul)");
  bench.write(a, 3, 1);
  CHECK_THROWS(bench.launch(product(4), {a, b, c}), "byte 384 of B (operand 1), which was never");
}

TEST(undefined_coordinates_are_found_at_once) {
  Bench bench;
  const Handle out = bench.memory(32), table = bench.memory(32, 32), index = bench.memory(32, 3);
  bench.launch(gathered(3, 8), {out, table, index});
  bench.read(out, 3);
  CHECK_THROWS(bench.launch(gathered(4, 8), {out, table, index}),
               "a place in the indexed tensor is given by byte 12 of index tensor 0 (operand 2), "
               "which was never written");
}

TEST(bad_coordinates_are_still_the_steps_to_refuse) {
  Bench bench;
  const Handle out = bench.memory(32), table = bench.memory(32, 32), index = bench.memory(32, 3);
  CHECK_THROWS(bench.launch(gathered(3, 1), {out, table, index}), "is out of bounds for dimension");
  CHECK_THROWS(bench.read(out, 3), "never written");
}

TEST(what_was_there_before_checking_counts_as_written) {
  Bench bench;
  bench.stream->set_checks(false);
  const Handle x = bench.memory(64);
  bench.stream->set_checks(true);
  bench.read(x, 64);
  const Handle y = bench.memory(64);
  CHECK_THROWS(bench.read(y, 64), "never written");
}

TEST(what_streams_write_that_do_not_check_counts_as_written) {
  Bench bench;
  const Handle x = bench.memory(64, 64), y = bench.memory(64);
  const auto other = bench.card->create_stream(0);
  const Handle operands[] = {x, y};
  other->launch(bench.card->load_program(copy_program(64)), operands, Submit::wait, nullptr);
  bench.read(y, 64);
  // What they read does not.
  const Handle z = bench.memory(64);
  std::int32_t number;
  other->to_host(z, &number, 4, copy(1, false), Submit::wait, nullptr);
  CHECK_THROWS(bench.read(z, 1), "never written");
}

TEST(memory_is_forgotten_when_it_is_freed) {
  Bench bench;
  const Handle x = bench.card->allocate(256, MemoryKind::tensor);
  bench.write(x, 0, 64);
  bench.card->free(x);
  const Handle y = bench.memory(64);
  CHECK_EQ(x, y);  // warm memory is used again
  CHECK_THROWS(bench.read(y, 64), "never written");
}

// --------------------------------------------------------------------------------- use after free

TEST(freed_handles_are_named) {
  Bench bench;
  const Handle x = bench.memory(64, 64), gone = bench.card->allocate(256, MemoryKind::tensor);
  bench.card->name_allocation(gone, "aten::empty at a.py:3");
  bench.card->free(gone);
  CHECK_THROWS(bench.launch(copy_program(8), {x, gone}),
               "use after free: 256 bytes, allocated by aten::empty at a.py:3");
}

TEST(memory_that_is_freed_before_its_work_runs_is_found) {
  Bench bench;
  const Handle x = bench.memory(64, 64), gone = bench.card->allocate(256, MemoryKind::tensor);
  Gate gate;
  bench.stream->host_callback(gate.callback());
  const Handle operands[] = {x, gone};
  bench.stream->launch(bench.card->load_program(copy_program(8)), operands, Submit::queue, nullptr);
  bench.card->free(gone);
  gate.open();
  CHECK_THROWS(bench.stream->synchronize(),
               "operand 1: use after free: the memory was freed after the work was submitted");
}

// ------------------------------------------------------------------- what a launch was asked to do

TEST(writes_to_other_elements_of_the_storage_are_found) {
  Bench bench;
  const Handle x = bench.memory(32, 6);
  // As if a program for a whole tensor of 5 were found again for 5 of 6 elements.
  const std::vector<OperandDescription> told{described(5, 6), described(5, 6)};
  bench.launch(doubled(5), {x, x}, told);
  CHECK_THROWS(bench.launch(doubled(32), {x, x}, told),
               "check: aten::test at model.py:12, step 0 (pointwise add): writes element 5 of the "
               "storage, which is not in the tensor, of the output (operand 1, int32[5]): that is "
               "not what the launch was asked to write");
}

TEST(writes_to_the_padding_of_others_are_found) {
  Bench bench;
  const Handle x = bench.memory(96, 64);
  // The first of two rows of five elements; each has a stick.
  const auto rows = [](std::int64_t count) {
    return std::vector<StrideInfo>{{{5, count}, {1, 5}, {1, 32}, 0, 0}};
  };
  const OperandDescription row{"int32[5]", {5}, kInt32, rows(1), rows(2)};
  bench.launch(doubled(32), {x, x}, {row, row});  // its own padding
  Pointwise step = pointwise_doubled(27);
  step.nests[0].offset = {37, 37, 37};
  CHECK_THROWS(bench.launch(program_of(step), {x, x}, {row, row}),
               "writes byte 148, which is padding of other elements, of the output (operand 1, "
               "int32[5]): that is not what the launch was asked to write");
  const OperandDescription all{"int32[2, 5]", {2, 5}, kInt32, rows(2), rows(2)};
  bench.launch(program_of(step), {x, x}, {all, all});
}

TEST(padding_may_be_walked_over) {
  Bench bench;
  const Handle x = bench.memory(32, 5), y = bench.memory(32);
  bench.launch(doubled(32), {x, y}, {described(5, 5), described(5, 5)});
  bench.read(y, 5);
  CHECK_THROWS(bench.read(y, 6), "computed from memory never written");
}

TEST(padding_that_becomes_an_element_is_found) {
  Bench bench;
  const Handle x = bench.memory(32, 32), y = bench.memory(32);  // written, but padding all the same
  CHECK_THROWS(bench.launch(doubled(6), {x, y}, {described(5, 5), described(6, 6)}),
               "element (5) of the output (operand 1, int32[6]) is made of byte 20, which is "
               "padding, of input 0 (operand 0, int32[5])");
  OperandDescription lines{"float32[7]", {7}, kSingle, run_of(7), run_of(7)};
  OperandDescription sums{"float32[2]", {2}, kSingle, run_of(2), run_of(2)};
  CHECK_THROWS(bench.launch(summed(2, 4), {x, y}, {lines, sums}), "is made of byte 28, which is");
  // A line of padding whose sum is padding is nobody's business.
  sums.view = sums.storage = run_of(1);
  bench.launch(summed(2, 4), {x, y}, {lines, sums});
}

TEST(other_elements_that_become_part_of_a_result_are_found) {
  Bench bench;
  const Handle x = bench.memory(32, 32), y = bench.memory(32);
  CHECK_THROWS(bench.launch(doubled(8), {x, y}, {described(7, 32), described(8, 32)}),
               "is made of element 7 of the storage, which is not in the tensor, of input 0");
}

TEST(elements_are_named_by_their_index) {
  Bench bench;
  const Handle x = bench.memory(32, 32), y = bench.memory(32);
  // Operand 1 is a matrix (2, 3), whose rows are 8 elements apart.
  OperandDescription matrix{"int32[2, 3]", {2, 3}, kInt32, {{{3, 2}, {1, 3}, {1, 8}, 0, 0}}, {}};
  matrix.storage = run_of(11);
  CHECK_THROWS(bench.launch(doubled(11), {x, y}, {described(9, 32), matrix}),
               "writes element 3 of");
  matrix.storage.clear();
  CHECK_THROWS(bench.launch(doubled(11), {x, y}, {described(9, 32), matrix}),
               "element (1, 1) of the output (operand 1, int32[2, 3]) is made of element 9 of");
}

TEST(what_lies_out_of_bounds_is_found) {
  Bench bench;
  const Handle x = bench.memory(32, 32), y = bench.memory(32);
  // The loader and the launch find what a program reaches ...
  CHECK_THROWS(bench.launch(doubled(33), {x, y}), "operand 0 has 128 bytes, but step 0");
  // ... and the checker does by itself.
  CheckedOperand operand;
  ScratchpadThings things;
  CheckRules rules("a launch", things);
  operand.bytes = 128;
  CHECK_THROWS(rules.read({&operand, 4, "the input"}, 30, 1, 3, nullptr),
               "reads element 32 of the input, which is out of bounds: there is room for 32");
  CHECK_THROWS(rules.write({&operand, 4, "the output"}, 3, -2, 3, nullptr, {}),
               "writes element -1 of the output, which is out of bounds");
  CHECK_THROWS(bench.launch(doubled(5), {x, y}, {described(5, 40), described(5, 5)}),
               "operand 0, int32[5]: byte 159 of what the launch describes is out of bounds");
}

TEST(a_kernel_that_writes_more_than_its_words_say_is_found) {
  Bench bench;
  const Handle x = bench.memory(64, 64), y = bench.memory(64);
  const Handle operands[] = {x, y};
  const LaunchDescription description{"aten::test", "", {described(64, 64), described(64, 64)}};
  const Launch launch{bench.card->load_program(doubled(60)), operands, &description};
  DeviceMemory memory({kMiB, kMiB});
  start_checking(memory);
  Checker& checker = *checker_of(memory);
  const Extent extents[] = {memory.locate(memory.allocate(256, MemoryKind::tensor)),
                            memory.locate(memory.allocate(256, MemoryKind::tensor))};
  const Checker::Held held[] = {checker.hold(extents[0]), checker.hold(extents[1])};
  const auto run = [&](int written) {
    checker.run(memory.scratchpads(), {&launch, 1}, held,
                [&](const Step& step, std::span<const Extent> given) {
                  step.run(given);
                  if (written >= 0) given[1].data[written * 4] ^= std::byte{1};
                });
  };
  run(-1);
  run(7);  // what it says it writes
  CHECK_THROWS(run(61),
               "step 0 (pointwise add): has changed element (61) of operand 1, int32[64], "
               "which its words do not say: a fault of the card");
}

// ------------------------------------------------------------------------------------------- cores

TEST(clean_cores_pass) {
  Bench bench;
  constexpr std::int64_t cores = 4, tiles = 3;
  CoreProgram description;
  description.cores = cores;
  description.operands = {part(0, cores, tiles * kStick), part(kPad, cores, 0, 4096),
                          part(1, cores, tiles * kStick)};
  description.nodes = {
      loop_node(tiles, {{0, kStick}, {2, kStick}},
                {step_node(add_step(0, 0, 1), 0, cores), step_node(add_step(1, 1, 2), 0, cores)})};
  const std::int64_t elements = cores * tiles * kLanes;
  const Handle x = bench.memory(elements, elements), y = bench.memory(elements);
  for (int i = 0; i < 2; ++i) bench.launch(program(description), {x, y});
  bench.read(y, elements);
}

TEST(two_cores_that_write_one_stick_are_found) {
  Bench bench;
  CoreProgram cores;
  cores.cores = 2;
  cores.operands = {part(0, 2, kStick), part(1, 2, 0)};
  cores.nodes = {step_node(move_step(0, 1, 8), 0, 2)};
  const Handle x = bench.memory(64, 64), y = bench.memory(64);
  CHECK_THROWS(bench.launch(program(cores), {x, y}),
               "step 0 (cores), core 1, move: writes byte 0 of the destination (operand 1), in a "
               "stick that core 0 writes in the same step");
  // Other places of the same stick are no better.
  ProgramBuilder second;
  DataConversion behind = copy(8, true);
  behind.loops[0].offset_dst = 16;
  second.move(0, 1, behind);
  cores.nodes = {step_node(move_step(0, 1, 8), 0, 1), step_node(second.finish(), 1, 2)};
  CHECK_THROWS(bench.launch(program(cores), {x, y}), "in a stick that core 0 writes");
}

TEST(a_core_that_reads_what_another_writes_is_found) {
  Bench bench;
  CoreProgram cores;
  cores.cores = 2;
  // Core 0 writes stick 1, which core 1 reads; and the other way around.
  cores.operands = {part(0, 2, kStick), part(0, 2, kStick, kStick)};
  cores.nodes = {step_node(move_step(0, 1, kLanes), 0, 2)};
  const Handle x = bench.memory(128, 128);
  CHECK_THROWS(bench.launch(program(cores), {x}),
               "core 1, move: reads byte 128 of the source (operand 0), which core 0 writes");
  cores.operands = {{0, {kStick, 2 * kStick}}, {0, {0, kStick}}};
  CHECK_THROWS(bench.launch(program(cores), {x}),
               "core 1, move: writes byte 128 of the destination (operand 0), which core 0 reads");
}

TEST(scratchpads_hold_nothing_when_a_program_begins) {
  Bench bench;
  CoreProgram fills, reads;
  fills.cores = reads.cores = 1;
  fills.operands = reads.operands = {part(kPad, 1, 0, 4096), part(0, 1, 0)};
  fills.nodes = {step_node(move_step(1, 0, kLanes), 0, 1)};
  reads.nodes = {step_node(move_step(0, 1, kLanes), 0, 1)};
  const Handle x = bench.memory(32, 32);
  bench.launch(program(fills), {x});
  bench.launch(program(reads), {x});  // what happens to be there
  CHECK_THROWS(bench.read(x, 32), "computed from memory never written");
}

TEST(what_is_handed_over_in_scratchpads_is_known) {
  Bench bench;
  const auto one = [](bool to_pad, const Handover& handover) {
    CoreProgram cores;
    cores.cores = 1;
    cores.operands = {part(kPad, 1, 0, 4096), part(0, 1, 0)};
    cores.nodes = {step_node(to_pad ? move_step(1, 0, kLanes) : move_step(0, 1, kLanes), 0, 1)};
    ProgramBuilder builder;
    builder.handover(handover);
    builder.cores(cores);
    return builder.finish();
  };
  const ScratchpadBytes bytes{4096, 4096 + kStick, 1};
  const Handle x = bench.memory(32, 32), y = bench.memory(32);
  const Launch together[] = {{bench.card->load_program(one(true, {{}, {bytes}})), {&x, 1}},
                             {bench.card->load_program(one(false, {{bytes}, {}})), {&y, 1}}};
  bench.stream->launch(together, Submit::wait, nullptr);
  bench.read(y, 32);
}

TEST(things_that_overlap_in_a_scratchpad_are_found) {
  Bench bench;
  CoreProgram cores;
  cores.cores = 1;
  // Rows 0 and 1: two sticks each, of which one is both; row 2: device memory.
  cores.operands = {part(kPad, 1, 0, 4096), part(kPad, 1, 0, 4096 + kStick), part(0, 1, 0)};
  cores.nodes = {step_node(move_step(2, 0, 2 * kLanes), 0, 1),
                 step_node(move_step(2, 1, 2 * kLanes), 0, 1),
                 step_node(move_step(0, 2, 2 * kLanes), 0, 1)};
  const Handle x = bench.memory(64, 64);
  CHECK_THROWS(bench.launch(program(cores), {x}),
               "core 0, move: reads byte 4224 of the scratchpad of core 0 (the source), where "
               "something else was written since: two things overlap in the scratchpad");
  // The first may go when it is not needed any more.
  std::swap(cores.nodes[1], cores.nodes[2]);
  cores.nodes.push_back(step_node(move_step(1, 2, 2 * kLanes), 0, 1));
  bench.launch(program(cores), {x});
}

TEST(scratchpads_that_overflow_are_refused) {
  Bench bench;
  CoreProgram cores;
  cores.cores = 1;
  cores.operands = {part(kPad, 1, 0, 2 * 1024 * 1024 - kStick), part(0, 1, 0)};
  cores.nodes = {step_node(move_step(1, 0, 2 * kLanes), 0, 1)};
  const Handle x = bench.memory(64, 64);
  CHECK_THROWS(bench.launch(program(cores), {x}), "a scratchpad has 2097152");
}

TEST(a_core_that_reaches_too_far_is_found) {
  Bench bench(kGiB);
  DataConversion far = copy(2, true);
  far.loops[0].stride_src[0] = 64 << 20;  // elements: 256 MiB
  ProgramBuilder builder;
  builder.move(0, 1, far);
  CoreProgram cores;
  cores.cores = 1;
  cores.operands = {part(0, 1, 0), part(1, 1, 0)};
  cores.nodes = {step_node(builder.finish(), 0, 1)};
  const Handle x = bench.memory((64 << 20) + 32, 1), y = bench.memory(32);
  CHECK_THROWS(bench.launch(program(cores), {x, y}),
               "core 0, move: touches 268435460 bytes of operand 0 from the first to the last; a "
               "core reaches 268435456");
}

TEST(sticks_that_begin_inside_of_sticks_are_found) {
  Bench bench;
  const Handle a = bench.memory(32, 32), b = bench.memory(96, 96), c = bench.memory(64);
  const auto on_a_core = [](std::int64_t c_offset, std::int64_t c_bytes = 0) {
    CoreProgram cores;
    cores.cores = 1;
    cores.operands = {part(0, 1, 0), part(1, 1, 0), part(2, 1, 0, c_bytes)};
    cores.nodes = {step_node(product(3, c_offset), 0, 1)};
    return program(cores);
  };
  bench.launch(on_a_core(32), {a, b, c});
  CHECK_THROWS(bench.launch(on_a_core(16), {a, b, c}),
               "core 0, matmul batchmatmul: a stick of C begins at byte 64 of C (operand 2), which "
               "is 64 bytes behind the beginning of a stick");
  bench.launch(product(3, 16), {a, b, c});  // the whole card may
  CHECK_THROWS(bench.launch(on_a_core(0, 64), {a, b, c}), "64 bytes are not whole sticks");
}

// ----------------------------------------------------------------------------- every kind of step

TEST(lines_of_every_kind_are_followed) {
  const Lines lines(Layout{{4, 8}}, 0b10);
  const LineTensor in{0, kSingle, lines.loops}, out{1, kSingle, lines.loops},
      indices{2, kInt32, lines.loops};
  Rows rows;
  rows.inputs = {in};
  rows.outputs = {out};
  rows.rows = 4, rows.row_length = 8;
  Scan scan;
  scan.op = OpFunc::cummax;
  scan.input = in, scan.output = out, scan.indices = indices;
  scan.lines = 4, scan.line_length = 8;
  Sort sort;
  sort.input = in, sort.values = out, sort.indices = indices;
  sort.constants = {0.0};
  sort.lines = 4, sort.line_length = 8;
  Search search;
  search.sequence = in, search.queries = {3, kSingle, lines.loops}, search.output = indices;
  search.lines = 4, search.line_length = search.query_length = 8;
  Chain chain;
  chain.lines = 4, chain.length = 8;
  chain.tensors = {chain_tensor(0, kSingle, chain, Form::rows),
                   chain_tensor(1, kSingle, chain, Form::rows),
                   chain_tensor(2, kSingle, chain, Form::rows, true, false)};
  chain.values = {load(0), reduced(OpFunc::sum, 0), op(OpFunc::sub, {{0}, {1}})};
  chain.stores = {{2, 1}, {1, 2}};
  for (const auto& binary : {program_of(rows), program_of(scan), program_of(sort),
                             program_of(search), program_of(chain)}) {
    Bench bench;
    const Handle x = bench.memory(32, 32), y = bench.memory(32), z = bench.memory(32),
                 queries = bench.memory(32, 32);
    bench.launch(binary, {x, y, z, queries});
    Bench other;
    const Handle part = other.memory(32, 29), y2 = other.memory(32), z2 = other.memory(32),
                 queries2 = other.memory(32, 32);
    CHECK_THROWS(other.launch(binary, {part, y2, z2, queries2}), "byte 116 of ");
    CHECK_THROWS(other.launch(binary, {part, y2, z2, queries2}), "(operand 0), which was never");
  }
}

TEST(chains_without_reductions_go_element_by_element) {
  Chain chain;
  chain.lines = 4, chain.length = 8;
  chain.tensors = {chain_tensor(0, kSingle, chain, Form::rows),
                   chain_tensor(1, kSingle, chain, Form::rows)};
  chain.values = {load(0), op(OpFunc::add, {{0}, {0}})};
  chain.stores = {{1, 1}};
  Bench bench;
  const Handle x = bench.memory(32, 29), y = bench.memory(32);
  bench.launch(program_of(chain), {x, y});
  bench.read(y, 29);
  CHECK_THROWS(bench.read(y, 30), "computed from memory never written");
}

TEST(scatters_are_followed_to_where_they_write) {
  Bench bench;
  Index index;
  index.op = OpFunc::scatter;
  index.dense = {0, kInt32};
  index.indexed = {1, kInt32};
  index.coordinates = {{2, 8, 0, {{1, 4}}}};
  index.nests = {{0, 0, {0}, {{3, 1, 0, {1}}}}};
  const Handle values = bench.memory(32, 32), to = bench.memory(32), places = bench.memory(32, 3);
  bench.launch(program_of(index), {values, to, places});  // all to place 1 * 4
  CHECK_THROWS(bench.read(to, 5), "element 0 of the tensor, which was never written");
  CHECK_THROWS(bench.launch(program_of(index), {values, to, places},
                            {described(32, 32), described(4, 8), described(3, 3)}),
               "writes element 4 of the storage, which is not in the tensor");
}

TEST(the_environment_makes_every_stream_check) {
  const Environment on("SPYRE_CARD_CHECK", "1");
  const auto card = small_card();
  const Handle early = card->allocate(128, MemoryKind::tensor);
  const auto stream = card->create_stream(0);
  CHECK(stream->checks());
  std::int32_t number;
  CHECK_THROWS(stream->to_host(early, &number, 4, copy(1, false), Submit::wait, nullptr), "never");
  const Environment wrong("SPYRE_CARD_CHECK", "2");
  CHECK_THROWS(small_card(), "SPYRE_CARD_CHECK='2' is not valid: it is one of 0, 1");
}
