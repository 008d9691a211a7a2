// Steps whose operands lie over each other: parts of one allocation that begin at different places,
// as cores have them. The result is what the step gives when everything is read before anything is
// written, which here is: on operands that are apart.
#include <array>
#include <numeric>

#include "core_support.h"

using namespace spyre::card;
using namespace spyre::card::test;
using spyre::DataFormat;
using spyre::OpFunc;

namespace {

using Bytes = std::vector<std::byte>;

/// Where operands of a step begin, in one piece of memory.
using Starts = std::vector<std::size_t>;

/// Runs the step on operands that begin there; then on copies of them that are apart, whose results
/// are put together in the order of `written`. Both must leave the same memory.
void check_as_if_apart(const char* what, const Bytes& program, const Starts& starts,
                       const std::vector<std::size_t>& written, const Bytes& memory) {
  const auto step = first_step(program);
  Bytes together = memory;
  std::vector<Extent> extents;
  for (const std::size_t start : starts)
    extents.push_back({together.data() + start, together.size() - start});
  step->run(extents);

  std::vector<Bytes> apart;
  for (const std::size_t start : starts) {
    Bytes& own = apart.emplace_back(memory);
    own.erase(own.begin(), own.begin() + static_cast<std::ptrdiff_t>(start));
  }
  extents.clear();
  for (Bytes& own : apart) extents.push_back({own.data(), own.size()});
  step->run(extents);
  Bytes expected = memory;
  for (const std::size_t operand : written)
    for (std::size_t i = 0; i < apart[operand].size(); ++i)
      if (apart[operand][i] != memory[starts[operand] + i])
        expected[starts[operand] + i] = apart[operand][i];
  if (together != expected)
    check::fail(__FILE__, __LINE__,
                std::string(what) + ": the result depends on where its operands lie");
}

/// Integers, or numbers, that differ from place to place.
Bytes memory_of(DataFormat format, std::int64_t elements) {
  Elements memory(format, elements);
  for (std::int64_t i = 0; i < elements; ++i)
    memory.set(i, static_cast<double>(i * 37 % 251 - 125) / (format == kInt32 ? 1 : 64));
  return memory.bytes;
}

constexpr std::int64_t kLines = 192, kLength = 64;  // enough for several tasks of every step
constexpr std::int64_t kCount = kLines * kLength;
const Lines kAll({{kLines, kLength}, 0}, 0b10);

/// Distances at which what is written lies behind or before what is read, in bytes.
const std::vector<Starts> kShifts = {{0, 128}, {128, 0}, {0, 4096}, {4096, 0}, {0, 0}};

}  // namespace

TEST(moves_read_everything_before_they_write) {
  ProgramBuilder same, wider;
  same.move(0, 1, copy(kCount, true));
  DataConversion conversion = copy(kCount, true, kDl16);
  conversion.dst = kSingle;
  wider.move(0, 1, conversion);
  const Bytes programs[] = {same.finish(), wider.finish()};
  for (const Starts& starts : kShifts) {
    check_as_if_apart("move", programs[0], starts, {1}, memory_of(kInt32, 2 * kCount));
    check_as_if_apart("widening move", programs[1], starts, {1}, memory_of(kDl16, 4 * kCount));
  }
}

TEST(products_read_everything_before_they_write) {
  Matmul product;  // A and C of 64 x 64, B of 64 x 64, a bias of 64 x 64: two sticks each
  product.a.format = product.b.format = product.c.format = product.bias.format = kSingle;
  product.a.operand = 0, product.b.operand = 1, product.c.operand = 2;
  product.m = product.n = product.k = 64;
  product.a.m_stride = product.b.stride = product.c.m_stride = product.bias.m_stride = 32;
  product.a.k_stick_stride = product.b.stick_stride = product.c.n_stick_stride =
      product.bias.n_stick_stride = 64 * 32;
  constexpr std::size_t far = 64 * 64 * 4;
  const Bytes memory = memory_of(kSingle, 8 * 64 * 64);
  const auto check = [&](const Starts& starts) {
    ProgramBuilder builder;
    builder.matmul(product);
    check_as_if_apart("matmul", builder.finish(), starts, {2}, memory);
  };
  for (const std::size_t shift : {std::size_t{0}, std::size_t{128}, std::size_t{8192}}) {
    check({0, 2 * far, shift});  // over A
    check({shift, 2 * far, 0});  // before A
    check({2 * far, 0, shift});  // over B
    check({0, 4 * far, 4 * far + shift});
  }
  product.bias.operand = 3;
  for (const std::size_t shift : {std::size_t{0}, std::size_t{128}, std::size_t{8192}}) {
    check({4 * far, 6 * far, shift, 0});
    check({4 * far, 6 * far, 0, shift});
  }
}

TEST(lines_are_read_before_they_are_written) {
  const auto check = [](const char* what, const auto& description, DataFormat format,
                        const std::vector<std::size_t>& written) {
    for (const Starts& shift : kShifts) {
      // Other outputs lie over the first one, and over the input.
      Starts starts{shift[0], shift[1]};
      for (const std::size_t third : {shift[0], shift[1] + 256, std::size_t{2 * kCount * 4}}) {
        starts.resize(2);
        starts.push_back(third);
        check_as_if_apart(what, program_of(description), starts, written,
                          memory_of(format, 4 * kCount));
      }
    }
  };
  for (const OpFunc op : {OpFunc::cumsum, OpFunc::cummax}) {
    Scan scan;
    scan.op = op;
    scan.input = {0, kSingle, kAll.loops};
    scan.output = {1, kSingle, kAll.loops};
    scan.lines = kLines, scan.line_length = kLength;
    check("scan", scan, kSingle, {1});
  }

  Sort sort;
  sort.constants = {0};
  sort.input = {0, kInt32, kAll.loops};
  sort.values = {1, kInt32, kAll.loops};
  sort.compute = Compute::int64;
  sort.lines = kLines, sort.line_length = kLength;
  check("sort", sort, kInt32, {1});

  Search search;  // queries at operand 0; the sequences far away
  search.sequence = {2, kInt32, kAll.loops};
  search.queries = {0, kInt32, kAll.loops};
  search.output = {1, kInt32, kAll.loops};
  search.compute = Compute::int64;
  search.lines = kLines, search.line_length = search.query_length = kLength;
  check("search", search, kInt32, {1});
  std::swap(search.sequence.operand, search.queries.operand);
  check("search in what it overwrites", search, kInt32, {1});

  Rows rows;
  rows.inputs = {{0, kSingle, kAll.loops}};
  rows.outputs = {{1, kSingle, kAll.loops}};
  rows.rows = kLines, rows.row_length = kLength;
  check("softmax", rows, kSingle, {1});

  rows.op = OpFunc::layernorm;  // with weights of one row that the result overwrites
  LineTensor weight{2, kSingle, {{{kLength}, {1}, {0}, {1}}}}, absent{-1, kSingle, {}};
  rows.inputs = {{0, kSingle, kAll.loops}, weight, absent};
  rows.outputs = {{1, kSingle, kAll.loops}, absent, absent};
  rows.constants = {1e-5};
  check("layernorm", rows, kSingle, {1});
}

/// Where two outputs lie over each other, the row that comes last stays, whatever the threads do:
/// so the same run gives the same result again and again.
TEST(outputs_that_lie_over_each_other_are_written_in_order) {
  const auto check = [](const char* what, const auto& description) {
    const auto step = first_step(program_of(description));
    Bytes first;
    for (int run = 0; run < 20; ++run) {
      Bytes memory = memory_of(kSingle, 4 * kCount);
      const Extent extents[] = {{memory.data(), memory.size()},
                                {memory.data() + 2 * kCount * 4, memory.size()},
                                {memory.data() + 2 * kCount * 4 + 128, memory.size()}};
      step->run(extents);
      if (run == 0) first = memory;
      if (memory != first)
        check::fail(__FILE__, __LINE__, std::string(what) + ": another result at another time");
    }
  };
  Scan scan;
  scan.op = OpFunc::cummax;
  scan.input = {0, kSingle, kAll.loops};
  scan.output = {1, kSingle, kAll.loops};
  scan.indices = {2, kInt32, kAll.loops};
  scan.lines = kLines, scan.line_length = kLength;
  check("cummax", scan);

  Sort sort;
  sort.constants = {0};
  sort.input = {0, kSingle, kAll.loops};
  sort.values = {1, kSingle, kAll.loops};
  sort.indices = {2, kInt32, kAll.loops};
  sort.lines = kLines, sort.line_length = kLength;
  check("sort", sort);
}

// ------------------------------------------------------------------------------------- in cores

TEST(an_overlapping_move_inside_cores_moves_what_was_there) {
  const auto card = small_card();
  const auto stream = card->create_stream(0);
  constexpr std::int64_t cores = 4, sticks = 512, own = (sticks + 1) * kLanes, all = cores * own;
  std::vector<std::int32_t> host(all);
  std::iota(host.begin(), host.end(), 1);
  const Handle x = card->allocate(host.size() * 4, MemoryKind::tensor);
  stream->to_card(host.data(), host.size() * 4, x, copy(all, true), Submit::wait, nullptr);

  DataConversion backwards = copy(sticks * kLanes, true);
  backwards.loops[0].stride_src[0] = -1;
  backwards.loops[0].offset_src = sticks * kLanes - 1;
  ProgramBuilder move;
  move.move(0, 1, backwards);
  CoreProgram description;  // every core turns its part around and puts it one stick further
  description.cores = cores;
  description.operands = {part(0, cores, own * 4), part(0, cores, own * 4, kStick)};
  description.nodes = {step_node(move.finish(), 0, cores)};
  ProgramBuilder builder;
  builder.cores(description);
  const Handle operands[] = {x};
  stream->launch(card->load_program(builder.finish()), operands, Submit::wait, nullptr);

  std::vector<std::int32_t> got(host.size());
  stream->to_host(x, got.data(), got.size() * 4, copy(all, false), Submit::wait, nullptr);
  for (std::int64_t i = 0; i < all; ++i) {
    const std::int64_t core = i / own, place = i % own;
    const std::int64_t from = place < kLanes ? place : own - 1 - place;
    CHECK_EQ(got[static_cast<std::size_t>(i)], core * own + from + 1);
  }
  card->free(x);
}

/// Cores that multiply few rows with one B are computed at once, if no C lies over an A.
TEST(products_of_cores_at_once_read_before_they_write) {
  constexpr std::int64_t cores = 8, rows = 16, depth = 128, columns = 64, lanes = 32;
  Matmul product;
  product.a.format = product.b.format = product.c.format = kInt32;
  product.a.operand = 0, product.b.operand = 1, product.c.operand = 2;
  product.m = rows, product.n = columns, product.k = depth;
  product.a.m_stride = product.b.stride = product.c.m_stride = lanes;
  product.a.k_stick_stride = rows * lanes;
  product.b.stick_stride = depth * lanes;
  product.c.n_stick_stride = rows * lanes;
  ProgramBuilder builder;
  builder.matmul(product);
  const Bytes step = builder.finish();
  constexpr std::int64_t a_bytes = rows * depth * 4, b_bytes = depth * columns * 4;
  // The As follow each other behind B; each C begins one stick into its core's A.
  const auto start = [](std::int64_t core) { return b_bytes + core * 2 * a_bytes; };
  CoreProgram description;
  description.cores = cores;
  description.operands = {{0, {}}, part(0, cores, 0), {0, {}}};
  for (std::int64_t core = 0; core < cores; ++core) {
    description.operands[0].offset.push_back(start(core));
    description.operands[2].offset.push_back(start(core) + kStick);
  }
  description.nodes = {step_node(step, 0, cores)};
  ProgramBuilder whole;
  whole.cores(description);
  const Bytes program = whole.finish(), memory = memory_of(kInt32, start(cores) / 4);
  Bytes got = memory;
  const Extent extents[] = {{got.data(), got.size()}};
  first_step(program)->run(extents);

  Bytes expected = memory;
  for (std::int64_t core = 0; core < cores; ++core) {
    Bytes a = memory, b = memory, c(static_cast<std::size_t>(rows * columns * 4));
    const Extent apart[] = {
        {a.data() + start(core), 0}, {b.data(), b.size()}, {c.data(), c.size()}};
    first_step(step)->run(apart);
    std::copy(c.begin(), c.end(), expected.begin() + start(core) + kStick);
  }
  CHECK(got == expected);
}
