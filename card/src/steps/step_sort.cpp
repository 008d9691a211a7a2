// Sorting along lines: whole lines, the first of them in order, the middle, the most frequent.
//
// A task gathers some lines, finds positions line by line, and scatters values and positions.
#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/line_order.h"
#include "steps/line_step.h"
#include "steps/steps.h"

namespace spyre::card {
namespace {

constexpr std::int64_t kBlockElements = 256 << 10;
constexpr std::int64_t kTaskLines = 64;

class SortStep : public LineStep {
 public:
  SortStep(PayloadReader& reader, const OpInfo& op) {
    op_ = &op;
    inputs_.push_back({reader.tensor("input")});
    outputs_.push_back({reader.optional_tensor("value output")});
    narrow_ = reader.narrow("narrow");
    outputs_.push_back({reader.optional_tensor("index output")});
    const bool values = outputs_[0].present(), indices = outputs_[1].present();
    if (values && op.op == OpFunc::topkindex)
      reader.refuse("value output operand", "topkindex has no values");
    if (indices && op.op == OpFunc::topkvalue)
      reader.refuse("index output operand", "topkvalue has no indices");
    if (!values && !indices)
      reader.refuse("index output operand", "neither values nor indices are wanted");
    integer_ = reader.integers(op);
    const std::vector<double> constants = reader.constants(op);
    shape_ = read_line_shape(reader, "lines", "line length", "line", "position");
    results_ = plan(reader, constants);
    const LineShape results{shape_.lines, results_, "line", "position"};
    inputs_[0].read_view(reader, "input", shape_);
    outputs_[0].read_view(reader, "value output", results);
    outputs_[1].read_view(reader, "index output", results);
    reader.finish();
    inputs_[0].view->check_visits(reader, "input", shape_);
  }

  const char* name() const override { return "sort"; }

  void run(std::span<const Extent> operands) const override {
    if (shape_.lines == 0 || results_ == 0) return;
    const Memory memory = this->memory(operands);
    const std::int64_t share = block_elements(shape_.lines * shape_.length, kBlockElements);
    // Where elements are written more than once, the last line stays, whatever the tasks are.
    const std::int64_t together =
        memory.in_order ? 1 : std::clamp<std::int64_t>(share / shape_.length, 1, kTaskLines);
    const std::int64_t tasks = (shape_.lines + together - 1) / together;
    run_tasks(tasks, memory.in_order, [&](std::int64_t index) {
      const std::int64_t line = index * together, lines = std::min(together, shape_.lines - line);
      integer_ ? sort_lines<std::int64_t>(line, lines, memory)
               : sort_lines<float>(line, lines, memory);
    });
  }

 private:
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
  void sort_lines(std::int64_t line, std::int64_t lines, const Memory& memory) const {
    const LineView& input = *inputs_[0].view;
    const auto &values = outputs_[0].view, &indices = outputs_[1].view;
    const std::int64_t length = shape_.length;
    const Scratch<T> block(ScratchSlot::block, lines * length);
    const Scratch<std::byte> work(ScratchSlot::work, order_scratch_bytes(length));
    const Scratch<std::int64_t> found(ScratchSlot::results, lines * results_);
    const Scratch<T> picked(ScratchSlot::partials, values ? lines * results_ : 0);
    if (!input.complete()) std::fill_n(block.data(), lines * length, T{0});
    input.gather(memory.inputs[0], {line, lines, 0, length, length, 1}, block.data());
    for (std::int64_t i = 0; i < lines; ++i) {
      const T* const from = block.data() + i * length;
      std::int64_t* const positions = found.data() + i * results_;
      order_line(from, length, wanted_, work.data(), positions);
      if (!values) continue;
      for (std::int64_t r = 0; r < results_; ++r) {
        const T value = from[positions[r]];
        T& to = picked.data()[i * results_ + r];
        to = value == value ? value : std::numeric_limits<T>::quiet_NaN();
      }
    }
    const LineWindow window{line, lines, 0, results_, results_, 1};
    if (values) values->scatter(picked.data(), window, memory.outputs[0], narrow_);
    if (indices) indices->scatter(found.data(), window, memory.outputs[1]);
  }

  Narrow narrow_;
  bool integer_;
  OrderWanted wanted_;
  std::int64_t results_;  // of a line
};

}  // namespace

std::unique_ptr<const Step> decode_sort(PayloadReader& reader) {
  const OpInfo& op = reader.op(OpKind::sort, "is not a sort");
  if (op.op == OpFunc::searchsorted) return decode_search(reader, op);
  return std::make_unique<const SortStep>(reader, op);
}

}  // namespace spyre::card
