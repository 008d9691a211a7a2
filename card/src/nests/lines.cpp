#include "nests/lines.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <span>
#include <type_traits>

namespace spyre::card {
namespace {

constexpr std::int64_t kPieces = 512;   // elements that go through a packed buffer at once
constexpr std::int64_t kSparsest = 64;  // one visit for so many places is the least
constexpr std::int64_t kCacheLine = 64;
constexpr std::int64_t kFetched = 8192;  // bytes fetched ahead

template <typename T>
constexpr DataFormat kBlockFormat =
    std::is_same_v<T, float> ? DataFormat::IEEE_FP32 : DataFormat::IEEE_INT64;

/// The two innermost loops of a nest; tensor strides in bytes, block strides in elements.
struct PlaneDims {
  std::int64_t n0, n1, tensor0, tensor1, block0, block1;
};

template <typename Element>
void copy_strided(const std::byte* src, std::int64_t src_stride, std::byte* dst,
                  std::int64_t dst_stride, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i)
    std::memcpy(dst + i * dst_stride, src + i * src_stride, sizeof(Element));
}

void copy_elements(std::int64_t bytes, const std::byte* src, std::int64_t src_stride,
                   std::byte* dst, std::int64_t dst_stride, std::int64_t n) {
  switch (bytes) {
    case 1:
      return copy_strided<std::uint8_t>(src, src_stride, dst, dst_stride, n);
    case 2:
      return copy_strided<std::uint16_t>(src, src_stride, dst, dst_stride, n);
    case 4:
      return copy_strided<std::uint32_t>(src, src_stride, dst, dst_stride, n);
    default:
      return copy_strided<std::uint64_t>(src, src_stride, dst, dst_stride, n);
  }
}

/// One side of a conversion, tensor or block: n1 rows of n0 elements.
template <typename Byte>
struct Side {
  Byte* at;
  std::int64_t bytes, step0, step1;  // all in bytes
  Byte* element(std::int64_t i0, std::int64_t i1) const { return at + i0 * step0 + i1 * step1; }
};

/// Any strides: pieces are packed, converted and unpacked.
void convert_pieces(const Side<const std::byte>& from, const Side<std::byte>& to, std::int64_t n0,
                    std::int64_t n1, ConvertRun run) {
  alignas(64) std::byte packed[kPieces * 8], converted[kPieces * 8];
  const std::int64_t columns = std::min(n0, kPieces);
  const std::int64_t rows = std::max<std::int64_t>(1, kPieces / columns);
  for (std::int64_t i1 = 0; i1 < n1; i1 += rows)
    for (std::int64_t i0 = 0; i0 < n0; i0 += columns) {
      const std::int64_t r = std::min(rows, n1 - i1), c = std::min(columns, n0 - i0);
      const std::byte* source = packed;
      if (from.step0 == from.bytes && r == 1) {
        source = from.element(i0, i1);
      } else {
        for (std::int64_t i = 0; i < r; ++i)
          copy_elements(from.bytes, from.element(i0, i1 + i), from.step0,
                        packed + i * c * from.bytes, from.bytes, c);
      }
      const auto count = static_cast<std::size_t>(r * c);
      if (to.step0 == to.bytes && r == 1) {
        run(source, to.element(i0, i1), count);
        continue;
      }
      run(source, converted, count);
      for (std::int64_t i = 0; i < r; ++i)
        copy_elements(to.bytes, converted + i * c * to.bytes, to.bytes, to.element(i0, i1 + i),
                      to.step0, c);
    }
}

void convert_plane(Side<const std::byte> from, Side<std::byte> to, std::int64_t n0, std::int64_t n1,
                   ConvertRun run, ConvertRows rows) {
  if (from.step0 != from.bytes || to.step0 != to.bytes || n0 < 8)
    return convert_pieces(from, to, n0, n1, run);
  if (from.step1 == n0 * from.bytes && to.step1 == n0 * to.bytes) {
    n0 *= n1;
    n1 = 1;
  }
  if (rows && n1 > 1)
    return rows(from.at, from.step1, to.at, to.step1, static_cast<std::size_t>(n0),
                static_cast<std::size_t>(n1));
  for (std::int64_t i = 0; i < n1; ++i)
    run(from.element(0, i), to.element(0, i), static_cast<std::size_t>(n0));
}

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
  const LoopNests loops = read_nests(reader, names);
  visits_ = loops.visits;
  range_ = loops.reach[0].bytes(format);
  for (std::size_t n = 0; n < loops.nests.size(); ++n) {
    const LoopNest& nest = loops.nests[n];
    if (std::find(nest.size.begin(), nest.size.end(), 0) != nest.size.end()) continue;
    add(nest);
    reader.in_loop(static_cast<std::int64_t>(n));
    // read_nests() has refused negative numbers.
    const Nest& added = nests_.back();
    const std::int64_t line = added.line + added.lines.back().high;
    const std::int64_t position = added.position + added.positions.back().high;
    if (line >= shape.lines)
      reader.refuse(shape.line_name, std::to_string(line) + " of the " + tensor + " is not below " +
                                         std::to_string(shape.lines));
    if (position >= shape.length)
      reader.refuse(shape.position_name, std::to_string(position) + " of the " + tensor +
                                             " is not below " + std::to_string(shape.length));
    if (line > 0) one_line_ = false;
    reader.in_loop(-1);
  }
  if (!nests_.empty() && !nests_[0].dims.empty()) {
    const Dim& inner = nests_[0].dims[0];
    runs_along_ = inner.position != 0;
  }
  // With as many visits as there are places, no place visited twice means every place visited.
  complete_ = visits_ == shape.lines * shape.length && all_distinct({0, shape.length, 1});
  distinct_ = all_distinct({1, 0, 0});
  if (complete_) plain_ = plain_lines();
}

std::optional<PlainLines> LineView::plain_lines() const {
  if (nests_.size() != 1 || nests_[0].dims.empty()) return {};
  const Nest& nest = nests_[0];
  const Dim& inner = nest.dims[0];
  if (inner.offset != bytes_ || inner.position != 1 || inner.line != 0) return {};
  PlainLines::Sticks sticks{inner.size, 0, 1};
  std::vector<PlainLines::Dim> lines;
  std::int64_t line = 1;  // of the next dimension of lines
  for (std::size_t d = 1; d < nest.dims.size(); ++d) {
    const Dim& dim = nest.dims[d];
    if (dim.line == 0 && dim.position == inner.size) {
      sticks.step = dim.offset;
      sticks.count = dim.size;
    } else if (dim.position == 0 && dim.line == line) {
      lines.push_back({dim.size, dim.offset});
      line *= dim.size;
    } else {
      return {};
    }
  }
  return PlainLines(bytes_, nest.offset, sticks, std::move(lines));
}

void LineView::check_visits(const PayloadReader& reader, const char* tensor,
                            const LineShape& shape) const {
  const std::int64_t places = shape.lines * shape.length;
  if (visits_ <= places && places / kSparsest <= visits_) return;
  reader.refuse(tensor, "the loops visit " + std::to_string(visits_) + " elements, but " +
                            std::to_string(shape.lines) + " lines have " + std::to_string(places));
}

/// Makes one of neighbours of which one goes on where the other ends.
void LineView::merge(std::vector<Dim>& dims) {
  std::vector<Dim> merged;
  for (const Dim& dim : dims) {
    if (!merged.empty()) {
      Dim& inner = merged.back();
      if (dim.offset == inner.offset * inner.size && dim.line == inner.line * inner.size &&
          dim.position == inner.position * inner.size) {
        inner.size *= dim.size;
        continue;
      }
    }
    merged.push_back(dim);
  }
  dims = std::move(merged);
}

void LineView::add(const LoopNest& from) {
  Nest& nest = nests_.emplace_back();
  nest.offset = from.offset[0] * bytes_;
  nest.line = from.offset[1];
  nest.position = from.offset[2];
  for (std::size_t d = 0; d < from.size.size(); ++d)
    if (from.size[d] > 1)
      nest.dims.push_back(
          {from.size[d], from.stride[0][d] * bytes_, from.stride[1][d], from.stride[2][d]});
  merge(nest.dims);
  // What is next to each other in memory is best read in one go.
  const auto apart = [](const Dim& dim) {
    return dim.offset ? std::abs(dim.offset) : kMaxElements;
  };
  const auto packed =
      std::min_element(nest.dims.begin(), nest.dims.end(),
                       [&](const Dim& a, const Dim& b) { return apart(a) < apart(b); });
  if (packed != nest.dims.end()) std::rotate(nest.dims.begin(), packed, packed + 1);
  // Outside is what goes from line to line, or position to position, in the largest steps: so a
  // window has no part of most of it.
  const auto steps = [](const Dim& dim) {
    return std::pair{std::abs(dim.line), std::abs(dim.position)};
  };
  if (!nest.dims.empty())
    std::stable_sort(nest.dims.begin() + 1, nest.dims.end(),
                     [&](const Dim& a, const Dim& b) { return steps(a) < steps(b); });
  merge(nest.dims);
  for (std::size_t d = 1; d < nest.dims.size(); ++d) nest.by_offset.push_back(d);
  std::stable_sort(nest.by_offset.begin(), nest.by_offset.end(), [&](std::size_t a, std::size_t b) {
    return std::abs(nest.dims[a].offset) < std::abs(nest.dims[b].offset);
  });
  nest.lines.resize(1);
  nest.positions.resize(1);
  for (const Dim& dim : nest.dims) {
    Span line = nest.lines.back(), position = nest.positions.back();
    (dim.line < 0 ? line.low : line.high) += (dim.size - 1) * dim.line;
    (dim.position < 0 ? position.low : position.high) += (dim.size - 1) * dim.position;
    nest.lines.push_back(line);
    nest.positions.push_back(position);
  }
}

/// No two visits have the same number, which is made of offset, line and position by `weights`.
bool LineView::all_distinct(const Weights& weights) const {
  if (nests_.size() > 64) return false;
  std::vector<Numbers> all;
  for (const Nest& nest : nests_) {
    Numbers& numbers = all.emplace_back();
    numbers.low = numbers.high = weights.of(nest.offset, nest.line, nest.position);
    for (const Dim& dim : nest.dims) {
      const std::int64_t step = weights.of(dim.offset, dim.line, dim.position);
      if (step < 0) numbers.low += step * (dim.size - 1);
      if (step > 0) numbers.high += step * (dim.size - 1);
      numbers.steps.emplace_back(step < 0 ? -step : step, dim.size);
    }
    // Surely so if each dimension steps over all that the smaller ones span.
    std::sort(numbers.steps.begin(), numbers.steps.end());
    std::int64_t span = 0;
    for (const auto& [step, size] : numbers.steps) {
      if (step <= span) return false;
      span += step * (size - 1);
    }
  }
  for (std::size_t i = 0; i < all.size(); ++i)
    for (std::size_t j = 0; j < i; ++j)
      if (!apart(all[i], all[j])) return false;
  return true;
}

/// Large steps that two nests have in common, as when one has the full sticks of each row and the
/// other the partial ones, do not matter: what is apart within one step is apart in all.
bool LineView::apart(Numbers a, Numbers b) {
  for (;;) {
    if (a.high < b.low || b.high < a.low) return true;
    if (a.steps.empty() || b.steps.empty() || a.steps.back() != b.steps.back()) return false;
    const auto [step, size] = a.steps.back();
    a.steps.pop_back();
    b.steps.pop_back();
    // Negative steps have been turned around: count from the low end.
    a.high -= step * (size - 1);
    b.high -= step * (size - 1);
    if (std::max(a.high, b.high) - std::min(a.low, b.low) >= step) return false;
  }
}

bool LineView::same_places(const LineView& other) const {
  return bytes_ == other.bytes_ && nests_ == other.nests_;
}

// ------------------------------------------------------------------------------ visiting a window

/// Finds the part of a nest that lies in a window without looking at the rest, and calls
/// plane(tensor offset, block offset, dims) for rectangles of it, plane.soon() before.
template <typename Plane>
class LineView::Walk {
 public:
  Walk(const Nest& nest, const LineWindow& window, const Plane& plane)
      : nest_(nest), window_(window), plane_(plane) {
    for (std::size_t d = 0; d < nest.dims.size(); ++d) size_[d] = nest.dims[d].size;
    descend(nest.dims.size(), {nest.offset, nest.line, nest.position}, false, false);
  }

 private:
  struct At {
    std::int64_t offset, line, position;
    At plus(const Dim& dim, std::int64_t times) const {
      return {offset + times * dim.offset, line + times * dim.line,
              position + times * dim.position};
    }
  };

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
    const Dim& dim = nest_.dims[d];
    // A dimension that only matters for what is settled stays whole, whatever the inner ones do.
    if ((lines && dim.position == 0) || (positions && dim.line == 0))
      return descend(d, at, lines, positions);
    std::int64_t first = 0, end = dim.size;
    if (!lines)
      narrow_to(at.line, dim.line, nest_.lines[d].low, nest_.lines[d].high, window_.line,
                window_.line + window_.lines, first, end);
    if (!positions)
      narrow_to(at.position, dim.position, nest_.positions[d].low, nest_.positions[d].high,
                window_.position, window_.position + window_.length, first, end);
    if (first >= end) return;
    const At low = at.plus(dim, first), high = at.plus(dim, end - 1);
    const bool all_lines = lines || (has_lines(d, low) && has_lines(d, high));
    const bool all_positions = positions || (has_positions(d, low) && has_positions(d, high));
    if (all_lines && all_positions) {
      size_[d] = end - first;
      emit(low);
    } else {
      size_[d] = 1;
      for (std::int64_t i = first; i < end; ++i) descend(d, at.plus(dim, i), lines, positions);
    }
    size_[d] = dim.size;
  }

  std::int64_t block_step(const Dim& dim) const {
    return dim.line * window_.line_pitch + dim.position * window_.position_pitch;
  }

  /// size_ of all dimensions, from here.
  void emit(const At& at) const {
    const std::int64_t block = (at.line - window_.line) * window_.line_pitch +
                               (at.position - window_.position) * window_.position_pitch;
    PlaneDims dims{1, 1, 0, 0, 0, 0};
    if (!nest_.dims.empty()) {
      dims.n0 = size_[0];
      dims.tensor0 = nest_.dims[0].offset;
      dims.block0 = block_step(nest_.dims[0]);
    }
    // What has more than one step here, as it lies in memory.
    std::size_t outer[64], count = 0;
    for (const std::size_t d : nest_.by_offset) {
      if (size_[d] == 1) continue;
      if (dims.n1 > 1) {
        outer[count++] = d;
        continue;
      }
      dims.n1 = size_[d];
      dims.tensor1 = nest_.dims[d].offset;
      dims.block1 = block_step(nest_.dims[d]);
    }
    emit_outer({outer, count}, at.offset, block, dims);
  }

  void emit_outer(std::span<const std::size_t> outer, std::int64_t tensor, std::int64_t block,
                  const PlaneDims& dims) const {
    if (outer.empty()) return plane_(tensor, block, dims);
    const Dim& dim = nest_.dims[outer.back()];
    const std::int64_t n = size_[outer.back()], step = block_step(dim);
    const std::int64_t ahead = outer.size() == 1 ? plane_.ahead(dims) : n;
    for (std::int64_t i = 0; i < n; ++i) {
      if (i + ahead < n) plane_.soon(tensor + (i + ahead) * dim.offset, dims);
      emit_outer(outer.first(outer.size() - 1), tensor + i * dim.offset, block + i * step, dims);
    }
  }

  const Nest& nest_;
  const LineWindow& window_;
  const Plane& plane_;
  std::int64_t size_[64];
};

namespace {

/// The memory of a plane that is soon to be read or written. Planes are short pieces here and
/// there, of which a host's own prefetching sees only the end.
template <bool write>
void fetch(const std::byte* tensor, std::int64_t bytes, const PlaneDims& dims) {
  const std::int64_t row = dims.n0 * bytes;
  for (std::int64_t i = 0; i < dims.n1; ++i)
    for (std::int64_t at = 0; at < row; at += kCacheLine)
      __builtin_prefetch(tensor + i * dims.tensor1 + at, write, 2);
}

/// How many planes ahead to fetch; a great many if that is of no use.
std::int64_t planes_ahead(std::int64_t bytes, const PlaneDims& dims) {
  const std::int64_t row = dims.n0 * bytes, all = row * dims.n1;
  if (dims.tensor0 != bytes || row < kCacheLine || all > kFetched) return kMaxElements;
  return kFetched / 2 / all + 1;
}

template <typename T>
struct GatherPlane {
  const std::byte* tensor;
  std::byte* block;
  std::int64_t bytes;
  ConvertRun run;
  ConvertRows rows;

  std::int64_t ahead(const PlaneDims& dims) const { return planes_ahead(bytes, dims); }
  void soon(std::int64_t from, const PlaneDims& dims) const {
    fetch<false>(tensor + from, bytes, dims);
  }
  void operator()(std::int64_t from, std::int64_t to, const PlaneDims& dims) const {
    constexpr std::int64_t kWidth = sizeof(T);
    convert_plane({tensor + from, bytes, dims.tensor0, dims.tensor1},
                  {block + to * kWidth, kWidth, dims.block0 * kWidth, dims.block1 * kWidth},
                  dims.n0, dims.n1, run, rows);
  }
};

template <typename T>
struct ScatterPlane {
  std::byte* tensor;
  const std::byte* block;
  std::int64_t bytes;
  ConvertRun run;
  ConvertRows rows;

  std::int64_t ahead(const PlaneDims& dims) const { return planes_ahead(bytes, dims); }
  void soon(std::int64_t to, const PlaneDims& dims) const { fetch<true>(tensor + to, bytes, dims); }
  void operator()(std::int64_t to, std::int64_t from, const PlaneDims& dims) const {
    constexpr std::int64_t kWidth = sizeof(T);
    convert_plane({block + from * kWidth, kWidth, dims.block0 * kWidth, dims.block1 * kWidth},
                  {tensor + to, bytes, dims.tensor0, dims.tensor1}, dims.n0, dims.n1, run, rows);
  }
};

}  // namespace

template <typename T>
void LineView::gather(const std::byte* tensor, const LineWindow& window, T* block) const {
  const GatherPlane<T> plane{tensor, reinterpret_cast<std::byte*>(block), bytes_,
                             converter(format_, kBlockFormat<T>),
                             row_converter(format_, kBlockFormat<T>)};
  for (const Nest& nest : nests_) Walk(nest, window, plane);
}

template <typename T>
void LineView::scatter(const T* block, const LineWindow& window, std::byte* tensor,
                       Narrow narrow) const {
  const ScatterPlane<T> plane{
      tensor, reinterpret_cast<const std::byte*>(block), bytes_,
      converter(kBlockFormat<T>, format_, narrow),
      narrow == Narrow::none ? row_converter(kBlockFormat<T>, format_) : nullptr};
  for (const Nest& nest : nests_) Walk(nest, window, plane);
}

template void LineView::gather(const std::byte*, const LineWindow&, float*) const;
template void LineView::gather(const std::byte*, const LineWindow&, std::int64_t*) const;
template void LineView::scatter(const float*, const LineWindow&, std::byte*, Narrow) const;
template void LineView::scatter(const std::int64_t*, const LineWindow&, std::byte*, Narrow) const;

}  // namespace spyre::card
