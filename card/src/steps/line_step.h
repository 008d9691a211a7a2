// What steps along lines have in common: reductions, row operations, scans, sorts, searches.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "host/thread_pool.h"
#include "nests/lines.h"
#include "spyre/ops.h"
#include "steps/step.h"

namespace spyre::card {

class LineStep : public Step {
 public:
  std::vector<Need> needs() const override;
  Traffic traffic() const override;
  /// By the visits of the first input.
  OpCost cost() const override;

 protected:
  struct Tensor : PayloadReader::Tensor {
    ByteRange range = {};
    std::optional<LineView> view = {};
    bool serves_all = false;  ///< an input that is read before any line is worked on

    std::byte* data(std::span<const Extent> operands) const { return data_of(operand, operands); }
    /// Reads the tensor's loops, if it is present.
    void read_view(PayloadReader& reader, const char* name, const LineShape& shape);
  };
  /// Where the tensors are that a run works on.
  struct Memory {
    std::vector<const std::byte*> inputs;  ///< perhaps copies; null: absent
    std::vector<std::byte*> outputs;
    /// Outputs have elements in common: lines must be written one after the other, the last stays.
    bool in_order = false;
    ReadBefore before;
  };
  /// For runs that read what is theirs of each input before they write: only inputs that a line
  /// would find overwritten by another are copied.
  Memory memory(std::span<const Extent> operands) const;

  template <class Task>
  static void run_tasks(std::int64_t tasks, bool in_order, const Task& task) {
    if (!in_order) return ThreadPool::shared().parallel_for(tasks, task);
    for (std::int64_t index = 0; index < tasks; ++index) task(index);
  }

  const OpInfo* op_ = nullptr;
  std::vector<Tensor> inputs_, outputs_;
  LineShape shape_;
};

}  // namespace spyre::card
