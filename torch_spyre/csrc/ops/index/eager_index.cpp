#include "ops/index/eager_index.h"

#include <optional>
#include <string>

#include <ATen/ops/empty.h>
#include <ATen/ops/nonzero.h>
#include <c10/core/WrapDimMinimal.h>

#include "ops/memory/spyre_copy.h"
#include "program/eager_lines.h"
#include "program/eager_plan.h"
#include "tensor/spyre_tensor_impl.h"
#include "tensor/spyre_tiling.h"

namespace spyre::eager {
namespace {

using at::Tensor;
using Digits = std::vector<card::Index::Digit>;

/// What an indexing is, but for its tensors: those are operands 0 (dense), 1 (indexed) and from 2
/// on the index tensors.
struct Access {
  static constexpr int kMembers = 5;

  struct Coordinates {
    static constexpr int kMembers = 2;

    std::int64_t dimension, last_loop;
  };

  OpFunc op;
  bool wrap;
  c10::SmallVector<std::int64_t, 6> size, walks;
  c10::SmallVector<Coordinates, 2> coordinates;
};

/// Multiples of a stride below some bound: what a dimension adds to a storage offset.
struct Multiples {
  std::int64_t count, stride;
  std::int64_t highest() const { return (count - 1) * stride; }
};

/// What is left of them in the digits below one of stride `unit`; nothing if they do not split
/// there.
std::optional<Multiples> remainder(const Multiples& all, std::int64_t unit) {
  if (all.stride % unit == 0) return Multiples{1, 1};
  if (unit % all.stride == 0) return Multiples{std::min(all.count, unit / all.stride), all.stride};
  if (all.highest() < unit) return all;
  return std::nullopt;
}

/// How coordinates of one dimension become device offsets.
std::optional<Digits> digits_of(const Tiling& tiling, Multiples coordinates) {
  Digits digits;
  if (coordinates.stride == 0) return digits;
  for (const Tiling::Digit& digit : tiling.digits()) {
    const std::optional<Multiples> rest = remainder(coordinates, digit.stride);
    if (!rest) return std::nullopt;
    if (coordinates.stride % digit.stride == 0) {
      if (coordinates.count > 1)
        digits.push_back({1, coordinates.stride / digit.stride * digit.device_stride});
      return digits;
    }
    const std::int64_t divisor = digit.stride / coordinates.stride;
    if (coordinates.highest() >= digit.stride) digits.push_back({divisor, digit.device_stride});
    coordinates = *rest;
  }
  return coordinates.count == 1 ? std::optional(digits) : std::nullopt;
}

/// Neighbours that follow each other without a gap are one digit.
void merge(Digits& digits) {
  for (std::size_t k = digits.size(); k-- > 1;) {
    const auto [divisor, stride] = digits[k];
    const card::Index::Digit& above = digits[k - 1];
    if (above.divisor % divisor == 0 && above.stride == above.divisor / divisor * stride) {
      digits[k - 1] = {divisor, stride};
      digits.erase(digits.begin() + static_cast<std::ptrdiff_t>(k));
    }
  }
}

/// Digits for each index tensor, if the place of an element is the sum of what the coordinates and
/// the loops give: in no digit may their sum carry into the one above. A slice that starts inside a
/// stick, for example, cannot be indexed along that stick.
std::optional<std::vector<Digits>> additive_digits(Operands operands, const Access& access) {
  const Operand& indexed = operands[1];
  const Tiling tiling(indexed.layout());
  std::vector<Digits> all;
  c10::SmallVector<Multiples, 8> parts = {{2, indexed.storage_offset()}};  // 0 or the offset
  for (const Access::Coordinates& tensor : access.coordinates) {
    const Multiples coordinates{std::max<std::int64_t>(indexed.size(tensor.dimension), 1),
                                indexed.stride(tensor.dimension)};
    std::optional<Digits> digits = digits_of(tiling, coordinates);
    if (!digits) return std::nullopt;
    merge(*digits);
    all.push_back(std::move(*digits));
    parts.push_back(coordinates);
  }
  for (std::size_t loop = 0; loop < access.size.size(); ++loop)
    if (access.walks[loop] != Indexing::kNone)
      parts.push_back({access.size[loop], indexed.stride(access.walks[loop])});
  for (const Tiling::Digit& digit : tiling.digits()) {
    std::int64_t highest = 0;
    for (Multiples& part : parts) {
      if (part.stride == 0) continue;
      const bool is_offset = &part == parts.begin();
      if (is_offset) {
        part.stride %= digit.stride;
      } else if (const auto rest = remainder(part, digit.stride)) {
        part = *rest;
      } else {
        part = {digit.stride, 1};  // anything
      }
      if (part.stride != 0) highest += part.highest();
    }
    if (highest >= digit.stride) return std::nullopt;
  }
  return all;
}

JointOperand indexed_operand(const Operand& indexed, const Access& access) {
  JointOperand operand;
  operand.tensor = indexed;
  operand.offset = indexed.storage_offset();
  for (const std::int64_t dim : access.walks)
    operand.stride.push_back(dim == Indexing::kNone ? 0 : indexed.stride(dim));
  return operand;
}

JointOperand coordinate_operand(const Operand& index, std::int64_t last_loop,
                                c10::IntArrayRef size) {
  JointOperand operand =
      JointOperand::of(index, size.slice(0, static_cast<std::size_t>(last_loop + 1)));
  operand.stride.resize(size.size(), 0);
  return operand;
}

void build_index(card::ProgramBuilder& builder, Operands operands, const Access& access) {
  const Operand &dense = operands[0], &indexed = operands[1];
  std::vector<Digits> digits = additive_digits(operands, access).value();
  card::Index step;
  step.op = access.op;
  step.dense = {0, dense.format()};
  step.indexed = {1, indexed.format()};
  step.narrow = indexed.narrow();
  step.compute = compute_in(indexed.scalar_type());
  step.wrap = access.wrap;
  std::vector<JointOperand> sides = {JointOperand::of(dense, access.size),
                                     indexed_operand(indexed, access)};
  for (std::size_t j = 0; j < digits.size(); ++j) {
    const auto& [dimension, last_loop] = access.coordinates[j];
    step.coordinates.push_back({static_cast<std::int64_t>(2 + j), indexed.size(dimension),
                                dimension, std::move(digits[j])});
    sides.push_back(coordinate_operand(operands[2 + j], last_loop, access.size));
  }
  for (const JointNest& joint : joint_loops(access.size, sides)) {
    card::Index::Nest& nest = step.nests.emplace_back();
    nest.dense_offset = joint.offset[0];
    nest.indexed_offset = joint.offset[1];
    nest.coordinate_offset.assign(joint.offset.begin() + 2, joint.offset.end());
    for (const JointNest::Dim& dim : joint.dims)
      nest.dims.push_back(
          {dim.size, dim.stride[0], dim.stride[1], {dim.stride.begin() + 2, dim.stride.end()}});
  }
  builder.index(step);
}

bool gathers(OpFunc op) {
  return op == OpFunc::gather || op == OpFunc::indexselect || op == OpFunc::embedding;
}

Tensor with_dimension(const Tensor& tensor) {
  return tensor.dim() == 0 ? tensor.unsqueeze(0) : tensor;
}

/// Of the elements or the slices of a dimension.
Indexing along(const AlongDim& how, const Tensor& indexed, const Tensor& index, const Tensor& dense,
               bool slices) {
  Indexing indexing;
  indexing.op = how.op;
  indexing.wrap = how.wrap;
  indexing.index_error = how.index_error;
  indexing.dense = dense;
  indexing.indexed = with_dimension(indexed);
  const Tensor coordinates = with_dimension(index);
  const std::int64_t rank = indexing.indexed.dim(), dim = c10::maybe_wrap_dim(how.dim, rank);
  const c10::IntArrayRef size = (slices ? indexing.indexed : coordinates).sizes();
  indexing.size.assign(size.begin(), size.end());
  if (slices) indexing.size[dim] = coordinates.size(0);
  for (std::int64_t d = 0; d < rank; ++d) indexing.walks.push_back(d == dim ? Indexing::kNone : d);
  indexing.coordinates.push_back({dim, coordinates, slices ? dim : rank - 1});
  return indexing;
}

[[noreturn]] void refuse_index(const Indexing& indexing, const std::string& why) {
  TORCH_CHECK_INDEX(!indexing.index_error, why);
  TORCH_CHECK(false, why);
}

/// False, and nothing done, if the indexed tensor cannot be indexed where it lies.
bool indexed_in_place(const Indexing& indexing) {
  Access access{indexing.op, indexing.wrap, indexing.size, indexing.walks, {}};
  c10::SmallVector<Tensor, 6> operands = {indexing.dense, indexing.indexed};
  for (const Indexing::Coordinates& tensor : indexing.coordinates) {
    operands.push_back(tensor.index);
    access.coordinates.push_back({tensor.dimension, tensor.last_loop});
  }
  Call call(operands, std::move(access));
  if (!*call.find(additive_digits)) return false;
  try {
    // Waits, because only the card sees the coordinates: a bad one is reported by this call. A
    // launch on an idle stream runs on this thread anyway.
    call.run(build_index, card::Submit::wait);
  } catch (const card::Error& error) {
    if (error.code != card::ErrorCode::bad_index) throw;
    refuse_index(indexing, error.what());
  }
  return true;
}

}  // namespace

void run_indexing(Indexing indexing) {
  for (const std::int64_t size : indexing.size)
    if (size == 0) return;
  for (const Indexing::Coordinates& tensor : indexing.coordinates)
    if (indexing.indexed.size(tensor.dimension) == 0)
      refuse_index(indexing, "index is out of bounds for dimension " +
                                 std::to_string(tensor.dimension) + " with size 0");
  indexing.dense = on_device(indexing.dense, indexing.indexed.device());
  for (Indexing::Coordinates& tensor : indexing.coordinates)
    tensor.index = on_device(tensor.index, indexing.indexed.device());
  if (indexed_in_place(indexing)) return;
  const Tensor original = indexing.indexed;
  indexing.indexed = original.clone(at::MemoryFormat::Contiguous);
  const bool done = indexed_in_place(indexing);
  TORCH_INTERNAL_ASSERT(
      done, "a contiguous tensor cannot be indexed: ", layout_of(indexing.indexed).str());
  if (!gathers(indexing.op)) original.copy_(indexing.indexed);
}

Tensor accumulated(const Tensor& tensor) {
  return at::isReducedFloatingType(tensor.scalar_type()) ? tensor.to(at::kFloat) : tensor;
}

void run_elements(const AlongDim& how, const Tensor& indexed, const Tensor& index,
                  const Tensor& dense) {
  // The dense tensor may be larger than the index; a number serves every element.
  const Tensor coordinates = with_dimension(index);
  Tensor values = dense;
  for (std::int64_t d = 0; d < coordinates.dim() && dense.dim() > 0; ++d)
    if (values.size(d) != coordinates.size(d)) values = values.narrow(d, 0, coordinates.size(d));
  run_indexing(along(how, indexed, coordinates, values, /*slices=*/false));
}

void run_slices(const AlongDim& how, const Tensor& indexed, const Tensor& index,
                const Tensor& dense) {
  run_indexing(along(how, indexed, index, dense, /*slices=*/true));
}

void run_flat(OpFunc op, const Tensor& flat, const Tensor& index, const Tensor& dense, bool wrap) {
  Indexing indexing;
  indexing.op = op;
  indexing.indexed = flat;
  indexing.dense = dense;
  indexing.size.assign(index.sizes().begin(), index.sizes().end());
  indexing.walks.assign(index.dim(), Indexing::kNone);
  indexing.coordinates.push_back({0, index, index.dim() - 1});
  indexing.wrap = wrap;
  run_indexing(std::move(indexing));
}

Tensor number_like(const Tensor& tensor, const at::Scalar& value) {
  Tensor number = at::empty({}, tensor.options());
  spyre::fill(number, value);
  return number;
}

std::vector<Tensor> true_positions(const Tensor& mask) {
  const Tensor positions = at::nonzero(mask.cpu()).t().contiguous();
  std::vector<Tensor> columns;
  for (std::int64_t d = 0; d < mask.dim(); ++d)
    columns.push_back(positions.select(0, d).to(mask.device()));
  return columns;
}

Tensor true_offsets(const Tensor& mask) {
  return at::nonzero(mask.cpu().reshape(-1)).reshape(-1).to(mask.device());
}

}  // namespace spyre::eager
