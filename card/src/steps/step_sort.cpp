// Sorting along lines: whole lines, the first of them in order, the middle, the most frequent.
//
// A task gathers some lines, finds positions line by line, and scatters values and positions.
#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "host/thread_pool.h"
#include "kernels/line_order.h"
#include "nests/lines.h"
#include "spyre/ops.h"
#include "spyre/program.h"
#include "steps/steps.h"

namespace spyre::card {
namespace {

constexpr std::int64_t kBlockElements = 256 << 10;
constexpr std::int64_t kTaskLines = 64;

class SortStep : public Step {
 public:
  SortStep(PayloadReader& reader, const OpInfo& op) : op_(&op) {
    input_operand_ = reader.operand("input operand");
    const DataFormat input_format = reader.format("input format");
    const auto optional_format = [&](std::int64_t operand, const char* field) {
      if (operand >= 0) return reader.format(field);
      reader.word(field);
      return DataFormat::INVALID;
    };
    value_operand_ = reader.within("value output operand", -1, kMaxProgramOperands - 1);
    const DataFormat value_format = optional_format(value_operand_, "value output format");
    narrow_ = reader.narrow("narrow");
    index_operand_ = reader.within("index output operand", -1, kMaxProgramOperands - 1);
    const DataFormat index_format = optional_format(index_operand_, "index output format");
    if (value_operand_ >= 0 && op_->op == OpFunc::topkindex)
      reader.refuse("value output operand", "topkindex has no values");
    if (index_operand_ >= 0 && op_->op == OpFunc::topkvalue)
      reader.refuse("index output operand", "topkvalue has no indices");
    if (value_operand_ < 0 && index_operand_ < 0)
      reader.refuse("index output operand", "neither values nor indices are wanted");
    integer_ = reader.within("compute type", 0, 1) == 1;
    if (integer_ ? !op_->int64 : !op_->fp32)
      reader.refuse("compute type", std::string(op_->name) + " does not compute in " +
                                        (integer_ ? "int64" : "fp32"));
    const std::vector<double> constants = read_constants(reader);
    shape_ = read_line_shape(reader, "lines", "line length", "line", "position");
    results_ = plan(reader, constants);
    const LineShape results{shape_.lines, results_, "line", "position"};
    input_.emplace(reader, "input", input_format, shape_);
    if (value_operand_ >= 0) values_.emplace(reader, "value output", value_format, results);
    if (index_operand_ >= 0) indices_.emplace(reader, "index output", index_format, results);
    reader.finish();
    input_->check_visits(reader, "input", shape_);
  }

  const char* name() const override { return "sort"; }

  std::vector<Need> needs() const override {
    std::vector<Need> needs{{input_operand_, input_->range().end}};
    if (values_) needs.push_back({value_operand_, values_->range().end});
    if (indices_) needs.push_back({index_operand_, indices_->range().end});
    return needs;
  }

  Traffic traffic() const override {
    return {input_->read().read, (values_ ? values_->written().written : 0) +
                                     (indices_ ? indices_->written().written : 0)};
  }
  OpCost cost() const override {
    return shared_cost(traffic(), input_->visits(), input_->format(), sfp_passes(*op_));
  }

  void run(std::span<const Extent> operands) const override {
    if (shape_.lines == 0 || results_ == 0) return;
    integer_ ? sort<std::int64_t>(operands) : sort<float>(operands);
  }

 private:
  std::vector<double> read_constants(PayloadReader& reader) const {
    const std::int64_t count = reader.count("constants");
    if (count != op_->constants)
      reader.refuse("constants", std::string(op_->name) + " takes " +
                                     std::to_string(op_->constants) + ", not " +
                                     std::to_string(count));
    std::vector<double> constants;
    for (std::int64_t i = 0; i < count; ++i) constants.push_back(reader.real("constant"));
    return constants;
  }

  /// What is wanted of each line; returns how many results it has.
  std::int64_t plan(const PayloadReader& reader, const std::vector<double>& constants) {
    using What = OrderWanted::What;
    const auto number = [&](std::int64_t lowest) {
      const double k = constants[0];
      if (!(k >= static_cast<double>(lowest) && k <= static_cast<double>(shape_.length)) ||
          std::trunc(k) != k)
        reader.refuse("k", std::to_string(k) + " is not a whole number in " +
                               std::to_string(lowest) + ".." + std::to_string(shape_.length));
      return static_cast<std::int64_t>(k);
    };
    switch (op_->op) {
      case OpFunc::sort:
        wanted_ = {What::first, shape_.length, constants[0] != 0};
        return shape_.length;
      case OpFunc::topk:
        wanted_ = {What::first, number(0), constants[1] != 0};
        return wanted_.count;
      case OpFunc::topkvalue:
      case OpFunc::topkindex:
        wanted_ = {What::first, number(0), true};
        return wanted_.count;
      case OpFunc::kthvalue:
        wanted_ = {What::at, number(1) - 1};
        return 1;
      case OpFunc::median:
        wanted_ = {What::median};
        break;
      case OpFunc::nanmedian:
        wanted_ = {What::nanmedian};
        break;
      default:
        wanted_ = {What::mode};
    }
    if (shape_.length == 0)
      reader.refuse("line length", std::string(op_->name) + " needs an element");
    return 1;
  }

  template <typename T>
  void sort(std::span<const Extent> operands) const {
    const auto data = [&](std::int64_t operand) {
      return operands[static_cast<std::size_t>(operand)].data;
    };
    const std::byte* input = data(input_operand_);
    std::byte* const values = values_ ? data(value_operand_) : nullptr;
    std::byte* const indices = indices_ ? data(index_operand_) : nullptr;
    std::vector<std::byte> copy;
    if ((values_ && disturbs(input, *input_, values, *values_)) ||
        (indices_ && disturbs(input, *input_, indices, *indices_))) {
      copy.assign(input, input + input_->range().end);
      input = copy.data();
    }
    const std::int64_t share = block_elements(shape_.lines * shape_.length, kBlockElements);
    const std::int64_t lines = std::clamp<std::int64_t>(share / shape_.length, 1, kTaskLines);
    const auto task = [&](std::int64_t index) {
      sort_lines<T>(index * lines, std::min(lines, shape_.lines - index * lines), input, values,
                    indices);
    };
    const std::int64_t tasks = (shape_.lines + lines - 1) / lines;
    const bool apart = !values_ || !indices_ || !overlap(values, *values_, indices, *indices_);
    if (apart && (!values_ || values_->distinct()) && (!indices_ || indices_->distinct())) {
      ThreadPool::shared().parallel_for(tasks, task);
    } else {
      // Where elements are written more than once, the last line stays, whatever the tasks are.
      for (std::int64_t line = 0; line < shape_.lines; ++line)
        sort_lines<T>(line, 1, input, values, indices);
    }
  }

  template <typename T>
  void sort_lines(std::int64_t line, std::int64_t lines, const std::byte* input, std::byte* values,
                  std::byte* indices) const {
    const std::int64_t length = shape_.length;
    const Scratch<T> block(ScratchSlot::block, lines * length);
    const Scratch<std::byte> work(ScratchSlot::work, order_scratch_bytes(length));
    const Scratch<std::int64_t> found(ScratchSlot::results, lines * results_);
    const Scratch<T> picked(ScratchSlot::partials, values_ ? lines * results_ : 0);
    if (!input_->complete()) std::fill_n(block.data(), lines * length, T{0});
    input_->gather(input, {line, lines, 0, length, length, 1}, block.data());
    for (std::int64_t i = 0; i < lines; ++i) {
      const T* const from = block.data() + i * length;
      std::int64_t* const positions = found.data() + i * results_;
      order_line(from, length, wanted_, work.data(), positions);
      if (!values_) continue;
      for (std::int64_t r = 0; r < results_; ++r) {
        const T value = from[positions[r]];
        T& to = picked.data()[i * results_ + r];
        to = value == value ? value : std::numeric_limits<T>::quiet_NaN();
      }
    }
    const LineWindow window{line, lines, 0, results_, results_, 1};
    if (values_) values_->scatter(picked.data(), window, values, narrow_);
    if (indices_) indices_->scatter(found.data(), window, indices);
  }

  const OpInfo* op_;
  std::int64_t input_operand_, value_operand_, index_operand_;
  Narrow narrow_;
  bool integer_;
  LineShape shape_;
  OrderWanted wanted_;
  std::int64_t results_;  // of a line
  std::optional<LineView> input_, values_, indices_;
};

}  // namespace

std::unique_ptr<const Step> decode_sort(PayloadReader& reader) {
  const std::int64_t id = reader.word("op");
  const OpInfo* const op = id < 0 ? nullptr : find_op(static_cast<std::uint64_t>(id));
  if (!op || op->kind != OpKind::sort)
    reader.refuse(
        "op", op ? std::string(op->name) + " is not a sort" : std::to_string(id) + " is unknown");
  if (op->op == OpFunc::searchsorted) return decode_search(reader, *op);
  return std::make_unique<const SortStep>(reader, *op);
}

}  // namespace spyre::card
