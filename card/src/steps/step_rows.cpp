// Row operations: softmax, norms and their gradients, in one pass over device memory.
//
// Blocks of whole rows are gathered into fp32, worked on in the host's cache, and scattered.
#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "host/thread_pool.h"
#include "nests/lines.h"
#include "spyre/ops.h"
#include "spyre/program.h"
#include "steps/steps.h"

namespace spyre::card {
namespace {

constexpr std::int64_t kBlockBytes = 256 << 10;  // gathered at once
constexpr std::int64_t kShortRow = 16;      // rows shorter than that are worked on side by side
constexpr std::int64_t kLaneRows = 64 + 4;  // numbers a row that kernels need beside pieces

/// What a tensor of a row operation is.
enum class Role {
  elements,    ///< one element for each position of each row
  weights,     ///< the same, or one row that serves all
  row_values,  ///< one element a row, at position 0
};

struct Slot {
  const char* name;
  Role role;
  bool optional;
};

struct Recipe {
  OpFunc op;
  std::vector<Slot> inputs, outputs;
  RowKernels::Run RowKernels::* run;
};

const std::vector<Recipe>& recipes() {
  static const std::vector<Recipe> all = [] {
    const Slot x{"input", Role::elements, false}, gradient{"gradient", Role::elements, false},
        result{"result", Role::elements, false}, weight{"weight", Role::weights, true},
        bias{"bias", Role::weights, true}, mean{"mean", Role::row_values, false},
        scale{"scale", Role::row_values, false}, output{"output", Role::elements, false},
        mean_out{"mean output", Role::row_values, true},
        scale_out{"scale output", Role::row_values, true};
    return std::vector<Recipe>{
        {OpFunc::softmax, {x}, {output}, &RowKernels::softmax},
        {OpFunc::logsoftmax, {x}, {output}, &RowKernels::logsoftmax},
        {OpFunc::softmaxbwd, {gradient, result}, {output}, &RowKernels::softmaxbwd},
        {OpFunc::logsoftmaxbwd, {gradient, result}, {output}, &RowKernels::logsoftmaxbwd},
        {OpFunc::layernorm,
         {x, weight, bias},
         {output, mean_out, scale_out},
         &RowKernels::layernorm},
        {OpFunc::rmsnorm, {x, weight}, {output, scale_out}, &RowKernels::rmsnorm},
        {OpFunc::layernormbwd,
         {gradient, x, mean, scale, weight},
         {output},
         &RowKernels::layernormbwd},
    };
  }();
  return all;
}

struct Tensor {
  const Slot* slot = nullptr;
  std::int64_t operand = -1;
  DataFormat format = DataFormat::INVALID;
  std::optional<LineView> view;

  bool present() const { return operand >= 0; }
  bool is(const char* name) const { return present() && std::string_view(slot->name) == name; }
  std::byte* data(std::span<const Extent> operands) const {
    return operands[static_cast<std::size_t>(operand)].data;
  }
};

class RowsStep : public Step {
 public:
  explicit RowsStep(PayloadReader& reader) {
    const std::int64_t id = reader.word("op");
    op_ = id < 0 ? nullptr : find_op(static_cast<std::uint64_t>(id));
    for (const Recipe& each : recipes())
      if (op_ && each.op == op_->op) recipe_ = &each;
    if (!recipe_)
      reader.refuse("op", op_ ? std::string(op_->name) + " is not a row operation"
                              : std::to_string(id) + " is unknown");
    read_tensors(reader, "inputs", recipe_->inputs, inputs_);
    read_tensors(reader, "outputs", recipe_->outputs, outputs_);
    const std::int64_t constants = reader.count("constants");
    if (constants != op_->constants)
      reader.refuse("constants", std::string(op_->name) + " takes " +
                                     std::to_string(op_->constants) + ", not " +
                                     std::to_string(constants));
    if (constants > 0) epsilon_ = static_cast<float>(reader.real("constant"));
    shape_ = read_line_shape(reader, "rows", "row length", "row", "position");
    for (Tensor& tensor : inputs_) read_view(reader, tensor);
    for (Tensor& tensor : outputs_) read_view(reader, tensor);
    reader.finish();
    across_ = !inputs_[0].view->runs_along() || shape_.length < kShortRow;
    plan_blocks();
  }

  const char* name() const override { return "rows"; }

  std::vector<Need> needs() const override {
    std::vector<Need> needs;
    for (const auto* tensors : {&inputs_, &outputs_})
      for (const Tensor& tensor : *tensors)
        if (tensor.present()) needs.push_back({tensor.operand, tensor.view->range().end});
    return needs;
  }

  Traffic traffic() const override {
    Traffic traffic;
    for (const Tensor& tensor : inputs_)
      if (tensor.present()) traffic.read += tensor.view->read().read;
    for (const Tensor& tensor : outputs_)
      if (tensor.present()) traffic.written += tensor.view->written().written;
    return traffic;
  }
  OpCost cost() const override {
    return shared_cost(traffic(), inputs_[0].view->visits(), inputs_[0].format, sfp_passes(*op_));
  }

  void run(std::span<const Extent> operands) const override {
    if (shape_.lines == 0) return;
    std::vector<Extent> from(operands.begin(), operands.end());
    std::vector<std::vector<std::byte>> copies;
    bool in_order = false;
    for (const Tensor& output : outputs_) {
      if (!output.present()) continue;
      in_order |= !output.view->distinct();
      for (const Tensor& input : inputs_) {
        // What serves all rows is read before anything is written.
        if (!input.present() || shared_rows(input)) continue;
        if (disturbs(input.data(operands), *input.view, output.data(operands), *output.view)) {
          Extent& extent = from[static_cast<std::size_t>(input.operand)];
          copies.emplace_back(extent.data, extent.data + read_end(input.operand));
          extent.data = copies.back().data();
        }
      }
      for (const Tensor& other : outputs_)
        in_order |= &other != &output && other.present() &&
                    overlap(other.data(operands), *other.view, output.data(operands), *output.view);
    }
    const Shared shared = gather_shared(from);
    const std::int64_t blocks = (shape_.lines + block_rows_ - 1) / block_rows_;
    const auto task = [&](std::int64_t block) { run_block(block, from, operands, shared); };
    if (in_order) {
      // Where outputs have elements in common, the last row stays.
      for (std::int64_t block = 0; block < blocks; ++block) task(block);
    } else {
      ThreadPool::shared().parallel_for(blocks, task);
    }
  }

 private:
  /// Weights and bias that serve all rows.
  struct Shared {
    std::vector<float> weight, bias;
  };

  static void read_tensors(PayloadReader& reader, const char* field, const std::vector<Slot>& slots,
                           std::vector<Tensor>& tensors) {
    const std::int64_t count = reader.count(field);
    if (count != static_cast<std::int64_t>(slots.size()))
      reader.refuse(field,
                    std::to_string(count) + " where the op has " + std::to_string(slots.size()));
    for (const Slot& slot : slots) {
      Tensor& tensor = tensors.emplace_back();
      tensor.slot = &slot;
      tensor.operand = reader.within(slot.name, slot.optional ? -1 : 0, kMaxProgramOperands - 1);
      if (tensor.present()) {
        tensor.format = reader.format(slot.name);
      } else {
        reader.word(slot.name);
      }
    }
  }

  void read_view(PayloadReader& reader, Tensor& tensor) const {
    if (!tensor.present()) return;
    LineShape shape = shape_;
    if (tensor.slot->role == Role::row_values) shape.length = 1;
    // Weights of no rows are as good as any.
    if (tensor.slot->role == Role::weights) shape.lines = std::max<std::int64_t>(1, shape.lines);
    tensor.view.emplace(reader, tensor.slot->name, tensor.format, shape);
    if (tensor.slot->role == Role::elements)
      tensor.view->check_visits(reader, tensor.slot->name, shape);
  }

  bool shared_rows(const Tensor& tensor) const {
    return tensor.slot->role == Role::weights && tensor.view->one_line();
  }

  std::size_t read_end(std::int64_t operand) const {
    std::uint64_t end = 0;
    for (const Tensor& input : inputs_)
      if (input.operand == operand) end = std::max(end, input.view->range().end);
    return end;
  }

  /// Rows do not depend on each other, so that blocks decide about nothing but speed.
  void plan_blocks() {
    for (const Tensor& input : inputs_)
      if (input.present() && input.slot->role != Role::row_values && !shared_rows(input)) ++blocks_;
    const std::int64_t length = std::max<std::int64_t>(1, shape_.length);
    block_rows_ = block_elements(shape_.lines * length, kBlockBytes / 4 / blocks_) / length;
    // Side by side, at least whole sticks.
    block_rows_ =
        std::max<std::int64_t>(across_ ? 64 : 1, across_ ? block_rows_ / 64 * 64 : block_rows_);
    block_rows_ = std::min(block_rows_, std::max<std::int64_t>(1, shape_.lines));
  }

  Shared gather_shared(std::span<const Extent> operands) const {
    Shared shared;
    for (const Tensor& input : inputs_) {
      if (!input.present() || !shared_rows(input)) continue;
      std::vector<float>& values = input.is("bias") ? shared.bias : shared.weight;
      values.assign(static_cast<std::size_t>(shape_.length), 0.0f);
      input.view->gather(input.data(operands), {0, 1, 0, shape_.length, shape_.length, 1},
                         values.data());
    }
    return shared;
  }

  void run_block(std::int64_t index, std::span<const Extent> from, std::span<const Extent> to,
                 const Shared& shared) const {
    const std::int64_t row = index * block_rows_;
    const std::int64_t rows = std::min(block_rows_, shape_.lines - row);
    const std::int64_t length = shape_.length;
    const std::int64_t pitch = across_ ? rows : (length + 15) / 16 * 16 + 16;
    const std::int64_t size = across_ ? rows * length : rows * pitch;
    const LineWindow window{row, rows, 0, length, across_ ? 1 : pitch, across_ ? pitch : 1};
    const LineWindow column{row, rows, 0, 1, 1, rows};
    const std::int64_t pieces = (length + kFoldPiece - 1) / kFoldPiece;
    const Scratch<float> memory(ScratchSlot::block, blocks_ * size + 2 * rows);
    const Scratch<float> work(ScratchSlot::work, rows * (kLaneRows + pieces));
    float* next = memory.data();
    RowBlock block{};
    block.shape = {rows, length, pitch, across_};
    block.means = next;
    block.scales = next + rows;
    block.epsilon = epsilon_;
    block.work = work.data();
    next += 2 * rows;
    for (const Tensor& input : inputs_) {
      if (!input.present()) continue;
      const std::byte* const data = input.data(from);
      if (input.slot->role == Role::row_values) {
        float* const values = input.is("mean") ? block.means : block.scales;
        if (!input.view->complete()) std::fill_n(values, rows, 0.0f);
        input.view->gather(data, column, values);
        continue;
      }
      const bool weights = input.slot->role == Role::weights, bias = input.is("bias");
      if (weights && shared_rows(input)) {
        (bias ? block.bias : block.weight) = (bias ? shared.bias : shared.weight).data();
        (bias ? block.one_bias : block.one_weight) = true;
        continue;
      }
      if (!input.view->complete()) std::fill_n(next, size, 0.0f);
      input.view->gather(data, window, next);
      if (weights) {
        (bias ? block.bias : block.weight) = next;
      } else {
        (block.first ? block.second : block.first) = next;
      }
      next += size;
    }
    (line_kernels().rows.*recipe_->run)(block);
    for (const Tensor& output : outputs_) {
      if (!output.present()) continue;
      float* values = block.first;
      const bool row_values = output.slot->role == Role::row_values;
      if (row_values) values = output.is("mean output") ? block.means : block.scales;
      if (output.format == DataFormat::IEEE_FP32) drop_payloads(values, row_values ? rows : size);
      output.view->scatter(values, row_values ? column : window, output.data(to));
    }
  }

  /// Which NaN an operation on two of them gives depends on the instructions used. Other formats
  /// have only one.
  static void drop_payloads(float* values, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i)
      values[i] = values[i] != values[i] ? std::numeric_limits<float>::quiet_NaN() : values[i];
  }

  const OpInfo* op_ = nullptr;
  const Recipe* recipe_ = nullptr;
  std::vector<Tensor> inputs_, outputs_;
  float epsilon_ = 0;
  LineShape shape_;
  bool across_;
  std::int64_t blocks_ = 0;  // tensors that are gathered row by row
  std::int64_t block_rows_;
};

}  // namespace

std::unique_ptr<const Step> decode_rows(PayloadReader& reader) {
  return std::make_unique<const RowsStep>(reader);
}

}  // namespace spyre::card
