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

/// Elements of a cheap op that are worth waking a thread for.
constexpr std::int64_t kParallelWork = 48 << 10;
constexpr std::int64_t kShortRun = 8;  // elements; what is contiguous for less does not matter

class PointwiseStep : public Step {
 public:
  explicit PointwiseStep(PayloadReader& reader) {
    const OpInfo& info = read_op(reader);
    const std::vector<std::string> tensors = read_tensors(reader, info);
    const std::vector<double> constants = reader.constants(info);
    std::copy(constants.begin(), constants.end(), op_.constants);
    std::vector<const char*> names;
    for (const std::string& name : tensors) names.push_back(name.c_str());
    LoopNests loops = read_nests(reader, names);
    reader.finish();
    visits_ = loops.visits;
    place(std::move(loops));
    weight_ = work_of(info);
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
    for (int k = 0; k < op_.tensors; ++k) data[k] = data_of(operand_[k], operands);
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
    const OpInfo& info = reader.op(OpKind::pointwise, "is no pointwise op");
    op_.inputs = reader.inputs(info);
    return info;
  }

  /// Names of the tensors.
  std::vector<std::string> read_tensors(PayloadReader& reader, const OpInfo& info) {
    std::vector<std::string> names;
    for (int input = 0; input < op_.inputs; ++input) {
      const std::string name = "input " + std::to_string(input);
      const std::int64_t operand = reader.within(
          (name + " operand").c_str(), Pointwise::Input::kScalar, kMaxProgramOperands - 1);
      if (operand == Pointwise::Input::kScalar) {
        op_.tensor_of[input] = -1;
        op_.scalar[input] = reader.real(name.c_str());
      } else {
        op_.tensor_of[input] = op_.tensors;
        add_tensor({operand, reader.format((name + " format").c_str())});
        names.push_back(name);
      }
    }
    add_tensor(reader.tensor("output"));
    names.push_back("output");
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
    return names;
  }

  void add_tensor(const PayloadReader::Tensor& tensor) {
    operand_[op_.tensors] = tensor.operand;
    format_[op_.tensors] = tensor.format;
    op_.tensor[op_.tensors].width = element_bytes(tensor.format);
    ++op_.tensors;
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
