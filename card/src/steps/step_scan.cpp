// Scans: running sums, products, extremes along lines.
//
// A task takes some lines and goes along them block by block; all its lines at once.
#include <algorithm>

#include "kernels/pointwise.h"
#include "steps/line_step.h"
#include "steps/steps.h"

namespace spyre::card {
namespace {

constexpr std::int64_t kBlockElements = 16 << 10;
constexpr std::int64_t kTaskLines = 64;

class ScanStep : public LineStep {
 public:
  explicit ScanStep(PayloadReader& reader) {
    op_ = &reader.op(OpKind::scan, "is not a scan");
    inputs_.push_back({reader.tensor("input")});
    outputs_.push_back({reader.tensor("output")});
    narrow_ = reader.narrow("narrow");
    outputs_.push_back({reader.optional_tensor("index output")});
    const bool extremes = op_->op == OpFunc::cummax || op_->op == OpFunc::cummin;
    if (outputs_[1].present() && !extremes)
      reader.refuse("index output operand", std::string(op_->name) + " has no indices");
    integer_ = reader.integers(*op_);
    shape_ = read_line_shape(reader, "lines", "line length", "line", "position");
    inputs_[0].read_view(reader, "input", shape_);
    outputs_[0].read_view(reader, "output", shape_);
    outputs_[1].read_view(reader, "index output", shape_);
    reader.finish();
    inputs_[0].view->check_visits(reader, "input", shape_);
  }

  const char* name() const override { return "scan"; }

  void run(std::span<const Extent> operands) const override {
    const Memory memory = this->memory(operands);
    run_tasks((shape_.lines + kTaskLines - 1) / kTaskLines, memory.in_order,
              [&](std::int64_t task) {
                integer_ ? scan_lines<std::int64_t>(task, memory) : scan_lines<float>(task, memory);
              });
  }

 private:
  template <typename T>
  typename ScanKernels<T>::Run kernel() const {
    const ScanKernels<T>* kernels;
    if constexpr (std::is_same_v<T, float>) {
      kernels = &line_kernels().float_scans;
    } else {
      kernels = &line_kernels().integer_scans;
    }
    switch (op_->op) {
      case OpFunc::cumsum:
        return kernels->cumsum;
      case OpFunc::cumprod:
        return kernels->cumprod;
      case OpFunc::cummax:
        return kernels->cummax;
      case OpFunc::cummin:
        return kernels->cummin;
      default:
        return kernels->logcumsumexp;
    }
  }

  template <typename T>
  void scan_lines(std::int64_t task, const Memory& memory) const {
    const LineView &input = *inputs_[0].view, &output = *outputs_[0].view;
    const auto& indices = outputs_[1].view;
    const std::int64_t line = task * kTaskLines;
    const std::int64_t lines = std::min(kTaskLines, shape_.lines - line);
    const std::int64_t step = std::clamp<std::int64_t>(kBlockElements / lines, 1,
                                                       std::max<std::int64_t>(1, shape_.length));
    const Scratch<T> block(ScratchSlot::block, step * lines);
    const Scratch<std::int64_t> found(ScratchSlot::work, indices ? step * lines : 0);
    double sums[kTaskLines];
    T values[kTaskLines];
    std::int64_t last[kTaskLines] = {};
    const bool product = op_->op == OpFunc::cumprod;
    std::fill_n(sums, kTaskLines, product ? 1.0 : 0.0);
    std::fill_n(values, kTaskLines, product ? T{1} : T{0});
    const typename ScanKernels<T>::Run run = kernel<T>();
    for (std::int64_t position = 0; position < shape_.length; position += step) {
      const std::int64_t length = std::min(step, shape_.length - position);
      const LineWindow window{line, lines, position, length, 1, lines};
      if (!input.complete()) std::fill_n(block.data(), length * lines, T{0});
      input.gather(memory.inputs[0], window, block.data());
      run(block.data(), indices ? found.data() : nullptr, {lines, length, lines, true}, position,
          {sums, values, last});
      if constexpr (std::is_same_v<T, float>)
        pointwise_kernels_here().quiet_fp32(block.data(), static_cast<std::size_t>(length * lines));
      output.scatter(block.data(), window, memory.outputs[0], narrow_);
      if (indices) indices->scatter(found.data(), window, memory.outputs[1]);
    }
  }

  Narrow narrow_;
  bool integer_;
};

}  // namespace

std::unique_ptr<const Step> decode_scan(PayloadReader& reader) {
  return std::make_unique<const ScanStep>(reader);
}

}  // namespace spyre::card
