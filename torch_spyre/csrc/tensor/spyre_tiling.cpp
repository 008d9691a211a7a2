#include "tensor/spyre_tiling.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <tuple>

namespace spyre {

Nest Nest::over(c10::IntArrayRef size, c10::IntArrayRef stride, std::int64_t offset,
                c10::IntArrayRef other_stride, std::int64_t other_offset) {
  Nest nest;
  nest.offset = offset;
  nest.other_offset = other_offset;
  for (std::size_t i = 0; i < size.size(); ++i)
    if (size[i] != 1) nest.dims.push_back({size[i], stride[i], other_stride[i]});
  return nest;
}

Nest Nest::swapped() const {
  Nest nest = *this;
  std::swap(nest.offset, nest.other_offset);
  for (LoopDim& dim : nest.dims) std::swap(dim.stride, dim.other);
  return nest;
}

namespace {

/// The dimension that counts sticks, if it is padding: where rows are shorter than the sticks they
/// are padded to, the count's stride lies inside the row and an offset must reach the row first.
std::optional<std::size_t> padded_stick_count(const SpyreTensorLayout& layout) {
  const auto &sizes = layout.device_size, &strides = layout.stride_map;
  const std::size_t rank = sizes.size();
  if (rank < 3 || strides[rank - 1] <= 0) return std::nullopt;
  const std::size_t count = rank - 3;  // where the default layouts count sticks
  const std::int64_t stride = strides[rank - 1] * sizes[rank - 1];
  if (sizes[count] == 1 || strides[count] != stride) return std::nullopt;
  for (std::size_t i = 0; i + 1 < rank; ++i) {
    const bool inside = i != count && strides[i] > strides[rank - 1] && strides[i] <= stride;
    if (inside && sizes[i] - 1 > (stride - 1) / strides[i]) return count;
  }
  return std::nullopt;
}

}  // namespace

bool follows_strides(const SpyreTensorLayout& layout) { return !padded_stick_count(layout); }

Tiling::Tiling(const SpyreTensorLayout& layout) : empty_(layout.bytes() == 0) {
  if (empty_) return;
  const auto &sizes = layout.device_size, &strides = layout.stride_map;
  const std::size_t rank = sizes.size();
  const std::optional<std::size_t> padding = padded_stick_count(layout);
  std::int64_t device_stride = 1;
  for (std::size_t i = rank; i-- > 0;) {
    if (sizes[i] > 1 && strides[i] > 0) {
      const std::int64_t place = i == padding ? strides[rank - 1] : strides[i];
      digits_.push_back({strides[i], sizes[i], device_stride, place});
    }
    if (sizes[i] > 1 && strides[i] == 0) replicas_.push_back({sizes[i], device_stride, 0});
    device_stride *= i + 1 == rank ? layout.elems_per_stick() : sizes[i];
  }
  std::stable_sort(digits_.begin(), digits_.end(), [](const Digit& a, const Digit& b) {
    return std::tie(a.place, a.stride) > std::tie(b.place, b.stride);
  });
}

bool Tiling::place(const Nest& nest, std::vector<Nest>& out) const {
  State state;
  state.offset = nest.offset;
  state.other_offset = nest.other_offset;
  for (const LoopDim& dim : nest.dims) {
    if (dim.size == 0) return true;
    state.dims.push_back({dim.size, 0, dim.stride, dim.other});
  }
  return !empty_ && nest.offset >= 0 && split(std::move(state), 0, out);
}

bool Tiling::reaches(c10::IntArrayRef size, c10::IntArrayRef stride, std::int64_t offset) const {
  storage_span(size, stride, offset);  // refuses what integers do not hold
  std::vector<Nest> nests;
  return place(Nest::over(size, stride, offset, stride), nests);
}

Tiling::State Tiling::restricted(const State& state, std::size_t dim, std::int64_t first,
                                 std::int64_t count) {
  State part = state;
  const Dim& whole = state.dims[dim];
  part.offset += first * whole.stride;
  part.device_offset += first * whole.device;
  part.other_offset += first * whole.other;
  if (count == 1)
    part.dims.erase(part.dims.begin() + dim);
  else
    part.dims[dim].size = count;
  return part;
}

bool Tiling::split(State state, std::size_t digit, std::vector<Nest>& out) const {
  for (; digit < digits_.size(); ++digit) {
    const auto& [stride, size, device_stride, place] = digits_[digit];

    // What each loop leaves over after this digit, and the loop with the largest rest.
    std::int64_t highest = state.offset % stride;
    std::size_t widest = state.dims.size();
    for (std::size_t i = 0; i < state.dims.size(); ++i) {
      const std::int64_t rest = state.dims[i].stride % stride;
      highest += (state.dims[i].size - 1) * rest;
      if (rest == 0) continue;
      if (widest == state.dims.size()) {
        widest = i;
        continue;
      }
      const std::int64_t best = state.dims[widest].stride % stride;
      if (rest > best || (rest == best && state.dims[i].size > state.dims[widest].size)) widest = i;
    }

    if (highest < stride) {  // nothing carries: the digit is linear in the loops
      std::int64_t last = state.offset / stride;
      for (const Dim& dim : state.dims) last += (dim.size - 1) * (dim.stride / stride);
      if (last >= size) return false;
      state.device_offset += state.offset / stride * device_stride;
      state.offset %= stride;
      for (Dim& dim : state.dims) {
        dim.device += dim.stride / stride * device_stride;
        dim.stride %= stride;
      }
      continue;
    }

    const Dim dim = state.dims[widest];
    const std::int64_t rest = dim.stride % stride;
    // After `period` iterations the loop stands at the same place of the next digits.
    const std::int64_t period = stride / std::gcd(stride, rest);
    if (dim.size >= 2 * period) {
      const std::int64_t rounds = dim.size / period;
      State body = state;
      body.dims[widest].size = period;
      body.dims.insert(body.dims.begin() + widest,
                       Dim{rounds, dim.device * period, dim.stride * period, dim.other * period});
      if (!split(std::move(body), digit, out)) return false;
      const std::int64_t done = rounds * period;
      return done == dim.size ||
             split(restricted(state, widest, done, dim.size - done), digit, out);
    }

    // Cut the loop into runs of iterations during which the digit stays the same for all inner
    // loops; an iteration that straddles a boundary stands alone and its inner loops are cut.
    const std::int64_t start = state.offset % stride;
    const std::int64_t inner = highest - start - (dim.size - 1) * rest;
    for (std::int64_t first = 0; first < dim.size;) {
      const std::int64_t low = start + first * rest;
      std::int64_t count = 1;
      if (low / stride == (low + inner) / stride) {
        const std::int64_t room = (low / stride + 1) * stride - 1 - (low + inner);
        count = std::min(dim.size - first, room / rest + 1);
      }
      if (!split(restricted(state, widest, first, count), digit, out)) return false;
      first += count;
    }
    return true;
  }

  if (state.offset != 0) return false;
  Nest nest;
  nest.offset = state.device_offset;
  nest.other_offset = state.other_offset;
  for (const Dim& dim : state.dims) {
    if (dim.stride != 0 && dim.size > 1) return false;
    nest.dims.push_back({dim.size, dim.device, dim.other});
  }
  out.push_back(std::move(nest));
  return true;
}

std::vector<card::StrideInfo> descriptor_loops(const std::vector<Nest>& nests,
                                               bool tiled_is_destination) {
  std::vector<card::StrideInfo> loops;
  loops.reserve(nests.size());
  for (const Nest& nest : nests) {
    card::StrideInfo& info = loops.emplace_back();
    info.offset_dst = tiled_is_destination ? nest.offset : nest.other_offset;
    info.offset_src = tiled_is_destination ? nest.other_offset : nest.offset;
    c10::SmallVector<LoopDim, 6> dims(nest.dims.rbegin(), nest.dims.rend());
    std::stable_sort(dims.begin(), dims.end(),
                     [](const LoopDim& a, const LoopDim& b) { return a.stride < b.stride; });
    for (const LoopDim& dim : dims) {
      info.size.push_back(dim.size);
      info.stride_dst.push_back(tiled_is_destination ? dim.stride : dim.other);
      info.stride_src.push_back(tiled_is_destination ? dim.other : dim.stride);
    }
  }
  return loops;
}

}  // namespace spyre
