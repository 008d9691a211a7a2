// Row operations: softmax, norms and their gradients, in one pass over device memory.
//
// Blocks of whole rows are gathered into fp32, worked on in the host's cache, and scattered.
#include <algorithm>
#include <string_view>

#include "kernels/pointwise.h"
#include "spyre/program.h"
#include "steps/line_step.h"
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
  bool is(std::string_view other) const { return other == name; }
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

class RowsStep : public LineStep {
 public:
  explicit RowsStep(PayloadReader& reader) {
    op_ = &reader.op(OpKind::rows, "is not a row operation");
    for (const Recipe& each : recipes())
      if (each.op == op_->op) recipe_ = &each;
    read_tensors(reader, "inputs", recipe_->inputs, inputs_);
    read_tensors(reader, "outputs", recipe_->outputs, outputs_);
    const std::vector<double> constants = reader.constants(*op_);
    if (!constants.empty()) epsilon_ = static_cast<float>(constants[0]);
    shape_ = read_line_shape(reader, "rows", "row length", "row", "position");
    read_views(reader, recipe_->inputs, inputs_);
    read_views(reader, recipe_->outputs, outputs_);
    reader.finish();
    across_ = !inputs_[0].view->runs_along() || shape_.length < kShortRow;
    plan_blocks();
  }

  const char* name() const override { return "rows"; }

  void run(std::span<const Extent> operands) const override {
    if (shape_.lines == 0) return;
    const Memory memory = this->memory(operands);
    const Shared shared = gather_shared(memory);
    const std::int64_t blocks = (shape_.lines + block_rows_ - 1) / block_rows_;
    run_tasks(blocks, memory.in_order,
              [&](std::int64_t block) { run_block(block, memory, shared); });
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
      const std::int64_t operand =
          reader.within(slot.name, slot.optional ? -1 : 0, kMaxProgramOperands - 1);
      if (operand >= 0) {
        tensors.push_back({{operand, reader.format(slot.name)}});
      } else {
        reader.word(slot.name);  // no format
        tensors.push_back({});
      }
    }
  }

  void read_views(PayloadReader& reader, const std::vector<Slot>& slots,
                  std::vector<Tensor>& tensors) const {
    for (std::size_t i = 0; i < slots.size(); ++i) {
      const Slot& slot = slots[i];
      Tensor& tensor = tensors[i];
      if (!tensor.present()) continue;
      LineShape shape = shape_;
      if (slot.role == Role::row_values) shape.length = 1;
      // Weights of no rows are as good as any.
      if (slot.role == Role::weights) shape.lines = std::max<std::int64_t>(1, shape.lines);
      tensor.read_view(reader, slot.name, shape);
      if (slot.role == Role::elements) tensor.view->check_visits(reader, slot.name, shape);
      tensor.serves_all = slot.role == Role::weights && tensor.view->one_line();
    }
  }

  /// Rows do not depend on each other, so that blocks decide about nothing but speed.
  void plan_blocks() {
    for (std::size_t i = 0; i < inputs_.size(); ++i)
      if (inputs_[i].present() && recipe_->inputs[i].role != Role::row_values &&
          !inputs_[i].serves_all)
        ++blocks_;
    const std::int64_t length = std::max<std::int64_t>(1, shape_.length);
    block_rows_ = block_elements(shape_.lines * length, kBlockBytes / 4 / blocks_) / length;
    // Side by side, at least whole sticks.
    block_rows_ =
        std::max<std::int64_t>(across_ ? 64 : 1, across_ ? block_rows_ / 64 * 64 : block_rows_);
    block_rows_ = std::min(block_rows_, std::max<std::int64_t>(1, shape_.lines));
  }

  Shared gather_shared(const Memory& memory) const {
    Shared shared;
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      if (!inputs_[i].serves_all) continue;
      std::vector<float>& values = recipe_->inputs[i].is("bias") ? shared.bias : shared.weight;
      values.assign(static_cast<std::size_t>(shape_.length), 0.0f);
      inputs_[i].view->gather(memory.inputs[i], {0, 1, 0, shape_.length, shape_.length, 1},
                              values.data());
    }
    return shared;
  }

  void run_block(std::int64_t index, const Memory& memory, const Shared& shared) const {
    const std::int64_t row = index * block_rows_;
    const std::int64_t rows = std::min(block_rows_, shape_.lines - row);
    const std::int64_t length = shape_.length;
    const std::int64_t pitch = across_ ? rows : (length + 15) / 16 * 16 + 16;
    const std::int64_t size = across_ ? rows * length : rows * pitch;
    const LineWindow window{row, rows, 0, length, across_ ? 1 : pitch, across_ ? pitch : 1};
    const LineWindow column{row, rows, 0, 1, 1, rows};
    const std::int64_t pieces = (length + kFoldPiece - 1) / kFoldPiece;
    const Scratch<float> numbers(ScratchSlot::block, blocks_ * size + 2 * rows);
    const Scratch<float> work(ScratchSlot::work, rows * (kLaneRows + pieces));
    float* next = numbers.data();
    RowBlock block{};
    block.shape = {rows, length, pitch, across_};
    block.means = next;
    block.scales = next + rows;
    block.epsilon = epsilon_;
    block.work = work.data();
    next += 2 * rows;
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      const Tensor& input = inputs_[i];
      const Slot& slot = recipe_->inputs[i];
      if (!input.present()) continue;
      const std::byte* const data = memory.inputs[i];
      if (slot.role == Role::row_values) {
        float* const values = slot.is("mean") ? block.means : block.scales;
        if (!input.view->complete()) std::fill_n(values, rows, 0.0f);
        input.view->gather(data, column, values);
        continue;
      }
      const bool weights = slot.role == Role::weights, bias = slot.is("bias");
      if (input.serves_all) {
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
    for (std::size_t i = 0; i < outputs_.size(); ++i) {
      const Tensor& output = outputs_[i];
      if (!output.present()) continue;
      float* values = block.first;
      const bool row_values = recipe_->outputs[i].role == Role::row_values;
      if (row_values) values = recipe_->outputs[i].is("mean output") ? block.means : block.scales;
      // Which NaN an operation on two of them gives depends on the instructions used. Other formats
      // have only one.
      if (output.format == DataFormat::IEEE_FP32)
        pointwise_kernels_here().quiet_fp32(values,
                                            static_cast<std::size_t>(row_values ? rows : size));
      output.view->scatter(values, row_values ? column : window, memory.outputs[i]);
    }
  }

  const Recipe* recipe_ = nullptr;
  float epsilon_ = 0;
  bool across_;
  std::int64_t blocks_ = 0;  // tensors that are gathered row by row
  std::int64_t block_rows_;
};

}  // namespace

std::unique_ptr<const Step> decode_rows(PayloadReader& reader) {
  return std::make_unique<const RowsStep>(reader);
}

}  // namespace spyre::card
