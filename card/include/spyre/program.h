// The binary program format, version 1, as docs/program-format.md describes it: its constants, and
// a builder for those who write programs. Shared by both sides of the card ABI.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "spyre/card.h"
#include "spyre/chain.h"
#include "spyre/core_program.h"
#include "spyre/cost.h"
#include "spyre/index_ops.h"
#include "spyre/line_ops.h"
#include "spyre/matmul.h"
#include "spyre/pointwise.h"

namespace spyre::card {

static_assert(std::endian::native == std::endian::little, "programs are little endian");

inline constexpr char kProgramMagic[8] = {'S', 'P', 'Y', 'R', 'E', 'P', 'R', 'G'};
inline constexpr std::uint32_t kProgramVersion = 1;
/// Operand indices are below this.
inline constexpr std::int64_t kMaxProgramOperands = 1024;

enum class Opcode : std::uint32_t {
  move = 1,
  fill = 2,
  pointwise = 3,
  reduce = 4,
  rows = 5,
  scan = 6,
  matmul = 7,
  index = 8,
  sort = 9,
  cores = 10,
  chain = 11,
  accounts = 12,
  handover = 13
};

/// The same bytes of the scratchpads of cores 0, 1, ...
struct ScratchpadBytes {
  std::int64_t begin = 0, end = 0, cores = 0;
  bool covers(const ScratchpadBytes& other) const {
    return begin <= other.begin && other.end <= end && other.cores <= cores;
  }
};

/// What is in the scratchpads when a program begins, and what when it ends: for the program
/// launched together with it, directly before or after.
struct Handover {
  std::vector<ScratchpadBytes> found, left;
};

/// Of an account: bytes of its name, and what its numbers may be.
inline constexpr std::int64_t kMaxAccountName = 256;
inline constexpr std::int64_t kMaxAccountNumber = std::int64_t{1} << 59;

/// The numbers of an account, in the order of the format.
struct AccountField {
  const char* name;
  std::int64_t OpCost::* member;
};
inline constexpr AccountField kAccountFields[] = {
    {"points", &OpCost::points},
    {"all points", &OpCost::all_points},
    {"rows", &OpCost::rows},
    {"read bytes", &OpCost::read_bytes},
    {"written bytes", &OpCost::written_bytes},
    {"lx bytes", &OpCost::lx_bytes},
    {"all lx bytes", &OpCost::all_lx_bytes},
    {"partial sums", &OpCost::partial_sums},
    {"ring bytes", &OpCost::ring_bytes},
    {"ring link bytes", &OpCost::ring_link_bytes},
    {"ring hops", &OpCost::ring_hops},
};

struct ProgramHeader {
  char magic[8];
  std::uint32_t version, steps;
  std::uint64_t total_bytes;  ///< of the whole program, this header included
  std::uint64_t checksum;     ///< program_checksum() of everything after this header
};
static_assert(sizeof(ProgramHeader) == 32);

struct StepHeader {
  std::uint32_t opcode, payload_words;  ///< the payload is that many int64
};
static_assert(sizeof(StepHeader) == 8);

/// FNV-1a, 64 bits.
inline std::uint64_t program_checksum(std::span<const std::byte> bytes) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const std::byte byte : bytes)
    hash = (hash ^ std::to_integer<std::uint64_t>(byte)) * 0x100000001b3;
  return hash;
}

/// Appends steps, then finish() gives the program.
///
///   ProgramBuilder builder;
///   builder.move(0, 1, conversion);
///   card->load_program(builder.finish());
class ProgramBuilder {
 public:
  /// Elements of operand `src` to operand `dst`, by the formats, narrowing and loops of
  /// `conversion`; its other members say nothing to a program.
  void move(std::int64_t src, std::int64_t dst, const DataConversion& conversion) {
    begin_step(Opcode::move);
    add({src, dst, static_cast<std::int64_t>(conversion.src),
         static_cast<std::int64_t>(conversion.dst), static_cast<std::int64_t>(conversion.narrow),
         count(conversion.loops)});
    for (const StrideInfo& loop : conversion.loops) {
      add({count(loop.size), loop.offset_src, loop.offset_dst});
      for (std::size_t d = 0; d < loop.size.size(); ++d)
        add({loop.size[d], loop.stride_src.at(d), loop.stride_dst.at(d)});
    }
    end_step();
  }

  /// The element with the given bits (its low end) to every place of operand `dst` that the
  /// destination side of the loops visits.
  void fill(std::int64_t dst, DataFormat format, std::uint64_t bits,
            std::span<const StrideInfo> loops) {
    begin_step(Opcode::fill);
    add({dst, static_cast<std::int64_t>(format), static_cast<std::int64_t>(bits), count(loops)});
    for (const StrideInfo& loop : loops) {
      add({count(loop.size), loop.offset_dst});
      for (std::size_t d = 0; d < loop.size.size(); ++d) add({loop.size[d], loop.stride_dst.at(d)});
    }
    end_step();
  }

  /// A matrix product.
  void matmul(const Matmul& matmul) {
    const Matmul::Left& a = matmul.a;
    const Matmul::Right& b = matmul.b;
    const Matmul::Result& c = matmul.c;
    const Matmul::Bias& bias = matmul.bias;
    const auto word = [](auto value) { return static_cast<std::int64_t>(value); };
    begin_step(Opcode::matmul);
    add({word(matmul.op), a.operand, word(a.format), b.operand, word(b.format), c.operand,
         word(c.format), word(c.narrow), bias.operand, word(bias.format)});
    add({std::bit_cast<std::int64_t>(matmul.alpha), std::bit_cast<std::int64_t>(matmul.beta)});
    add({matmul.m, matmul.n, matmul.k});
    add({a.offset, a.m_stride, a.k_stick_stride, a.k_lane_stride});
    add({word(b.sticks), b.offset, b.stride, b.stick_stride});
    add({c.offset, c.m_stride, c.n_stick_stride});
    add({bias.offset, bias.m_stride, bias.n_stick_stride, bias.n_lane_stride});
    add({count(matmul.batch)});
    for (const Matmul::Batch& dim : matmul.batch) add({dim.size, dim.a, dim.b, dim.c, dim.bias});
    end_step();
  }

  /// A pointwise op.
  void pointwise(const Pointwise& pointwise) {
    const auto word = [](auto value) { return static_cast<std::int64_t>(value); };
    begin_step(Opcode::pointwise);
    add({word(pointwise.op), count(pointwise.inputs)});
    for (const Pointwise::Input& input : pointwise.inputs)
      add({input.operand, input.operand == Pointwise::Input::kScalar
                              ? std::bit_cast<std::int64_t>(input.value)
                              : word(input.format)});
    const Pointwise::Output& output = pointwise.output;
    add({output.operand, word(output.format), word(output.narrow), word(pointwise.compute)});
    add({count(pointwise.constants)});
    for (const double constant : pointwise.constants) add({std::bit_cast<std::int64_t>(constant)});
    add({count(pointwise.nests)});
    for (const Pointwise::Nest& nest : pointwise.nests) {
      add({count(nest.dims)});
      for (const std::int64_t offset : nest.offset) add({offset});
      for (const Pointwise::Dim& dim : nest.dims) {
        add({dim.size});
        for (const std::int64_t stride : dim.stride) add({stride});
      }
    }
    end_step();
  }

  /// Lines to one value each, or two.
  void reduce(const Reduce& reduce) {
    begin_step(Opcode::reduce);
    add({word(reduce.op), reduce.input.operand, word(reduce.input.format), reduce.output.operand,
         word(reduce.output.format), word(reduce.narrow), reduce.second.operand,
         word(reduce.second.format), word(reduce.compute)});
    add_constants(reduce.constants);
    add({reduce.accumulators, reduce.extent});
    add_lines(reduce.input.loops);
    const bool two = reduce.second.operand >= 0;
    add({count(reduce.results)});
    for (const Reduce::Loops& loop : reduce.results) {
      add({count(loop.size), loop.accumulator_offset, loop.output_offset});
      if (two) add({loop.second_offset});
      for (std::size_t d = 0; d < loop.size.size(); ++d) {
        add({loop.size[d], loop.accumulator.at(d), loop.output.at(d)});
        if (two) add({loop.second.at(d)});
      }
    }
    end_step();
  }

  /// Softmax, norms and their gradients.
  void rows(const Rows& rows) {
    begin_step(Opcode::rows);
    add({word(rows.op)});
    for (const auto* tensors : {&rows.inputs, &rows.outputs}) {
      add({count(*tensors)});
      for (const LineTensor& tensor : *tensors) add({tensor.operand, word(tensor.format)});
    }
    add_constants(rows.constants);
    add({rows.rows, rows.row_length});
    for (const auto* tensors : {&rows.inputs, &rows.outputs})
      for (const LineTensor& tensor : *tensors)
        if (tensor.operand >= 0) add_lines(tensor.loops);
    end_step();
  }

  /// Running sums, products and extremes.
  void scan(const Scan& scan) {
    begin_step(Opcode::scan);
    add({word(scan.op), scan.input.operand, word(scan.input.format), scan.output.operand,
         word(scan.output.format), word(scan.narrow), scan.indices.operand,
         word(scan.indices.format), word(scan.compute), scan.lines, scan.line_length});
    add_lines(scan.input.loops);
    add_lines(scan.output.loops);
    if (scan.indices.operand >= 0) add_lines(scan.indices.loops);
    end_step();
  }

  /// Reads or writes where integers say.
  void index(const Index& index) {
    begin_step(Opcode::index);
    add({word(index.op), index.dense.operand, word(index.dense.format), index.indexed.operand,
         word(index.indexed.format), word(index.narrow), word(index.compute), word(index.wrap)});
    add({count(index.coordinates)});
    for (const Index::Coordinates& tensor : index.coordinates) {
      add({tensor.operand, tensor.size, tensor.dimension, count(tensor.digits)});
      for (const Index::Digit& digit : tensor.digits) add({digit.divisor, digit.stride});
    }
    add({count(index.nests)});
    for (const Index::Nest& nest : index.nests) {
      add({count(nest.dims), nest.dense_offset, nest.indexed_offset});
      for (const std::int64_t offset : nest.coordinate_offset) add({offset});
      for (const Index::Dim& dim : nest.dims) {
        add({dim.size, dim.dense, dim.indexed});
        for (const std::int64_t stride : dim.coordinates) add({stride});
      }
    }
    end_step();
  }

  /// Sorted lines, the first of them, the middle, the most frequent.
  void sort(const Sort& sort) {
    begin_step(Opcode::sort);
    add({word(sort.op), sort.input.operand, word(sort.input.format), sort.values.operand,
         word(sort.values.format), word(sort.narrow), sort.indices.operand,
         word(sort.indices.format), word(sort.compute)});
    add_constants(sort.constants);
    add({sort.lines, sort.line_length});
    add_lines(sort.input.loops);
    if (sort.values.operand >= 0) add_lines(sort.values.loops);
    if (sort.indices.operand >= 0) add_lines(sort.indices.loops);
    end_step();
  }

  /// Places of queries in sorted lines.
  void search(const Search& search) {
    begin_step(Opcode::sort);
    add({word(search.op), search.sequence.operand, word(search.sequence.format),
         search.queries.operand, word(search.queries.format), search.output.operand,
         word(search.output.format), word(search.compute)});
    add_constants({search.right ? 1.0 : 0.0});
    add({search.lines, search.line_length, search.query_length});
    add_lines(search.sequence.loops);
    add_lines(search.queries.loops);
    add_lines(search.output.loops);
    end_step();
  }

  /// Pointwise ops and reductions over one set of lines.
  void chain(const Chain& chain) {
    begin_step(Opcode::chain);
    add({chain.lines, chain.length, count(chain.tensors)});
    for (const Chain::Tensor& tensor : chain.tensors) {
      add({tensor.operand, word(tensor.format), word(tensor.narrow), word(tensor.has_lines),
           word(tensor.has_positions)});
      add_lines(tensor.loops);
    }
    add({count(chain.values)});
    for (const Chain::Value& value : chain.values) {
      add({word(value.kind)});
      if (value.kind == Chain::Kind::load) {
        add({value.tensor});
        continue;
      }
      add({word(value.op)});
      if (value.kind == Chain::Kind::pointwise) {
        add({count(value.inputs)});
        for (const Chain::Input& input : value.inputs)
          add({input.value, std::bit_cast<std::int64_t>(input.scalar)});
      } else {
        add({value.inputs.at(0).value});
      }
      add_constants(value.constants);
      add({word(value.format), word(value.narrow)});
    }
    add({count(chain.stores)});
    for (const Chain::Store& store : chain.stores) add({store.value, store.tensor});
    end_step();
  }

  /// Steps that the cores run side by side.
  void cores(const CoreProgram& program) {
    begin_step(Opcode::cores);
    add({program.cores, count(program.operands)});
    for (const CoreProgram::Operand& operand : program.operands) {
      add({operand.operand});
      for (const std::int64_t offset : operand.offset) add({offset});
    }
    add_nodes(program.nodes);
    end_step();
  }

  /// What the ops cost that the program stands for; else its steps are priced as they are.
  void accounts(std::span<const Account> accounts) {
    begin_step(Opcode::accounts);
    add({count(accounts)});
    for (const Account& account : accounts) {
      const OpCost& cost = account.cost;
      add({count(account.name)});
      const std::size_t at = body_.size();
      body_.resize(at + (account.name.size() + 7) / 8);
      std::memcpy(body_.data() + at, account.name.data(), account.name.size());
      add({account.count, word(cost.unit), std::bit_cast<std::int64_t>(cost.passes),
           cost.element_bytes, cost.cores});
      for (const AccountField& field : kAccountFields) add({cost.*field.member});
    }
    end_step();
  }

  /// What the program finds in the scratchpads and what it leaves there; without it, nothing.
  void handover(const Handover& handover) {
    begin_step(Opcode::handover);
    for (const auto* ranges : {&handover.found, &handover.left}) {
      add({count(*ranges)});
      for (const ScratchpadBytes& range : *ranges) add({range.begin, range.end, range.cores});
    }
    end_step();
  }

  /// The program. The builder is as new afterwards.
  std::vector<std::byte> finish() {
    std::vector<std::byte> program(sizeof(ProgramHeader) + body_.size() * sizeof(std::int64_t));
    const auto body = std::span(program).subspan(sizeof(ProgramHeader));
    if (!body_.empty()) std::memcpy(body.data(), body_.data(), body.size());
    ProgramHeader header{{}, kProgramVersion, steps_, program.size(), program_checksum(body)};
    std::memcpy(header.magic, kProgramMagic, sizeof header.magic);
    std::memcpy(program.data(), &header, sizeof header);
    body_.clear();
    steps_ = 0;
    return program;
  }

 private:
  template <class List>
  static std::int64_t count(const List& list) {
    return static_cast<std::int64_t>(list.size());
  }

  void add(std::initializer_list<std::int64_t> words) {
    body_.insert(body_.end(), words.begin(), words.end());
  }

  template <class Value>
  static std::int64_t word(Value value) {
    return static_cast<std::int64_t>(value);
  }

  void add_constants(const std::vector<double>& constants) {
    add({count(constants)});
    for (const double constant : constants) add({std::bit_cast<std::int64_t>(constant)});
  }

  void add_lines(const std::vector<LineLoops>& loops) {
    add({count(loops)});
    for (const LineLoops& loop : loops) {
      add({count(loop.size), loop.tensor_offset, loop.line_offset, loop.position_offset});
      for (std::size_t d = 0; d < loop.size.size(); ++d)
        add({loop.size[d], loop.tensor.at(d), loop.line.at(d), loop.position.at(d)});
    }
  }

  void add_nodes(const std::vector<CoreProgram::Node>& nodes) {
    add({count(nodes)});
    for (const CoreProgram::Node& node : nodes) {
      if (node.step.empty()) {
        add({1, node.count, count(node.advances)});
        for (const CoreProgram::Advance& advance : node.advances)
          add({advance.operand, advance.bytes});
        add_nodes(node.body);
        continue;
      }
      add({0, node.first_core, node.end_core});
      const std::size_t words = (node.step.size() - sizeof(ProgramHeader)) / sizeof(std::int64_t);
      const std::size_t at = body_.size();
      body_.resize(at + words);
      std::memcpy(body_.data() + at, node.step.data() + sizeof(ProgramHeader),
                  words * sizeof(std::int64_t));
    }
  }

  void begin_step(Opcode opcode) {
    step_ = body_.size();
    body_.push_back(static_cast<std::int64_t>(opcode));  // the length follows in end_step()
    ++steps_;
  }

  void end_step() {
    const std::uint64_t words = body_.size() - step_ - 1;
    body_[step_] |= static_cast<std::int64_t>(words << 32);
  }

  std::vector<std::int64_t> body_;
  std::size_t step_ = 0;  // where the step begins that is being written
  std::uint32_t steps_ = 0;
};

}  // namespace spyre::card
