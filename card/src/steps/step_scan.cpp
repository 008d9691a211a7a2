// Scans: running sums, products, extremes along lines.
//
// A task takes some lines and goes along them block by block; all its lines at once.
#include <algorithm>
#include <limits>
#include <optional>

#include "host/thread_pool.h"
#include "nests/lines.h"
#include "spyre/ops.h"
#include "spyre/program.h"
#include "steps/steps.h"

namespace spyre::card {
namespace {

constexpr std::int64_t kBlockElements = 16 << 10;
constexpr std::int64_t kTaskLines = 64;

class ScanStep : public Step {
 public:
  explicit ScanStep(PayloadReader& reader) {
    const std::int64_t id = reader.word("op");
    op_ = id < 0 ? nullptr : find_op(static_cast<std::uint64_t>(id));
    if (!op_ || op_->kind != OpKind::scan)
      reader.refuse("op", op_ ? std::string(op_->name) + " is not a scan"
                              : std::to_string(id) + " is unknown");
    input_operand_ = reader.operand("input operand");
    const DataFormat input_format = reader.format("input format");
    output_operand_ = reader.operand("output operand");
    const DataFormat output_format = reader.format("output format");
    narrow_ = reader.narrow("narrow");
    index_operand_ = reader.within("index output operand", -1, kMaxProgramOperands - 1);
    const bool extremes = op_->op == OpFunc::cummax || op_->op == OpFunc::cummin;
    if (index_operand_ >= 0 && !extremes)
      reader.refuse("index output operand", std::string(op_->name) + " has no indices");
    DataFormat index_format = DataFormat::INVALID;
    if (index_operand_ >= 0) {
      index_format = reader.format("index output format");
    } else {
      reader.word("index output format");
    }
    integer_ = reader.within("compute type", 0, 1) == 1;
    if (integer_ ? !op_->int64 : !op_->fp32)
      reader.refuse("compute type", std::string(op_->name) + " does not compute in " +
                                        (integer_ ? "int64" : "fp32"));
    shape_ = read_line_shape(reader, "lines", "line length", "line", "position");
    input_.emplace(reader, "input", input_format, shape_);
    output_.emplace(reader, "output", output_format, shape_);
    if (index_operand_ >= 0) indices_.emplace(reader, "index output", index_format, shape_);
    reader.finish();
    input_->check_visits(reader, "input", shape_);
  }

  const char* name() const override { return "scan"; }

  std::vector<Need> needs() const override {
    std::vector<Need> needs{{input_operand_, input_->range().end},
                            {output_operand_, output_->range().end}};
    if (indices_) needs.push_back({index_operand_, indices_->range().end});
    return needs;
  }

  Traffic traffic() const override {
    return {input_->read().read,
            output_->written().written + (indices_ ? indices_->written().written : 0)};
  }
  OpCost cost() const override {
    return shared_cost(traffic(), input_->visits(), input_->format(), sfp_passes(*op_));
  }

  void run(std::span<const Extent> operands) const override {
    integer_ ? scan<std::int64_t>(operands) : scan<float>(operands);
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
  void scan(std::span<const Extent> operands) const {
    const auto data = [&](std::int64_t operand) {
      return operands[static_cast<std::size_t>(operand)].data;
    };
    const std::byte* input = data(input_operand_);
    std::byte* const output = data(output_operand_);
    std::byte* const indices = indices_ ? data(index_operand_) : nullptr;
    std::vector<std::byte> copy;
    if (disturbs(input, *input_, output, *output_) ||
        (indices_ && overlap(input, *input_, indices, *indices_))) {
      copy.assign(input, input + input_->range().end);
      input = copy.data();
    }
    const std::int64_t tasks = (shape_.lines + kTaskLines - 1) / kTaskLines;
    const auto task = [&](std::int64_t index) { scan_lines<T>(index, input, output, indices); };
    if (output_->distinct() &&
        (!indices_ || (indices_->distinct() && !overlap(output, *output_, indices, *indices_)))) {
      ThreadPool::shared().parallel_for(tasks, task);
    } else {
      // Where elements are written more than once, the last line stays.
      for (std::int64_t index = 0; index < tasks; ++index) task(index);
    }
  }

  template <typename T>
  void scan_lines(std::int64_t task, const std::byte* input, std::byte* output,
                  std::byte* indices) const {
    const std::int64_t line = task * kTaskLines;
    const std::int64_t lines = std::min(kTaskLines, shape_.lines - line);
    const std::int64_t step = std::clamp<std::int64_t>(kBlockElements / lines, 1,
                                                       std::max<std::int64_t>(1, shape_.length));
    const Scratch<T> block(ScratchSlot::block, step * lines);
    const Scratch<std::int64_t> found(ScratchSlot::work, indices_ ? step * lines : 0);
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
      if (!input_->complete()) std::fill_n(block.data(), length * lines, T{0});
      input_->gather(input, window, block.data());
      run(block.data(), indices_ ? found.data() : nullptr, {lines, length, lines, true}, position,
          {sums, values, last});
      if constexpr (std::is_same_v<T, float>) {
        for (std::int64_t i = 0; i < length * lines; ++i)
          if (block.data()[i] != block.data()[i])
            block.data()[i] = std::numeric_limits<float>::quiet_NaN();
      }
      output_->scatter(block.data(), window, output, narrow_);
      if (indices_) indices_->scatter(found.data(), window, indices);
    }
  }

  const OpInfo* op_;
  std::int64_t input_operand_, output_operand_, index_operand_;
  Narrow narrow_;
  bool integer_;
  LineShape shape_;
  std::optional<LineView> input_, output_, indices_;
};

}  // namespace

std::unique_ptr<const Step> decode_scan(PayloadReader& reader) {
  return std::make_unique<const ScanStep>(reader);
}

}  // namespace spyre::card
