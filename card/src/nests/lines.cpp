#include "nests/lines.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <span>
#include <type_traits>
#include <utility>

#include "nests/convert_plane.h"

namespace spyre::card {
namespace {

constexpr std::size_t kTensor = 0, kLine = 1, kPosition = 2;
using Weights = std::array<std::int64_t, 3>;  // of these
constexpr std::int64_t kSparsest = 64;        // one visit for so many places is the least
constexpr std::int64_t kCacheLine = 64;
constexpr std::int64_t kFetched = 8192;  // bytes fetched ahead

template <typename T>
constexpr DataFormat kBlockFormat =
    std::is_same_v<T, float> ? DataFormat::IEEE_FP32 : DataFormat::IEEE_INT64;

/// The two innermost loops of a nest; tensor strides in bytes, block strides in elements.
struct PlaneDims {
  std::int64_t n0, n1, tensor0, tensor1, block0, block1;
};

/// floor(a / b) for b > 0.
std::int64_t floor_div(std::int64_t a, std::int64_t b) { return a / b - (a % b < 0); }

/// Narrows [first, end) to the i for which [at + i * step + low, at + i * step + high] meets
/// [begin, stop). Numbers come from checked nests and do not overflow.
void narrow_to(std::int64_t at, std::int64_t step, std::int64_t low, std::int64_t high,
               std::int64_t begin, std::int64_t stop, std::int64_t& first, std::int64_t& end) {
  const std::int64_t least = begin - at - high, most = stop - 1 - at - low;  // of i * step
  if (step == 0) {
    if (least > 0 || most < 0) end = first;
  } else if (step > 0) {
    first = std::max(first, -floor_div(-least, step));
    end = std::min(end, floor_div(most, step) + 1);
  } else {
    first = std::max(first, -floor_div(most, -step));
    end = std::min(end, floor_div(-least, -step) + 1);
  }
}

}  // namespace

// ------------------------------------------------------------------------------------------
// reading

LineView::LineView(PayloadReader& reader, const char* tensor, DataFormat format,
                   const LineShape& shape)
    : format_(format), bytes_(element_bytes(format)) {
  const char* const names[] = {tensor, shape.line_name, shape.position_name};
  LoopNests loops = read_nests(reader, names);
  visits_ = loops.visits;
  range_ = loops.range(kTensor, format);
  for (std::size_t n = 0; n < loops.nests.size(); ++n) {
    const LoopNest& nest = loops.nests[n];
    if (nest.empty()) continue;
    reader.in_loop(static_cast<std::int64_t>(n));
    // read_nests() has refused negative numbers.
    const std::int64_t line = nest.reach(kLine)->last, position = nest.reach(kPosition)->last;
    if (line >= shape.lines)
      reader.refuse(shape.line_name, std::to_string(line) + " of the " + tensor + " is not below " +
                                         std::to_string(shape.lines));
    if (position >= shape.length)
      reader.refuse(shape.position_name, std::to_string(position) + " of the " + tensor +
                                             " is not below " + std::to_string(shape.length));
    if (line > 0) one_line_ = false;
    reader.in_loop(-1);
  }
  std::erase_if(loops.nests, [](const LoopNest& nest) { return nest.empty(); });
  for (LoopNest& nest : loops.nests) shorten(nest);
  // With as many visits as there are places, no place visited twice means every place visited.
  complete_ = visits_ == shape.lines * shape.length &&
              spyre::card::distinct(loops.nests, Weights{0, shape.length, 1});
  distinct_ = spyre::card::distinct(loops.nests, Weights{1, 0, 0});
  for (LoopNest& nest : loops.nests) nests_.emplace_back(std::move(nest));
  if (run_length() > 1) runs_along_ = nests_[0].loops.stride(0, kPosition) != 0;
  if (complete_) plain_ = plain_lines();
}

void LineView::shorten(LoopNest& nest) const {
  nest.drop_single();
  nest.scale(Weights{bytes_, 1, 1});
  nest.merge();
  if (nest.rank() == 0) return;
  // What is next to each other in memory is best read in one go.
  const auto apart = [&](std::size_t loop) {
    const std::int64_t step = nest.stride(loop, kTensor);
    return step ? std::abs(step) : kMaxElements;
  };
  std::size_t nearest = 0;
  for (std::size_t loop = 1; loop < nest.rank(); ++loop)
    if (apart(loop) < apart(nearest)) nearest = loop;
  nest.bring(nearest, 0);
  // Outside is what goes from line to line, or position to position, in the largest steps: so a
  // window has no part of most of it.
  nest.sort(1, [&](std::size_t loop) {
    return std::pair{std::abs(nest.stride(loop, kLine)), std::abs(nest.stride(loop, kPosition))};
  });
  nest.merge();
}

std::optional<PlainLines> LineView::plain_lines() const {
  if (nests_.size() != 1 || nests_[0].loops.rank() == 0) return {};
  const LoopNest& nest = nests_[0].loops;
  const std::int64_t inner = nest.size(0);
  if (nest.stride(0, kTensor) != bytes_ || nest.stride(0, kPosition) != 1 ||
      nest.stride(0, kLine) != 0)
    return {};
  PlainLines::Sticks sticks{inner, 0, 1};
  std::vector<PlainLines::Dim> lines;
  std::int64_t line = 1;  // of the next loop over lines
  for (std::size_t loop = 1; loop < nest.rank(); ++loop) {
    const std::int64_t size = nest.size(loop), offset = nest.stride(loop, kTensor);
    if (nest.stride(loop, kLine) == 0 && nest.stride(loop, kPosition) == inner) {
      sticks.step = offset;
      sticks.count = size;
    } else if (nest.stride(loop, kPosition) == 0 && nest.stride(loop, kLine) == line) {
      lines.push_back({size, offset});
      line *= size;
    } else {
      return {};
    }
  }
  return PlainLines(bytes_, nest.offset(kTensor), sticks, std::move(lines));
}

void LineView::check_visits(const PayloadReader& reader, const char* tensor,
                            const LineShape& shape) const {
  const std::int64_t places = shape.lines * shape.length;
  if (visits_ <= places && places / kSparsest <= visits_) return;
  reader.refuse(tensor, "the loops visit " + std::to_string(visits_) + " elements, but " +
                            std::to_string(shape.lines) + " lines have " + std::to_string(places));
}

LineView::Nest::Nest(LoopNest shortest) : loops(std::move(shortest)), lines(1), positions(1) {
  for (std::size_t loop = 1; loop < loops.rank(); ++loop) by_offset.push_back(loop);
  std::stable_sort(by_offset.begin(), by_offset.end(), [&](std::size_t a, std::size_t b) {
    return std::abs(loops.stride(a, kTensor)) < std::abs(loops.stride(b, kTensor));
  });
  for (std::size_t loop = 0; loop < loops.rank(); ++loop) {
    const auto widened = [&](Span span, std::size_t number) {
      const std::int64_t way = (loops.size(loop) - 1) * loops.stride(loop, number);
      (way < 0 ? span.low : span.high) += way;
      return span;
    };
    lines.push_back(widened(lines.back(), kLine));
    positions.push_back(widened(positions.back(), kPosition));
  }
}

bool LineView::same_places(const LineView& other) const {
  return bytes_ == other.bytes_ &&
         std::equal(nests_.begin(), nests_.end(), other.nests_.begin(), other.nests_.end(),
                    [](const Nest& a, const Nest& b) { return a.loops == b.loops; });
}

// ------------------------------------------------------------------------------ visiting a window

/// Finds the part of a nest that lies in a window without looking at the rest, and calls
/// plane(tensor offset, block offset, dims) for rectangles of it, plane.soon() before.
template <typename Plane>
class LineView::Walk {
 public:
  Walk(const Nest& nest, const LineWindow& window, const Plane& plane)
      : nest_(nest), loops_(nest.loops), window_(window), plane_(plane) {
    for (std::size_t loop = 0; loop < loops_.rank(); ++loop) size_[loop] = loops_.size(loop);
    descend(loops_.rank(), {loops_.offset(kTensor), loops_.offset(kLine), loops_.offset(kPosition)},
            false, false);
  }

 private:
  struct At {
    std::int64_t offset, line, position;
  };
  At after(const At& at, std::size_t loop, std::int64_t times) const {
    return {at.offset + times * loops_.stride(loop, kTensor),
            at.line + times * loops_.stride(loop, kLine),
            at.position + times * loops_.stride(loop, kPosition)};
  }

  bool has_lines(std::size_t k, const At& at) const {
    return at.line + nest_.lines[k].low >= window_.line &&
           at.line + nest_.lines[k].high < window_.line + window_.lines;
  }
  bool has_positions(std::size_t k, const At& at) const {
    return at.position + nest_.positions[k].low >= window_.position &&
           at.position + nest_.positions[k].high < window_.position + window_.length;
  }

  /// Of the k innermost dimensions, from here, the part in the window. What the outer ones do is
  /// settled: they have their sizes in size_. `lines` and `positions`: all of these are in it.
  void descend(std::size_t k, const At& at, bool lines, bool positions) {
    lines = lines || has_lines(k, at);
    positions = positions || has_positions(k, at);
    if (lines && positions) return emit(at);
    if (k == 0) return;
    const std::size_t d = k - 1;
    const std::int64_t size = loops_.size(d), line_step = loops_.stride(d, kLine),
                       position_step = loops_.stride(d, kPosition);
    // A loop that only matters for what is settled stays whole, whatever the inner ones do.
    if ((lines && position_step == 0) || (positions && line_step == 0))
      return descend(d, at, lines, positions);
    std::int64_t first = 0, end = size;
    if (!lines)
      narrow_to(at.line, line_step, nest_.lines[d].low, nest_.lines[d].high, window_.line,
                window_.line + window_.lines, first, end);
    if (!positions)
      narrow_to(at.position, position_step, nest_.positions[d].low, nest_.positions[d].high,
                window_.position, window_.position + window_.length, first, end);
    if (first >= end) return;
    const At low = after(at, d, first), high = after(at, d, end - 1);
    const bool all_lines = lines || (has_lines(d, low) && has_lines(d, high));
    const bool all_positions = positions || (has_positions(d, low) && has_positions(d, high));
    if (all_lines && all_positions) {
      size_[d] = end - first;
      emit(low);
    } else {
      size_[d] = 1;
      for (std::int64_t i = first; i < end; ++i) descend(d, after(at, d, i), lines, positions);
    }
    size_[d] = size;
  }

  std::int64_t block_step(std::size_t loop) const {
    return loops_.stride(loop, kLine) * window_.line_pitch +
           loops_.stride(loop, kPosition) * window_.position_pitch;
  }

  /// size_ of all dimensions, from here.
  void emit(const At& at) const {
    const std::int64_t block = (at.line - window_.line) * window_.line_pitch +
                               (at.position - window_.position) * window_.position_pitch;
    PlaneDims dims{1, 1, 0, 0, 0, 0};
    if (loops_.rank() > 0) {
      dims.n0 = size_[0];
      dims.tensor0 = loops_.stride(0, kTensor);
      dims.block0 = block_step(0);
    }
    // What has more than one step here, as it lies in memory.
    std::size_t outer[LoopNest::kMaxRank], count = 0;
    for (const std::size_t d : nest_.by_offset) {
      if (size_[d] == 1) continue;
      if (dims.n1 > 1) {
        outer[count++] = d;
        continue;
      }
      dims.n1 = size_[d];
      dims.tensor1 = loops_.stride(d, kTensor);
      dims.block1 = block_step(d);
    }
    emit_outer({outer, count}, at.offset, block, dims);
  }

  void emit_outer(std::span<const std::size_t> outer, std::int64_t tensor, std::int64_t block,
                  const PlaneDims& dims) const {
    if (outer.empty()) return plane_(tensor, block, dims);
    const std::size_t loop = outer.back();
    const std::int64_t n = size_[loop], step = block_step(loop);
    const std::int64_t tensor_step = loops_.stride(loop, kTensor);
    const std::int64_t ahead = outer.size() == 1 ? plane_.ahead(dims) : n;
    for (std::int64_t i = 0; i < n; ++i) {
      if (i + ahead < n) plane_.soon(tensor + (i + ahead) * tensor_step, dims);
      emit_outer(outer.first(outer.size() - 1), tensor + i * tensor_step, block + i * step, dims);
    }
  }

  const Nest& nest_;
  const LoopNest& loops_;
  const LineWindow& window_;
  const Plane& plane_;
  std::int64_t size_[LoopNest::kMaxRank];
};

namespace {

/// How many planes ahead to fetch; a great many if that is of no use.
std::int64_t planes_ahead(std::int64_t bytes, const PlaneDims& dims) {
  const std::int64_t row = dims.n0 * bytes, all = row * dims.n1;
  if (dims.tensor0 != bytes || row < kCacheLine || all > kFetched) return kMaxElements;
  return kFetched / 2 / all + 1;
}

/// What is done with planes: from the tensor to the block, or back.
template <bool write, typename T>
struct ConvertPlanes {
  std::conditional_t<write, std::byte*, const std::byte*> tensor;
  std::conditional_t<write, const std::byte*, std::byte*> block;
  std::int64_t bytes;  // of an element of the tensor
  Converters convert;

  std::int64_t ahead(const PlaneDims& dims) const { return planes_ahead(bytes, dims); }
  void soon(std::int64_t at, const PlaneDims& dims) const {
    fetch<write>(in_tensor(at, dims), dims.n0, dims.n1);
  }
  void operator()(std::int64_t at, std::int64_t block_at, const PlaneDims& dims) const {
    constexpr std::int64_t kWidth = sizeof(T);
    const PlaneSide in_block{block + block_at * kWidth, kWidth, dims.block0 * kWidth,
                             dims.block1 * kWidth};
    if constexpr (write) {
      convert_plane(in_block, in_tensor(at, dims), dims.n0, dims.n1, convert.run, convert.rows);
    } else {
      convert_plane(in_tensor(at, dims), in_block, dims.n0, dims.n1, convert.run, convert.rows);
    }
  }

 private:
  auto in_tensor(std::int64_t at, const PlaneDims& dims) const {
    return PlaneSide{tensor + at, bytes, dims.tensor0, dims.tensor1};
  }
};

}  // namespace

template <typename T>
void LineView::gather(const std::byte* tensor, const LineWindow& window, T* block) const {
  const ConvertPlanes<false, T> planes{tensor, reinterpret_cast<std::byte*>(block), bytes_,
                                       Converters(format_, kBlockFormat<T>)};
  for (const Nest& nest : nests_) Walk(nest, window, planes);
}

template <typename T>
void LineView::scatter(const T* block, const LineWindow& window, std::byte* tensor,
                       Narrow narrow) const {
  const ConvertPlanes<true, T> planes{tensor, reinterpret_cast<const std::byte*>(block), bytes_,
                                      Converters(kBlockFormat<T>, format_, narrow)};
  for (const Nest& nest : nests_) Walk(nest, window, planes);
}

template void LineView::gather(const std::byte*, const LineWindow&, float*) const;
template void LineView::gather(const std::byte*, const LineWindow&, std::int64_t*) const;
template void LineView::scatter(const float*, const LineWindow&, std::byte*, Narrow) const;
template void LineView::scatter(const std::int64_t*, const LineWindow&, std::byte*, Narrow) const;

}  // namespace spyre::card
