// What a matrix product reads and writes: an element of C depends on its row of A, its column of B
// and its bias.
#include <algorithm>
#include <bit>

#include "checker/check_steps.h"

namespace spyre::card {
namespace {

/// A matrix in sticks: element (row, i) lies at row * stride + (i / lanes) * stick + (i % lanes) *
/// lane.
struct Matrix {
  CheckedTensor tensor;
  std::int64_t lanes = 0, offset = 0, stride = 0, stick = 0, lane = 1;
};

/// Calls use(place, first, count) for the sticks of a row.
template <class Use>
void each_stick(const Matrix& matrix, std::int64_t from, std::int64_t row, std::int64_t length,
                Use&& use) {
  for (std::int64_t i = 0; i < length; i += matrix.lanes)
    use(from + matrix.offset + row * matrix.stride + i / matrix.lanes * matrix.stick, i,
        std::min(matrix.lanes, length - i));
}

}  // namespace

void check_matmul(CheckRules& rules, PayloadWords words, std::span<CheckedOperand> operands) {
  words.skip(1);  // op
  const auto read_matrix = [&](const char* role) {
    const std::int64_t operand = words.next();
    const DataFormat format = words.format();
    Matrix matrix;
    if (operand >= 0) matrix.tensor = checked_tensor(operands, operand, format, role);
    matrix.lanes = operand < 0 ? 1 : format_info(format).elems_per_stick;
    return matrix;
  };
  Matrix a = read_matrix("A"), b = read_matrix("B"), c = read_matrix("C");
  words.skip(1);  // narrow
  Matrix bias = read_matrix("the bias");
  words.skip(1);  // alpha
  const bool biased = std::bit_cast<double>(words.next()) != 0 && bias.tensor.operand;
  const std::int64_t m = words.next(), n = words.next(), k = words.next();
  a.offset = words.next(), a.stride = words.next(), a.stick = words.next(), a.lane = words.next();
  const bool along_n = words.next() == static_cast<std::int64_t>(Matmul::Sticks::along_n);
  b.offset = words.next(), b.stride = words.next(), b.stick = words.next();
  c.offset = words.next(), c.stride = words.next(), c.stick = words.next();
  bias.offset = words.next(), bias.stride = words.next(), bias.stick = words.next(),
  bias.lane = words.next();
  const std::int64_t batches = words.next();
  LoopNest nest(4);
  // Rows of the nest are batches, one at a time.
  nest.add(1, {0, 0, 0, 0});
  for (std::int64_t i = 0; i < batches; ++i) {
    const std::int64_t size = words.next();
    const auto strides = words.take(4);
    if (size != 1) nest.add(size, strides);
  }
  if (m == 0 || n == 0) return;

  std::vector<std::uint8_t> rows(static_cast<std::size_t>(m)), columns(static_cast<std::size_t>(n)),
      line(static_cast<std::size_t>(std::max(n, k)));
  const auto matters = [](std::uint8_t wrong) -> std::uint8_t {
    return wrong ? wrong | kMixed : 0;
  };
  // All batches are read before one is written: C may be an input.
  struct Wrong {
    std::vector<std::uint8_t> rows, columns;
  };
  std::vector<Wrong> wrong;
  const auto first_wrong = [&](const Matrix& matrix, std::int64_t place, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t at = place + i * matrix.lane;
      if (const std::uint8_t here = rules.read(matrix.tensor, at, 0, 1, nullptr))
        return rules.culprit(matrix.tensor, at, here);
    }
    return std::string();
  };
  each_row(nest, [&](const std::int64_t* at, std::int64_t) {
    std::fill(rows.begin(), rows.end(), 0);
    std::fill(columns.begin(), columns.end(), 0);
    for (std::int64_t row = 0; row < m && k > 0; ++row)
      each_stick(a, at[0], row, k, [&](std::int64_t place, std::int64_t, std::int64_t count) {
        if (a.lane == 1) rules.aligned(a.tensor, place);
        rows[static_cast<std::size_t>(row)] |=
            matters(rules.read(a.tensor, place, a.lane, count, nullptr));
      });
    for (std::int64_t row = 0; row < (along_n ? k : n) && k > 0; ++row)
      each_stick(b, at[1], row, along_n ? n : k,
                 [&](std::int64_t place, std::int64_t first, std::int64_t count) {
                   rules.aligned(b.tensor, place);
                   std::fill(line.begin(), line.begin() + count, 0);
                   const std::uint8_t any = rules.read(b.tensor, place, 1, count, line.data());
                   if (!any) return;
                   if (!along_n) columns[static_cast<std::size_t>(row)] |= matters(any);
                   for (std::int64_t i = 0; along_n && i < count; ++i)
                     columns[static_cast<std::size_t>(first + i)] |=
                         matters(line[static_cast<std::size_t>(i)]);
                 });
    wrong.push_back({rows, columns});
  });
  std::size_t batch = 0;
  each_row(nest, [&](const std::int64_t* at, std::int64_t) {
    const Wrong& mine = wrong[batch++];
    for (std::int64_t row = 0; row < m; ++row) {
      std::fill(line.begin(), line.end(), 0);
      if (biased)
        each_stick(bias, at[3], row, n,
                   [&](std::int64_t place, std::int64_t first, std::int64_t count) {
                     rules.read(bias.tensor, place, bias.lane, count, line.data() + first);
                   });
      for (std::int64_t i = 0; i < n; ++i)
        line[static_cast<std::size_t>(i)] = static_cast<std::uint8_t>(
            line[static_cast<std::size_t>(i)] | mine.rows[static_cast<std::size_t>(row)] |
            mine.columns[static_cast<std::size_t>(i)]);
      const auto origin = [&](std::int64_t column) {
        std::string text;
        each_stick(a, at[0], row, k, [&](std::int64_t place, std::int64_t, std::int64_t count) {
          if (text.empty()) text = first_wrong(a, place, count);
        });
        for (std::int64_t other = 0; other < (along_n ? k : n); ++other)
          each_stick(b, at[1], other, along_n ? n : k,
                     [&](std::int64_t place, std::int64_t first, std::int64_t count) {
                       if (!text.empty() || (!along_n && other != column)) return;
                       if (!along_n) text = first_wrong(b, place, count);
                       if (along_n && first <= column && column < first + count)
                         text = first_wrong(b, place + column - first, 1);
                     });
        return text.empty() ? std::string("something that was not written") : text;
      };
      each_stick(c, at[2], row, n, [&](std::int64_t place, std::int64_t first, std::int64_t count) {
        rules.aligned(c.tensor, place);
        rules.write(c.tensor, place, 1, count, line.data() + first,
                    [&](std::int64_t i) { return origin(first + i); });
      });
    }
  });
}

}  // namespace spyre::card
