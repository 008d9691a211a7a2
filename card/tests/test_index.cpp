// Index steps, against a reference that walks the description element by element.
#include <algorithm>

#include "line_support.h"

using namespace spyre::card;
using namespace spyre::card::test;
using spyre::DataFormat;
using spyre::OpFunc;

namespace {

const OpFunc kGathers[] = {OpFunc::gather, OpFunc::indexselect, OpFunc::embedding};
const OpFunc kScatters[] = {OpFunc::scatter,     OpFunc::indexput,   OpFunc::scatteradd,
                            OpFunc::indexputadd, OpFunc::scattermul, OpFunc::scattermin,
                            OpFunc::scattermax};

bool gathers(OpFunc op) {
  return std::find(std::begin(kGathers), std::end(kGathers), op) != std::end(kGathers);
}

double combined(OpFunc op, double old, double value) {
  switch (op) {
    case OpFunc::scatteradd:
    case OpFunc::indexputadd:
      return old + value;
    case OpFunc::scattermul:
      return old * value;
    case OpFunc::scattermin:
      return std::min(old, value);
    case OpFunc::scattermax:
      return std::max(old, value);
    default:
      return value;
  }
}

/// Operands: dense, indexed, index tensors. Element by element, in the order of the loops.
void reference(const Index& index, std::vector<Elements*> operands) {
  Elements &dense = *operands[0], &indexed = *operands[1];
  for (const Index::Nest& nest : index.nests) {
    std::vector<std::int64_t> at(nest.dims.size());
    for (bool more = true; more;) {
      std::int64_t from = nest.dense_offset, to = nest.indexed_offset;
      for (std::size_t d = 0; d < at.size(); ++d) {
        from += at[d] * nest.dims[d].dense;
        to += at[d] * nest.dims[d].indexed;
      }
      for (std::size_t j = 0; j < index.coordinates.size(); ++j) {
        std::int64_t place = nest.coordinate_offset[j];
        for (std::size_t d = 0; d < at.size(); ++d) place += at[d] * nest.dims[d].coordinates[j];
        auto value = static_cast<std::int64_t>(operands[2 + j]->get(place));
        if (value < 0) value += index.coordinates[j].size;
        for (const Index::Digit& digit : index.coordinates[j].digits) {
          to += value / digit.divisor * digit.stride;
          value %= digit.divisor;
        }
      }
      if (gathers(index.op)) {
        dense.set(from, indexed.get(to));
      } else {
        indexed.set(to, combined(index.op, indexed.get(to), dense.get(from)));
      }
      more = false;
      for (std::size_t d = 0; d < at.size() && !more; ++d) {
        more = ++at[d] < nest.dims[d].size;
        if (!more) at[d] = 0;
      }
    }
  }
}

/// Rows of a stick matrix (rows x sticks of 64) by one index vector.
Index rows(OpFunc op, std::int64_t table, std::int64_t picked, std::int64_t sticks,
           DataFormat format) {
  Index index;
  index.op = op;
  index.dense = {0, format};
  index.indexed = {1, format};
  index.wrap = true;
  if (format == kInt32) index.compute = Compute::int64;
  const std::int64_t stick = stick_of(format);
  index.coordinates = {{2, table, 0, {{1, stick}}}};
  index.nests = {{0,
                  0,
                  {0},
                  {{stick, 1, 1, {0}},
                   {sticks, picked * stick, table * stick, {0}},
                   {picked, stick, 0, {1}}}}};
  return index;
}

/// Elements of the stick dimension of a matrix with `size` columns, an index for each.
Index columns(OpFunc op, std::int64_t count, std::int64_t lines, std::int64_t size,
              DataFormat format) {
  Index index = rows(op, size, 1, 1, format);
  const std::int64_t stick = stick_of(format);
  index.coordinates = {{2, size, 1, {{stick, lines * stick}, {1, 1}}}};
  index.nests = {{0, 0, {0}, {{count, 1, 0, {1}}, {lines, count, stick, {count}}}}};
  return index;
}

/// Two index vectors, for rows and columns.
Index pairs(OpFunc op, std::int64_t count, std::int64_t lines, std::int64_t size,
            DataFormat format) {
  Index index = columns(op, count, lines, size, format);
  index.coordinates.push_back({3, lines, 0, {{1, stick_of(format)}}});
  index.nests = {{0, 0, {0, 0}, {{count, 1, 0, {1, 1}}}}};
  return index;
}

std::vector<Index> examples(OpFunc op, DataFormat format) {
  return {rows(op, 10, 7, 3, format),      rows(op, 300, 500, 5, format),
          rows(op, 1, 4, 1, format),       columns(op, 200, 9, 130, format),
          columns(op, 3000, 1, 5, format), pairs(op, 5000, 40, 100, format)};
}

struct Memory {
  Elements dense, indexed, first{kInt32}, second{kInt32};

  Memory(const Index& index, std::mt19937& random)
      : dense(index.dense.format), indexed(index.indexed.format) {
    for (const Step::Need& need : first_step(program_of(index))->needs())
      all()[static_cast<std::size_t>(need.operand)]->need(need.bytes);
    for (Elements* tensor : {&dense, &indexed})
      for (std::int64_t i = 0; i < count(*tensor); ++i)
        tensor->set(i, static_cast<double>(random() % 7) - 3);
    for (std::size_t j = 0; j < index.coordinates.size(); ++j) {
      Elements& coordinates = j ? second : first;
      const std::int64_t size = index.coordinates[j].size;
      for (std::int64_t i = 0; i < count(coordinates); ++i)
        coordinates.set(
            i, static_cast<double>(static_cast<std::int64_t>(random() % (2 * size)) - size));
    }
  }
  std::vector<Elements*> all() { return {&dense, &indexed, &first, &second}; }
  static std::int64_t count(const Elements& tensor) {
    return static_cast<std::int64_t>(tensor.bytes.size()) / element_bytes(tensor.format);
  }
};

}  // namespace

TEST(every_op_on_rows_columns_and_pairs) {
  std::mt19937 random(1);
  std::vector<OpFunc> ops(std::begin(kGathers), std::end(kGathers));
  ops.insert(ops.end(), std::begin(kScatters), std::end(kScatters));
  for (const DataFormat format : {kDl16, kSingle, kInt32, DataFormat::SENINT8})
    for (const OpFunc op : ops) {
      // Long products and 8-bit sums leave what the reference holds exactly.
      if (op == OpFunc::scattermul && format != kSingle) continue;
      if (format == DataFormat::SENINT8 && !gathers(op) && op != OpFunc::scatter) continue;
      for (const Index& index : examples(op, format)) {
        if (op == OpFunc::scattermul && index.nests[0].dims[0].size > 1000) continue;
        Memory memory(index, random);
        Memory wanted = memory;
        reference(index, wanted.all());
        run(program_of(index), memory.all());
        CHECK(memory.dense.bytes == wanted.dense.bytes);
        CHECK(memory.indexed.bytes == wanted.indexed.bytes);
      }
    }
}

TEST(sums_may_be_of_another_format) {
  std::mt19937 random(2);
  Index index = rows(OpFunc::scatteradd, 4, 100, 2, kSingle);
  index.dense.format = kDl16;
  Memory memory(index, random);
  Memory wanted = memory;
  reference(index, wanted.all());
  run(program_of(index), memory.all());
  CHECK(memory.indexed.bytes == wanted.indexed.bytes);
}

TEST(results_are_narrowed) {
  Index index = columns(OpFunc::scatteradd, 3, 1, 1, kInt32);
  index.narrow = Narrow::uint8;
  Elements dense(kInt32, 3), indexed(DataFormat::SENUINT32, 32), where(kInt32, 3);
  index.indexed.format = DataFormat::SENUINT32;
  for (int i = 0; i < 3; ++i) dense.set(i, 100);
  run(program_of(index), {&dense, &indexed, &where});
  CHECK_EQ(indexed.get(0), 300 % 256);
}

TEST(a_bad_index_is_named_and_nothing_is_written) {
  std::mt19937 random(3);
  for (const OpFunc op : {OpFunc::gather, OpFunc::scatter, OpFunc::scatteradd}) {
    const Index index = pairs(op, 5000, 40, 100, kDl16);
    for (const double bad : {100.0, -101.0, 2147483647.0, -2147483648.0}) {
      Memory memory(index, random);
      const Memory before = memory;
      memory.first.set(4321, bad);
      memory.first.set(4999, 77777);
      const std::string message = std::string(op_info(op).name) + ": index " +
                                  std::to_string(static_cast<std::int64_t>(bad)) +
                                  " is out of bounds for dimension 1 with size 100";
      CHECK_THROWS(run(program_of(index), memory.all()), message.c_str());
      CHECK(memory.dense.bytes == before.dense.bytes);
      CHECK(memory.indexed.bytes == before.indexed.bytes);
    }
  }
  Index index = columns(OpFunc::gather, 5, 1, 5, kDl16);
  index.wrap = false;
  Memory memory(index, random);
  for (int i = 0; i < 5; ++i) memory.first.set(i, i == 3 ? -1 : 0);
  CHECK_THROWS(run(program_of(index), memory.all()), "index -1 is out of bounds");
  index.coordinates[0].size = 0;
  CHECK_THROWS(run(program_of(index), memory.all()), "with size 0");
}

TEST(what_is_overwritten_is_read_before) {
  // x[x] = x and y = x[x] in place of x.
  for (const OpFunc op : {OpFunc::gather, OpFunc::scatter}) {
    Index index = columns(op, 4, 1, 4, kInt32);
    index.coordinates[0].operand = index.dense.operand = index.indexed.operand = 0;
    Elements x(kInt32, 4);
    const double values[] = {2, 0, 1, 3};
    for (int i = 0; i < 4; ++i) x.set(i, values[i]);
    run(program_of(index), {&x});
    const double read[] = {1, 2, 0, 3}, written[] = {0, 1, 2, 3};
    for (int i = 0; i < 4; ++i) CHECK_EQ(x.get(i), op == OpFunc::gather ? read[i] : written[i]);
  }
}

TEST(nothing_to_do) {
  Index index = rows(OpFunc::gather, 10, 0, 3, kDl16);
  Elements dense(kDl16), indexed(kDl16), where(kInt32);
  run(program_of(index), {&dense, &indexed, &where});
  CHECK(dense.bytes.empty());
  CHECK(indexed.bytes.empty());
}

TEST(digest_of_indexing) {
  std::mt19937 random(4);
  std::uint64_t digest = 0;
  for (const OpFunc op : {OpFunc::gather, OpFunc::scatter, OpFunc::scatteradd, OpFunc::scattermul})
    for (const DataFormat format : {kDl16, kSingle})
      for (Index index : {rows(op, 50, 3000, 20, format), columns(op, 3000, 40, 130, format),
                          pairs(op, 100000, 40, 130, format)}) {
        Memory memory(index, random);
        for (std::int64_t i = 0; i < Memory::count(memory.dense); ++i)
          memory.dense.set(i, 0.9 + static_cast<double>(random() % 256) / 1024);
        run(program_of(index), memory.all());
        digest = digest_of(digest_of(digest, memory.dense), memory.indexed);
      }
  if (std::getenv("SPYRE_TEST_DIGEST")) std::printf("digest %llu\n", (unsigned long long)digest);
}

TEST(threads_and_vector_width_change_no_bit) { check_same_digests("digest_of_indexing"); }

TEST(malformed_index_steps_are_refused_by_naming_the_field) {
  const auto refused = [](const char* message, auto change) {
    Index index = rows(OpFunc::scatteradd, 10, 7, 3, kDl16);
    change(index);
    CHECK_THROWS(first_step(program_of(index)), message);
  };
  constexpr std::int64_t kFar = std::int64_t{1} << 36;
  refused("op: sum does not index", [](Index& i) { i.op = OpFunc::sum; });
  refused("op: 9999 is unknown", [](Index& i) { i.op = static_cast<OpFunc>(9999); });
  refused("dense operand: -1", [](Index& i) { i.dense.operand = -1; });
  refused("is not a format of device memory",
          [](Index& i) { i.dense.format = DataFormat::INVALID; });
  refused("indexed operand: 1024", [](Index& i) { i.indexed.operand = 1024; });
  refused("dense format: gather does not convert", [](Index& i) {
    i.op = OpFunc::gather;
    i.dense.format = kSingle;
  });
  refused("narrow: 7", [](Index& i) { i.narrow = static_cast<Narrow>(7); });
  refused("compute type: 3", [](Index& i) { i.compute = static_cast<Compute>(3); });
  refused("index operand: -2", [](Index& i) { i.coordinates[0].operand = -2; });
  refused("index size: -1", [](Index& i) { i.coordinates[0].size = -1; });
  refused("divisor: 0", [](Index& i) { i.coordinates[0].digits[0].divisor = 0; });
  refused("digit stride: -64", [](Index& i) { i.coordinates[0].digits[0].stride = -64; });
  refused("digit stride: reaches beyond",
          [](Index& i) { i.coordinates[0].digits[0].stride = kFar; });
  refused("loop 0, dense: element -1 lies before", [](Index& i) { i.nests[0].dense_offset = -1; });
  refused("loop 0, indexed: element -1 lies before",
          [](Index& i) { i.nests[0].indexed_offset = -1; });
  refused("loop 0, index: element -1 lies before",
          [](Index& i) { i.nests[0].coordinate_offset[0] = -1; });
  refused("loop 0, size: -3", [](Index& i) { i.nests[0].dims[0].size = -3; });
}

TEST(mutated_index_steps_never_crash) {
  fuzz_program(program_of(rows(OpFunc::gather, 10, 7, 3, kDl16)), 4, 1, 4000);
  fuzz_program(program_of(columns(OpFunc::scatteradd, 20, 3, 70, kDl16)), 4, 2, 4000);
  fuzz_program(program_of(pairs(OpFunc::scatter, 20, 3, 70, kSingle)), 4, 3, 4000);
}
