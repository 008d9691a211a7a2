#include "program/eager_plan.h"

#include <algorithm>
#include <array>

#include "program/program_launch.h"
#include "runtime/spyre_device_enum.h"
#include "runtime/spyre_runtime.h"
#include "tensor/spyre_dtypes.h"
#include "tensor/spyre_tensor_impl.h"
#include "tensor/spyre_tiling.h"

namespace spyre::eager {
namespace {

/// Leaked: used until the process ends.
Kept<card::Program>& programs_of(c10::DeviceIndex device) {
  static auto& kept = *new std::array<Kept<card::Program>, kMaxDevices>;
  return kept[device];
}

/// Brings one operand of a nest from storage elements to device elements. The tiling knows one
/// other side; it gets the number of the iteration, from which the other operands follow.
void place(JointNest nest, std::size_t operand, const Tiling& tiling, const Operand& tensor,
           std::vector<JointNest>& out) {
  // A tiling goes forwards: loops that go backwards through this operand are turned around.
  for (JointNest::Dim& dim : nest.dims) {
    if (dim.stride[operand] >= 0) continue;
    for (std::size_t k = 0; k < nest.offset.size(); ++k) {
      nest.offset[k] += (dim.size - 1) * dim.stride[k];
      dim.stride[k] = -dim.stride[k];
    }
  }
  const std::size_t rank = nest.dims.size(), operands = nest.offset.size();
  Nest single;
  single.offset = nest.offset[operand];
  std::vector<std::int64_t> unit(rank);  // iterations that one step of a dimension skips
  std::int64_t iterations = 1;
  for (std::size_t d = 0; d < rank; ++d) {
    unit[d] = iterations;
    iterations *= nest.dims[d].size;
  }
  for (std::size_t d = rank; d-- > 0;)
    single.dims.push_back({nest.dims[d].size, nest.dims[d].stride[operand], unit[d]});

  std::vector<Nest> placed;
  TORCH_CHECK_VALUE(tiling.place(single, placed),
                    "Invalid device sizes and stride map for host sizes and strides: ",
                    tensor.layout().str(), " has no place for some elements of a tensor of size ",
                    tensor.sizes(), " and strides ", tensor.strides(), ".");
  for (const Nest& piece : placed) {
    JointNest& joint = out.emplace_back();
    joint.offset = nest.offset;
    std::int64_t start = piece.other_offset;
    for (std::size_t d = rank; d-- > 0;) {
      const std::int64_t index = start / unit[d];
      start %= unit[d];
      for (std::size_t k = 0; k < operands; ++k) joint.offset[k] += index * nest.dims[d].stride[k];
    }
    joint.offset[operand] = piece.offset;
    for (auto loop = piece.dims.rbegin(); loop != piece.dims.rend(); ++loop) {
      // A cut dimension advances by a multiple of its unit that stays below the next one's.
      std::size_t d = rank - 1;
      while (unit[d] > loop->other || nest.dims[d].size == 1) --d;
      const std::int64_t factor = loop->other / unit[d];
      JointNest::Dim dim{loop->size, nest.dims[d].stride};
      for (std::int64_t& stride : dim.stride) stride *= factor;
      dim.stride[operand] = loop->stride;
      joint.dims.push_back(std::move(dim));
    }
  }
}

}  // namespace

JointOperand JointOperand::of(const Operand& tensor, c10::IntArrayRef size) {
  JointOperand operand;
  operand.tensor = tensor;
  operand.offset = tensor.storage_offset();
  TORCH_CHECK(static_cast<std::size_t>(tensor.dim()) <= size.size(), "A tensor of size ",
              tensor.sizes(), " has more dimensions than ", size, ".");
  const std::size_t missing = size.size() - tensor.dim();
  for (std::size_t d = 0; d < size.size(); ++d) {
    const bool broadcast = d < missing || (tensor.size(d - missing) == 1 && size[d] != 1);
    TORCH_CHECK(broadcast || tensor.size(d - missing) == size[d], "A tensor of size ",
                tensor.sizes(), " does not fit, nor can it be expanded to ", size, ".");
    operand.stride.push_back(broadcast ? 0 : tensor.stride(d - missing));
  }
  return operand;
}

JointOperand JointOperand::counting(c10::IntArrayRef stride) {
  JointOperand operand;
  operand.stride.assign(stride.begin(), stride.end());
  return operand;
}

std::vector<JointNest> joint_loops(c10::IntArrayRef size, c10::ArrayRef<JointOperand> operands) {
  if (std::find(size.begin(), size.end(), 0) != size.end()) return {};
  JointNest whole;
  for (const JointOperand& operand : operands) whole.offset.push_back(operand.offset);
  for (std::size_t d = size.size(); d-- > 0;) {
    if (size[d] == 1) continue;
    JointNest::Dim dim{size[d], {}};
    for (const JointOperand& operand : operands) dim.stride.push_back(operand.stride[d]);
    whole.dims.push_back(std::move(dim));
  }
  std::vector<JointNest> nests{std::move(whole)};
  for (std::size_t k = 0; k < operands.size(); ++k) {
    if (!operands[k].tensor) continue;
    const Tiling tiling(operands[k].tensor->layout());
    std::vector<JointNest> placed;
    for (const JointNest& nest : nests) place(nest, k, tiling, *operands[k].tensor, placed);
    nests = std::move(placed);
  }
  return nests;
}

Operand::Operand(const at::Tensor& tensor) : tensor_(&tensor) {
  const StorageContext& context = storage_context(tensor);
  const bool own = has_own_layout(tensor);
  layout_ = own ? &layout_of(tensor) : &context.layout;
  is_whole_ = tensor.storage_offset() == 0 && tensor.numel() == context.numel &&
              tensor.is_non_overlapping_and_dense();
  shows_bytes_ = !own && is_byte_view(tensor);
}

card::Narrow Operand::narrow() const { return dtype_info(scalar_type()).narrow; }

void Key::add(const Operand& operand) {
  const SpyreTensorLayout& layout = operand.layout();
  add(static_cast<std::int64_t>(operand.scalar_type()) << 32 |
      static_cast<std::int64_t>(layout.device_dtype) << 16 |
      static_cast<std::int64_t>(layout.element_arrangement) << 8 |
      static_cast<std::int64_t>(operand.is_whole()) << 1 |
      static_cast<std::int64_t>(operand.shows_bytes()));
  add_all(layout.device_size, layout.stride_map, operand.sizes(), operand.strides(),
          operand.storage_offset());
}

std::size_t Key::hash() const {
  std::uint64_t hash = words_.size();
  for (const std::int64_t word : words_) {
    hash = (hash ^ static_cast<std::uint64_t>(word)) * 0x9E3779B97F4A7C15;
    hash ^= hash >> 29;
  }
  return hash;
}

void run_program(const Key& key, Tensors launched,
                 c10::function_ref<void(card::ProgramBuilder&)> build, card::Submit submit) {
  const c10::DeviceIndex device = launched.back().device().index();
  const auto program = programs_of(device).get(key, [&]() -> std::shared_ptr<const card::Program> {
    card::ProgramBuilder builder;
    build(builder);
    return runtime::card(device).load_program(builder.finish());
  });
  launch_program(program, launched, submit);
}

at::Tensor on_device(const at::Tensor& tensor, c10::Device device) {
  if (tensor.device() == device) return tensor;
  TORCH_CHECK(tensor.is_cpu() && tensor.dim() == 0,
              "Expected all tensors to be on the same device, but found at least two devices, ",
              device, " and ", tensor.device(), "! Move one of them with .to(device).");
  return tensor.to(device);
}

}  // namespace spyre::eager
