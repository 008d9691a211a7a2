// The step that computes a pointwise op: every output element from the input elements at the same
// place.
//
// Loading works out all that does not depend on the launch: loop nests in their shortest form,
// conversions, kernels.
#include <algorithm>
#include <string>
#include <vector>

#include "formats/convert.h"
#include "host/thread_pool.h"
#include "kernels/pointwise.h"
#include "nests/pointwise_tile.h"
#include "nests/share.h"
#include "spyre/pointwise.h"
#include "spyre/program.h"
#include "steps/steps.h"

namespace spyre::card {
namespace {

// ----------------------------------------------------------------------------------------- kernels

const PointwiseKernels& kernels() { return pointwise_kernels_here(); }

DataFormat format_of(Compute compute) {
  return compute == Compute::fp32 ? DataFormat::IEEE_FP32 : DataFormat::IEEE_INT64;
}

PackedRun load_conversion(DataFormat format, Compute compute) {
  for (const auto* entry = kernels().conversions; entry->to_fp32; ++entry)
    if (entry->format == format) return compute == Compute::fp32 ? entry->to_fp32 : entry->to_int64;
  return converter(format, format_of(compute));
}

PackedRun store_conversion(DataFormat format, Compute compute, Narrow narrow) {
  if (compute == Compute::fp32 && format == DataFormat::IEEE_FP32 && narrow == Narrow::none)
    return kernels().clean_fp32;
  if (compute == Compute::int64 && narrow == Narrow::none)
    for (const auto* entry = kernels().conversions; entry->to_fp32; ++entry)
      if (entry->format == format) return entry->from_int64;
  return converter(format_of(compute), format, narrow);
}

// -------------------------------------------------------------------------------------------- step

constexpr const char* kNames[kMaxInputs] = {"input 0", "input 1", "input 2", "input 3", "input 4"};
constexpr const char* kOperandNames[kMaxInputs] = {
    "input 0 operand", "input 1 operand", "input 2 operand", "input 3 operand", "input 4 operand"};
constexpr const char* kFormatNames[kMaxInputs] = {
    "input 0 format", "input 1 format", "input 2 format", "input 3 format", "input 4 format"};

/// Elements of a cheap op that are worth waking a thread for.
constexpr std::int64_t kParallelWork = 48 << 10;
constexpr std::int64_t kShortRun = 8;  // elements; what is contiguous for less does not matter

/// Elements of a cheap op that one of this op takes the time of.
std::int64_t weight(Cost cost) {
  return cost == Cost::transcendental ? 6 : cost == Cost::divide ? 2 : 1;
}

class PointwiseStep : public Step {
 public:
  explicit PointwiseStep(PayloadReader& reader) {
    const OpInfo& info = read_op(reader);
    read_tensors(reader, info);
    read_constants(reader, info);
    std::vector<const char*> names;
    for (int input = 0; input < op_.inputs; ++input)
      if (op_.tensor_of[input] >= 0) names.push_back(kNames[input]);
    names.push_back("output");
    LoopNests loops = read_nests(reader, names);
    reader.finish();
    visits_ = loops.visits;
    place(std::move(loops));
    weight_ = weight(info.cost);
    passes_ = sfp_passes(info);
  }

  const char* name() const override { return "pointwise"; }
  std::vector<Need> needs() const override {
    std::vector<Need> needs;
    for (int k = 0; k < op_.tensors; ++k) needs.push_back({operand_[k], range_[k].end});
    return needs;
  }
  Traffic traffic() const override {
    Traffic traffic{0, range_[output()].touched};
    for (int k = 0; k < output(); ++k) traffic.read += range_[k].touched;
    return traffic;
  }
  OpCost cost() const override {
    const DataFormat* const end = format_ + op_.tensors;
    const DataFormat widest = *std::max_element(format_, end, [](DataFormat a, DataFormat b) {
      return format_info(a).bits < format_info(b).bits;
    });
    return shared_cost(traffic(), visits_, widest, passes_);
  }

  void run(std::span<const Extent> operands) const override {
    std::byte* data[kMaxTensors];
    for (int k = 0; k < op_.tensors; ++k)
      data[k] = operands[static_cast<std::size_t>(operand_[k])].data;
    // Inputs that overlap with the output are read before anything is written, unless every element
    // is written where it was read.
    ReadBefore before;
    for (int k = 0; k < output(); ++k)
      if (overlap(data[k], range_[k], data[output()], range_[output()]) &&
          !(same_places_[k] && data[k] == data[output()]))
        data[k] = before.keep(data[k], range_[k]);
    // Inner loops are cut between cache lines.
    const ShareRules rules{weight_, kParallelWork, kParallelWork / 2, 1, 128};
    share_nests(std::span(nests_), independent_, rules,
                [&](const PointwiseNest& nest, const LoopNest& loops) {
                  run_pointwise(op_, nest, loops, data);
                });
  }

 private:
  int output() const { return op_.tensors - 1; }
  std::size_t last() const { return static_cast<std::size_t>(output()); }

  const OpInfo& read_op(PayloadReader& reader) {
    const std::int64_t id = reader.word("op");
    const OpInfo* const info = find_op(static_cast<std::uint64_t>(id));
    if (!info || info->kind != OpKind::pointwise)
      reader.refuse("op", std::to_string(id) + " is no pointwise op");
    const std::int64_t inputs = reader.word("inputs");
    if (inputs != info->inputs)
      reader.refuse("inputs", std::to_string(inputs) + ", but " + info->name + " takes " +
                                  std::to_string(info->inputs));
    op_.inputs = info->inputs;
    return *info;
  }

  void read_tensors(PayloadReader& reader, const OpInfo& info) {
    for (int input = 0; input < op_.inputs; ++input) {
      const std::int64_t operand =
          reader.within(kOperandNames[input], Pointwise::Input::kScalar, kMaxProgramOperands - 1);
      if (operand == Pointwise::Input::kScalar) {
        op_.tensor_of[input] = -1;
        op_.scalar[input] = reader.real(kNames[input]);
      } else {
        op_.tensor_of[input] = op_.tensors;
        add_tensor(operand, reader.format(kFormatNames[input]));
      }
    }
    const std::int64_t operand = reader.operand("output operand");
    add_tensor(operand, reader.format("output format"));
    const Narrow narrow = reader.narrow("narrow");
    op_.compute = static_cast<Compute>(reader.within("compute type", 0, 1));
    op_.run = pointwise_kernel(info.op, op_.compute == Compute::int64);
    if (!op_.run)
      reader.refuse("compute type", std::string(info.name) + " does not compute in " +
                                        (op_.compute == Compute::fp32 ? "fp32" : "int64"));
    for (int k = 0; k < output(); ++k) {
      op_.tensor[k].convert = load_conversion(format_[k], op_.compute);
      op_.tensor[k].native = format_[k] == format_of(op_.compute);
    }
    // Conversions that narrow to 0 and 1 are slow.
    const bool boolean = narrow == Narrow::boolean;
    if (boolean)
      op_.narrow = op_.compute == Compute::fp32 ? kernels().boolean_fp32 : kernels().boolean_int64;
    op_.tensor[output()].convert =
        store_conversion(format_[output()], op_.compute, boolean ? Narrow::none : narrow);
  }

  void add_tensor(std::int64_t operand, DataFormat format) {
    operand_[op_.tensors] = operand;
    format_[op_.tensors] = format;
    op_.tensor[op_.tensors].width = element_bytes(format);
    ++op_.tensors;
  }

  void read_constants(PayloadReader& reader, const OpInfo& info) {
    const std::int64_t constants = reader.word("constants");
    if (constants != info.constants)
      reader.refuse("constants", std::to_string(constants) + ", but " + info.name + " takes " +
                                     std::to_string(info.constants));
    for (int i = 0; i < info.constants; ++i) op_.constants[i] = reader.real("constant");
  }

  void place(LoopNests loops) {
    std::int64_t widths[kMaxTensors];
    for (std::size_t k = 0; k <= last(); ++k) {
      widths[k] = op_.tensor[k].width;
      range_[k] = loops.range(k, format_[k]);
    }
    independent_ = ascending(loops.nests, last());
    for (LoopNest& nest : loops.nests) {
      if (nest.empty()) continue;
      nest.drop_single();
      nest.scale(widths);
      const bool in_order = !nest.shorten_for(last());
      const bool across = !in_order && bring_across(nest, widths);
      independent_ &= !in_order;
      nests_.push_back({std::move(nest), in_order, across});
    }
    for (std::size_t k = 0; k < last(); ++k) {
      same_places_[k] = independent_ && widths[k] == widths[last()];
      for (const PointwiseNest& nest : nests_) {
        same_places_[k] &= nest.loops.offset(k) == nest.loops.offset(last());
        for (std::size_t loop = 0; loop < nest.loops.rank(); ++loop)
          same_places_[k] &= nest.loops.stride(loop, k) == nest.loops.stride(loop, last());
      }
    }
  }

  /// An input that runs along another loop than the output: that one comes second, so that tiles of
  /// the two touch whole cache lines on both sides.
  bool bring_across(LoopNest& nest, const std::int64_t* widths) const {
    for (std::size_t k = 0; k < last(); ++k) {
      if (nest.rank() == 0 || nest.stride(0, k) == widths[k] || nest.stride(0, k) == 0) continue;
      for (std::size_t loop = 1; loop < nest.rank(); ++loop) {
        if (nest.stride(loop, k) != widths[k] || nest.size(loop) < kShortRun) continue;
        nest.bring(loop, 1);
        return true;
      }
    }
    return false;
  }

  PointwiseOp op_;
  std::int64_t operand_[kMaxTensors];
  DataFormat format_[kMaxTensors];
  ByteRange range_[kMaxTensors];
  bool same_places_[kMaxTensors] = {};  // an input's elements lie where the output's do
  std::vector<PointwiseNest> nests_;
  bool independent_ = false;
  std::int64_t visits_ = 0, weight_ = 1;
  double passes_ = 1;
};

}  // namespace

std::unique_ptr<const Step> decode_pointwise(PayloadReader& reader) {
  return std::make_unique<const PointwiseStep>(reader);
}

}  // namespace spyre::card
