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
#include "nests/pointwise_nest.h"
#include "nests/pointwise_tile.h"
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
    const LoopNests loops = read_nests(reader, names);
    reader.finish();
    visits_ = loops.visits;
    place(loops);
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
    std::vector<std::byte> before[kMaxInputs];
    std::int64_t shift[kMaxTensors] = {};
    for (int k = 0; k < output(); ++k) {
      if (!overlaps(data, k) || (same_places_[k] && data[k] == data[output()])) continue;
      before[k].assign(data[k] + range_[k].begin, data[k] + range_[k].end);
      data[k] = before[k].data();
      shift[k] = static_cast<std::int64_t>(range_[k].begin);
    }
    run_nests(data, shift);
  }

 private:
  int output() const { return op_.tensors - 1; }

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

  void place(const LoopNests& loops) {
    std::int64_t widths[kMaxTensors];
    for (int k = 0; k < op_.tensors; ++k) {
      widths[k] = op_.tensor[k].width;
      range_[k] = loops.reach[static_cast<std::size_t>(k)].bytes(format_[k]);
    }
    nests_ = pointwise_nests(loops.nests, {widths, static_cast<std::size_t>(op_.tensors)});
    independent_ = independent(nests_);
    for (const PointwiseNest& nest : nests_) {
      elements_ += nest.elements;
      largest_ = std::max(largest_, nest.elements);
    }
    for (int k = 0; k < output(); ++k) {
      same_places_[k] = independent_ && widths[k] == widths[output()];
      for (const PointwiseNest& nest : nests_) {
        same_places_[k] &= nest.offset[k] == nest.offset[output()];
        for (const PointwiseNest::Dim& dim : nest.dims)
          same_places_[k] &= dim.stride[k] == dim.stride[output()];
      }
    }
  }

  bool overlaps(std::byte* const* data, int input) const {
    return overlap(data[input], range_[input], data[output()], range_[output()]);
  }

  void run_nests(std::byte* const* data, const std::int64_t* shift) const {
    const bool parallel = elements_ * weight_ > kParallelWork;
    // Many small nests are shared out; large ones are cut, one after the other.
    const std::int64_t threads = parallel ? ThreadPool::shared().size() : 1;
    if (threads > 1 && independent_ && largest_ * threads * 2 < elements_) {
      const std::size_t piece = nests_.size() / (static_cast<std::size_t>(threads) * 8) + 1;
      const std::size_t tasks = (nests_.size() + piece - 1) / piece;
      ThreadPool::shared().parallel_for(static_cast<std::int64_t>(tasks), [&](std::int64_t task) {
        const std::size_t begin = static_cast<std::size_t>(task) * piece;
        const std::size_t end = std::min(begin + piece, nests_.size());
        for (std::size_t i = begin; i < end; ++i) run_part(op_, whole(nests_[i], data, shift));
      });
      return;
    }
    for (const PointwiseNest& nest : nests_) {
      const PointwisePart part = whole(nest, data, shift);
      if (threads > 1 && !nest.in_order && nest.elements * weight_ > kParallelWork) {
        run_cut(part, threads);
      } else {
        run_part(op_, part);
      }
    }
  }

  PointwisePart whole(const PointwiseNest& nest, std::byte* const* data,
                      const std::int64_t* shift) const {
    PointwisePart part;
    part.nest = &nest;
    for (std::size_t d = 0; d < nest.dims.size(); ++d) part.size[d] = nest.dims[d].size;
    for (int k = 0; k < op_.tensors; ++k) part.base[k] = data[k] + (nest.offset[k] - shift[k]);
    return part;
  }

  /// One dimension is cut into pieces that threads share. No two pieces write the same element.
  void run_cut(const PointwisePart& whole, std::int64_t threads) const {
    const std::vector<PointwiseNest::Dim>& dims = whole.nest->dims;
    const std::int64_t wanted =
        std::min(whole.nest->elements * weight_ / (kParallelWork / 2) + 1, threads * 4);
    std::size_t cut = dims.size() - 1;
    for (std::size_t d = dims.size(); d-- > 0 && dims[cut].size < wanted;)
      if (dims[d].size > dims[cut].size) cut = d;
    const PointwiseNest::Dim& dim = dims[cut];
    std::int64_t piece = (dim.size + wanted - 1) / wanted;
    // Inner dimensions are cut between cache lines.
    if (cut == 0 && piece > 128) piece = (piece + 127) / 128 * 128;
    ThreadPool::shared().parallel_for((dim.size + piece - 1) / piece, [&](std::int64_t task) {
      PointwisePart part = whole;
      for (int k = 0; k < op_.tensors; ++k) part.base[k] += task * piece * dim.stride[k];
      part.size[cut] = std::min(piece, dim.size - task * piece);
      run_part(op_, part);
    });
  }

  PointwiseOp op_;
  std::int64_t operand_[kMaxTensors];
  DataFormat format_[kMaxTensors];
  ByteRange range_[kMaxTensors];
  bool same_places_[kMaxTensors] = {};  // an input's elements lie where the output's do
  std::vector<PointwiseNest> nests_;
  bool independent_ = false;
  std::int64_t visits_ = 0, elements_ = 0, largest_ = 0, weight_ = 1;
  double passes_ = 1;
};

}  // namespace

std::unique_ptr<const Step> decode_pointwise(PayloadReader& reader) {
  return std::make_unique<const PointwiseStep>(reader);
}

}  // namespace spyre::card
