// What steps read and write whose places integers in device memory say.
#include <algorithm>
#include <cstring>
#include <utility>

#include "checker/check_steps.h"
#include "spyre/ops.h"

namespace spyre::card {
namespace {

struct Coordinates {
  CheckedTensor tensor;
  std::int64_t size;
  std::vector<std::pair<std::int64_t, std::int64_t>> digits;  // divisor, stride
};

/// What one iteration moves.
struct Visit {
  std::int64_t dense, indexed;
  std::uint8_t wrong;
};

std::int32_t value_at(const CheckedTensor& tensor, std::int64_t place) {
  std::int32_t value;
  std::memcpy(&value, tensor.operand->data + place * tensor.width, sizeof value);
  return value;
}

}  // namespace

bool check_index(CheckRules& rules, PayloadWords words, std::span<CheckedOperand> operands) {
  const auto op = static_cast<OpFunc>(words.next());
  const bool gathers = op == OpFunc::gather || op == OpFunc::indexselect || op == OpFunc::embedding;
  const bool combines = !gathers && op != OpFunc::scatter && op != OpFunc::indexput;
  const std::int64_t dense_operand = words.next();
  const CheckedTensor dense =
      checked_tensor(operands, dense_operand, words.format(), "the dense tensor");
  const std::int64_t indexed_operand = words.next();
  const CheckedTensor indexed =
      checked_tensor(operands, indexed_operand, words.format(), "the indexed tensor");
  words.skip(2);  // narrow, compute type
  const bool wraps = words.next() == 1;
  std::vector<Coordinates> coordinates(static_cast<std::size_t>(words.next()));
  std::int64_t reach = 0;  // of coordinates, in elements
  for (std::size_t j = 0; j < coordinates.size(); ++j) {
    Coordinates& each = coordinates[j];
    each.tensor = checked_tensor(operands, words.next(), DataFormat::IEEE_INT32,
                                 "index tensor " + std::to_string(j));
    each.size = words.next();
    words.skip(1);  // dimension
    std::int64_t highest = each.size > 0 ? each.size - 1 : 0;
    for (std::int64_t digits = words.next(); digits > 0; --digits) {
      const std::int64_t divisor = words.next();
      each.digits.emplace_back(divisor, words.next());
      reach += highest / divisor * each.digits.back().second;
      highest = std::min(highest, divisor - 1);
    }
  }
  const std::vector<LoopNest> nests = words.nests(2 + coordinates.size());
  const CheckedTensor& written = gathers ? dense : indexed;
  const CheckedTensor& read = gathers ? indexed : dense;

  std::vector<Visit> visits;
  bool known = true, good = true;
  std::int64_t low = INT64_MAX, high = -1;  // of what could be indexed
  const auto visit = [&](const LoopNest& nest, const std::int64_t* at, std::int64_t i) {
    const auto place = [&](std::size_t k) { return at[k] + i * stride_in_row(nest, k); };
    Visit each{place(0), place(1), 0};
    low = std::min(low, each.indexed);
    high = std::max(high, each.indexed + reach);
    for (std::size_t j = 0; j < coordinates.size(); ++j) {
      const Coordinates& tensor = coordinates[j];
      const std::int64_t from = place(2 + j);
      // Written by the same core before: not there yet.
      if (rules.written_by_step(tensor.tensor, from)) known = false;
      if (const std::uint8_t wrong = rules.read(tensor.tensor, from, 0, 1, nullptr))
        rules.complain("a place in " + indexed.role + " is given by " +
                       rules.culprit(tensor.tensor, from, wrong));
      std::int64_t value = value_at(tensor.tensor, from);
      if (wraps && value < 0) value += tensor.size;
      if (value < 0 || value >= tensor.size) good = false;
      for (const auto& [divisor, stride] : tensor.digits) {
        each.indexed += value / divisor * stride;
        value %= divisor;
      }
    }
    if (!known || !good) return;
    rules.read(read, gathers ? each.indexed : each.dense, 0, 1, &each.wrong);
    if (combines) rules.read(indexed, each.indexed, 0, 1, &each.wrong);
    visits.push_back(each);
  };
  for (const LoopNest& nest : nests)
    each_row(nest, [&](const std::int64_t* at, std::int64_t count) {
      for (std::int64_t i = 0; i < count; ++i) visit(nest, at, i);
    });
  if (!known) {
    const std::int64_t room = static_cast<std::int64_t>(written.operand->bytes) / written.width;
    if (!gathers) {
      if (high >= low) rules.may_write(written, low, std::min(high + 1, room) - low);
      return true;
    }
    for (const LoopNest& nest : nests)
      each_row(nest, [&](const std::int64_t* at, std::int64_t count) {
        rules.write(dense, at[0], stride_in_row(nest, 0), count, nullptr, {});
      });
    return true;
  }
  if (!good) return false;
  for (const Visit& each : visits) {
    const auto origin = [&](std::int64_t) {
      const std::int64_t place = gathers ? each.indexed : each.dense;
      return rules.culprit(read, place, each.wrong);
    };
    rules.write(written, gathers ? each.dense : each.indexed, 0, 1, &each.wrong, origin);
  }
  return true;
}

}  // namespace spyre::card
