// What the tests of reductions, row operations, scans and sorts have in common: tensors in host
// memory, in any format and layout, and steps run on them without a card. The memory has exactly
// the bytes a step says it needs, so that a sanitizer sees every step beyond them.
#pragma once

#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "check.h"
#include "formats/convert.h"
#include "spyre/program.h"
#include "steps/steps.h"
#include "support.h"

namespace spyre::card::test {

inline constexpr DataFormat kDl16 = DataFormat::SEN169_FP16, kSingle = DataFormat::IEEE_FP32,
                            kInt32 = DataFormat::IEEE_INT32, kBool = DataFormat::BOOL;
inline constexpr double kInf = std::numeric_limits<double>::infinity();
inline constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

/// The first step of a program, decoded.
inline std::unique_ptr<const Step> first_step(std::span<const std::byte> program) {
  StepHeader head;
  std::memcpy(&head, program.data() + sizeof(ProgramHeader), sizeof head);
  return decode_step(0, head.opcode,
                     program.subspan(sizeof(ProgramHeader) + sizeof head, head.payload_words * 8));
}

template <class Description>
std::vector<std::byte> program_of(const Description& description) {
  ProgramBuilder builder;
  if constexpr (std::is_same_v<Description, Reduce>) {
    builder.reduce(description);
  } else if constexpr (std::is_same_v<Description, Rows>) {
    builder.rows(description);
  } else if constexpr (std::is_same_v<Description, Index>) {
    builder.index(description);
  } else if constexpr (std::is_same_v<Description, Sort>) {
    builder.sort(description);
  } else if constexpr (std::is_same_v<Description, Search>) {
    builder.search(description);
  } else if constexpr (std::is_same_v<Description, Pointwise>) {
    builder.pointwise(description);
  } else if constexpr (std::is_same_v<Description, Chain>) {
    builder.chain(description);
  } else {
    builder.scan(description);
  }
  return builder.finish();
}

/// Elements of a format.
struct Elements {
  DataFormat format;
  std::vector<std::byte> bytes;

  explicit Elements(DataFormat of, std::int64_t count = 0)
      : format(of), bytes(static_cast<std::size_t>(count * element_bytes(of))) {}

  double get(std::int64_t index) const {
    double value;
    convert(format, bytes.data() + index * element_bytes(format), DataFormat::IEEE_FP64, &value, 1);
    return value;
  }
  void set(std::int64_t index, double value) {
    convert(DataFormat::IEEE_FP64, &value, format, bytes.data() + index * element_bytes(format), 1);
  }
  void need(std::uint64_t end) {
    if (bytes.size() < end) bytes.resize(end);
  }
  /// What `value` is in this format.
  double rounded(double value) const {
    Elements one(format, 1);
    one.set(0, value);
    return one.get(0);
  }
};

inline void run(std::span<const std::byte> program, const std::vector<Elements*>& operands) {
  const auto step = first_step(program);
  std::vector<Extent> extents;
  for (const Step::Need& need : step->needs())
    operands.at(static_cast<std::size_t>(need.operand))->need(need.bytes);
  for (Elements* operand : operands)
    extents.push_back({operand->bytes.data(), operand->bytes.size()});
  step->run(extents);
}

/// Sizes of a tensor, outermost first, and where its elements lie.
struct Layout {
  std::vector<std::int64_t> size;
  std::int64_t stick = 0;  ///< 0: row-major. Else the last dim is cut into sticks of that many.
  bool reversed = false;   ///< row-major with the dims the other way around: a transposed view

  std::int64_t outer() const {
    std::int64_t n = 1;
    for (std::size_t d = 0; d + 1 < size.size(); ++d) n *= size[d];
    return n;
  }
  std::int64_t elements() const { return size.empty() ? 1 : outer() * size.back(); }

  /// Nests for lines and positions that advance by these strides along the dims.
  std::vector<LineLoops> loops(const std::vector<std::int64_t>& line,
                               const std::vector<std::int64_t>& position) const {
    if (stick == 0) return {dense(line, position)};
    const std::int64_t last = size.back(), full = last / stick, rest = last % stick;
    std::vector<LineLoops> all;
    if (full > 0) all.push_back(sticks(line, position, 0, full, stick));
    if (rest > 0) all.push_back(sticks(line, position, full, 1, rest));
    return all;
  }

 private:
  LineLoops dense(const std::vector<std::int64_t>& line,
                  const std::vector<std::int64_t>& position) const {
    LineLoops loop;
    std::vector<std::int64_t> stride(size.size(), 1);
    if (reversed) {
      for (std::size_t d = 1; d < size.size(); ++d) stride[d] = stride[d - 1] * size[d - 1];
    } else {
      for (std::size_t d = size.size() - 1; d-- > 0;) stride[d] = stride[d + 1] * size[d + 1];
    }
    for (std::size_t d = size.size(); d-- > 0;) {
      loop.size.push_back(size[d]);
      loop.tensor.push_back(stride[d]);
      loop.line.push_back(line[d]);
      loop.position.push_back(position[d]);
    }
    return loop;
  }

  LineLoops sticks(const std::vector<std::int64_t>& line, const std::vector<std::int64_t>& position,
                   std::int64_t first, std::int64_t count, std::int64_t lanes) const {
    LineLoops loop{{lanes}, {1}, {line.back()}, {position.back()}};
    std::int64_t stride = stick;
    for (std::size_t d = size.size() - 1; d-- > 0; stride *= size[d]) {
      loop.size.push_back(size[d]);
      loop.tensor.push_back(stride);
      loop.line.push_back(line[d]);
      loop.position.push_back(position[d]);
    }
    loop.size.push_back(count);
    loop.tensor.push_back(stride);
    loop.line.push_back(line.back() * stick);
    loop.position.push_back(position.back() * stick);
    loop.tensor_offset = first * stride;
    loop.line_offset = first * loop.line.back();
    loop.position_offset = first * loop.position.back();
    return loop;
  }
};

/// A tensor whose dims in the bit set `along` form the lines; the others count them.
struct Lines {
  std::int64_t lines = 1, length = 1;
  std::vector<LineLoops> loops;

  Lines(const Layout& layout, unsigned along) {
    std::vector<std::int64_t> line(layout.size.size()), position(layout.size.size());
    for (std::size_t d = layout.size.size(); d-- > 0;) {
      const bool in = along >> d & 1;
      (in ? position : line)[d] = in ? length : lines;
      (in ? length : lines) *= layout.size[d];
    }
    loops = layout.loops(line, position);
  }

  /// Calls body(element offset, line, position) for every element.
  void each(const std::function<void(std::int64_t, std::int64_t, std::int64_t)>& body) const {
    for (const LineLoops& loop : loops) {
      std::vector<std::int64_t> at(loop.size.size());
      bool more = true;
      for (const std::int64_t size : loop.size) more &= size > 0;
      while (more) {
        std::int64_t tensor = loop.tensor_offset, line = loop.line_offset,
                     position = loop.position_offset;
        for (std::size_t d = 0; d < at.size(); ++d) {
          tensor += at[d] * loop.tensor[d];
          line += at[d] * loop.line[d];
          position += at[d] * loop.position[d];
        }
        body(tensor, line, position);
        more = false;
        for (std::size_t d = 0; d < at.size() && !more; ++d) {
          more = ++at[d] < loop.size[d];
          if (!more) at[d] = 0;
        }
      }
    }
  }

  std::vector<std::vector<double>> values(const Elements& elements) const {
    std::vector<std::vector<double>> all(static_cast<std::size_t>(lines),
                                         std::vector<double>(static_cast<std::size_t>(length)));
    each([&](std::int64_t at, std::int64_t line, std::int64_t position) {
      all[static_cast<std::size_t>(line)][static_cast<std::size_t>(position)] = elements.get(at);
    });
    return all;
  }
  std::int64_t end() const {
    std::int64_t last = -1;
    each([&](std::int64_t at, std::int64_t, std::int64_t) { last = std::max(last, at); });
    return last + 1;
  }
};

inline std::int64_t stick_of(DataFormat format) { return format_info(format).elems_per_stick; }

/// Close to the reference: by the rounding of the format, and `slack` for the arithmetic before it.
inline bool close(double got, double wanted, DataFormat format, double slack) {
  if (wanted != wanted) return got != got;
  const Elements one(format);
  const double rounded = one.rounded(wanted);
  if (got == rounded || got == wanted) return true;
  if (std::isinf(rounded) || std::isinf(got)) return false;
  const double unit = format == DataFormat::SEN169_FP16 ? 0x1p-9 : 0x1p-23;
  return std::abs(got - wanted) <= slack + std::abs(wanted) * unit + 1e-30;
}

/// Runs this test program again, with only the tests whose name contains `test` and with the given
/// environment, and returns what it writes to its standard output. For what is read only once.
inline std::string output_with(const char* environment, const char* test) {
  char self[4096];
  const ssize_t length = ::readlink("/proc/self/exe", self, sizeof self - 1);
  if (length < 0) return "no /proc/self/exe";
  self[length] = 0;
  const std::string command = std::string(environment) + " '" + self + "' " + test;
  std::string text;
  if (FILE* pipe = ::popen(command.c_str(), "r")) {
    char buffer[256];
    while (std::fgets(buffer, sizeof buffer, pipe)) text += buffer;
    ::pclose(pipe);
  }
  return text;
}

/// The same digest with any number of threads and any vector width. `test` is the name of a test
/// that prints one if SPYRE_TEST_DIGEST is set.
inline void check_same_digests(const char* test) {
  std::string first;
  for (const char* environment :
       {"SPYRE_CARD_THREADS=1 SPYRE_CARD_SIMD=baseline", "SPYRE_CARD_THREADS=2",
        "SPYRE_CARD_THREADS=5 SPYRE_CARD_SIMD=avx2",
        "SPYRE_CARD_THREADS=3 SPYRE_CARD_SIMD=avx512"}) {
    const std::string all =
        output_with((std::string("SPYRE_TEST_DIGEST=1 ") + environment).c_str(), test);
    const std::size_t at = all.find("digest ");
    CHECK(at != std::string::npos);
    if (at == std::string::npos) return;
    const std::string digest = all.substr(at, all.find('\n', at) - at);
    if (first.empty()) first = digest;
    CHECK_EQ(digest, first);
  }
}

/// Every word of the payload replaced by awkward numbers: refused or run, never a crash. Programs
/// that would touch more than a megabyte are not run.
inline void fuzz_program(const std::vector<std::byte>& program, std::size_t operands,
                         std::uint32_t seed, int rounds) {
  std::mt19937 random(seed);
  const std::size_t words = (program.size() - sizeof(ProgramHeader)) / 8;
  const std::int64_t awkward[] = {0,
                                  1,
                                  -1,
                                  2,
                                  63,
                                  64,
                                  65,
                                  1023,
                                  1 << 20,
                                  -64,
                                  std::int64_t{1} << 37,
                                  std::int64_t{1} << 62,
                                  INT64_MIN,
                                  INT64_MAX};
  int ran = 0;
  for (int round = 0; round < rounds; ++round) {
    std::vector<std::byte> mutated = program;
    for (unsigned change = 0; change < 1 + random() % 3; ++change) {
      std::int64_t value;
      std::byte* const at =
          mutated.data() + sizeof(ProgramHeader) + 8 * (1 + random() % (words - 1));
      std::memcpy(&value, at, 8);
      if (random() % 2) {
        value = awkward[random() % std::size(awkward)];
      } else {
        value = static_cast<std::int64_t>(static_cast<std::uint64_t>(value) + random() % 7 - 3);
      }
      std::memcpy(at, &value, 8);
    }
    try {
      const auto step = first_step(mutated);
      std::vector<std::vector<std::byte>> memory(operands);
      bool small = step->cost().all_points < (1 << 18);
      for (const Step::Need& need : step->needs()) {
        if (static_cast<std::size_t>(need.operand) >= operands || need.bytes > (1 << 20)) {
          small = false;
        } else {
          auto& bytes = memory[static_cast<std::size_t>(need.operand)];
          bytes.resize(std::max<std::size_t>(bytes.size(), need.bytes));
        }
      }
      if (!small) continue;
      std::vector<Extent> extents;
      for (auto& bytes : memory) extents.push_back({bytes.data(), bytes.size()});
      step->run(extents);
      ++ran;
    } catch (const Error&) {
    }
  }
  CHECK(ran > 0);
}

/// A reduction of operand 0 to operand 1 (and 2), results packed.
inline Reduce reduction(OpFunc op, const Lines& lines, DataFormat from, DataFormat to) {
  Reduce reduce;
  reduce.op = op;
  reduce.input = {0, from, lines.loops};
  reduce.output = {1, to};
  reduce.accumulators = lines.lines;
  reduce.extent = lines.length;
  reduce.results = {{{lines.lines}, {1}, {1}, {1}}};
  if (op == OpFunc::mean) reduce.constants = {1.0 / static_cast<double>(lines.length)};
  if (op == OpFunc::var) reduce.constants = {1.0};
  if (op == OpFunc::exx2) reduce.constants = {1.0 / static_cast<double>(lines.length), 0.0};
  return reduce;
}

inline std::uint64_t digest_of(std::uint64_t digest, const Elements& elements) {
  return digest * 31 + program_checksum(elements.bytes);
}

}  // namespace spyre::card::test
