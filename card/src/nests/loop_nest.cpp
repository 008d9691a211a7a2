#include "nests/loop_nest.h"

#include <cstdlib>
#include <limits>
#include <utility>

namespace spyre::card {
namespace {

/// The numbers that the iterations of a nest have.
struct Numbers {
  std::int64_t low, high;
  std::vector<std::pair<std::int64_t, std::int64_t>> steps;  // step and size, smallest step first

  Numbers(const LoopNest& nest, std::span<const std::int64_t> weights) {
    const auto sum = [&](auto&& place) {
      std::int64_t all = 0;
      for (std::size_t k = 0; k < weights.size(); ++k) all += weights[k] * place(k);
      return all;
    };
    low = high = sum([&](std::size_t k) { return nest.offset(k); });
    for (std::size_t loop = 0; loop < nest.rank(); ++loop) {
      if (nest.size(loop) == 1) continue;
      const std::int64_t step = sum([&](std::size_t k) { return nest.stride(loop, k); });
      (step < 0 ? low : high) += step * (nest.size(loop) - 1);
      steps.emplace_back(std::abs(step), nest.size(loop));
    }
    std::sort(steps.begin(), steps.end());
  }

  /// Surely so if each loop steps over all that the smaller ones span.
  bool distinct() const {
    std::int64_t span = 0;
    for (const auto& [step, size] : steps) {
      if (step <= span) return false;
      span += step * (size - 1);
    }
    return true;
  }
};

/// Large steps that two nests have in common, as when one has the full sticks of each row and the
/// other the partial ones, do not matter: what is apart within one step is apart in all.
bool apart(Numbers a, Numbers b) {
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

}  // namespace

void LoopNest::add(std::int64_t size, std::span<const std::int64_t> strides) {
  words_.resize(words_.size() + 1 + tensors_);
  ++rank_;
  this->size(rank_ - 1) = size;
  std::copy_n(strides.begin(), tensors_, row(rank_ - 1) + 1);
}

bool LoopNest::empty() const {
  for (std::size_t loop = 0; loop < rank_; ++loop)
    if (size(loop) == 0) return true;
  return false;
}

std::int64_t LoopNest::count(std::size_t from) const {
  std::int64_t count = 1;
  for (std::size_t loop = from; loop < rank_; ++loop) count *= size(loop);
  return count;
}

std::optional<LoopNest::Reach> LoopNest::reach(std::size_t tensor) const {
  Reach reach{offset(tensor), offset(tensor)};
  for (std::size_t loop = 0; loop < rank_; ++loop)
    if (!reach.widen(size(loop), stride(loop, tensor))) return {};
  return reach;
}

void LoopNest::scale(std::span<const std::int64_t> factors) {
  for (std::size_t k = 0; k < tensors_; ++k) {
    offset(k) *= factors[k];
    for (std::size_t loop = 0; loop < rank_; ++loop) stride(loop, k) *= factors[k];
  }
}

void LoopNest::drop(std::size_t loop) {
  const auto begin = words_.begin() + (row(loop) - words_.data());
  words_.erase(begin, begin + 1 + static_cast<std::ptrdiff_t>(tensors_));
  --rank_;
}

void LoopNest::drop_single() {
  for (std::size_t loop = rank_; loop-- > 0;)
    if (size(loop) == 1) drop(loop);
}

void LoopNest::turn(std::size_t loop) {
  for (std::size_t k = 0; k < tensors_; ++k) {
    offset(k) += (size(loop) - 1) * stride(loop, k);
    stride(loop, k) = -stride(loop, k);
  }
}

bool LoopNest::sort_by(std::size_t tensor) {
  const auto step = [&](std::size_t loop) { return std::abs(stride(loop, tensor)); };
  std::size_t order[kMaxRank];
  for (std::size_t end = 0; end < rank_; ++end) {
    std::size_t at = end;
    for (; at > 0 && step(end) < step(order[at - 1]); --at) order[at] = order[at - 1];
    order[at] = end;
  }
  // Surely distinct if each loop steps over all that the smaller ones span.
  std::int64_t span = 0;
  for (std::size_t i = 0; i < rank_; ++i) {
    if (step(order[i]) <= span) return false;
    span += (size(order[i]) - 1) * step(order[i]);
  }
  for (std::size_t loop = 0; loop < rank_; ++loop)
    if (stride(loop, tensor) < 0) turn(loop);
  sort(0, [&](std::size_t loop) { return stride(loop, tensor); });
  return true;
}

void LoopNest::merge() {
  std::size_t kept = 0;
  for (std::size_t loop = 1; loop < rank_; ++loop) {
    bool linear = true;
    for (std::size_t k = 0; k < tensors_; ++k)
      linear &= stride(loop, k) == stride(kept, k) * size(kept);
    if (linear) {
      size(kept) *= size(loop);
    } else if (++kept != loop) {
      std::copy_n(row(loop), 1 + tensors_, row(kept));
    }
  }
  while (rank_ > kept + 1) drop(rank_ - 1);
}

bool LoopNest::shorten_for(std::size_t written) {
  for (std::size_t loop = rank_; loop-- > 0;) {
    if (size(loop) > 1 && stride(loop, written) != 0) continue;
    for (std::size_t k = 0; k < tensors_; ++k) offset(k) += (size(loop) - 1) * stride(loop, k);
    drop(loop);
  }
  const bool sorted = sort_by(written);
  merge();
  return sorted;
}

void LoopNest::bring(std::size_t loop, std::size_t to) {
  std::rotate(row(to), row(loop), row(loop + 1));
}

LoopNest::Cut LoopNest::cut(std::int64_t wanted, std::size_t fine, std::int64_t grain) const {
  std::size_t cut = rank_ - 1;
  for (std::size_t loop = rank_; loop-- > 0 && size(cut) < wanted;)
    if (size(loop) > size(cut)) cut = loop;
  return cut_loop(cut, wanted, cut < fine ? grain : 1);
}

LoopNest::Cut LoopNest::cut_loop(std::size_t loop, std::int64_t wanted, std::int64_t grain) const {
  std::int64_t piece = (size(loop) + wanted - 1) / wanted;
  if (piece > grain) piece = (piece + grain - 1) / grain * grain;
  return {loop, piece, (size(loop) + piece - 1) / piece};
}

LoopNest LoopNest::part(const Cut& cut, std::int64_t index) const {
  LoopNest part = *this;
  const std::int64_t first = index * cut.piece;
  for (std::size_t k = 0; k < tensors_; ++k) part.offset(k) += first * stride(cut.loop, k);
  part.size(cut.loop) = std::min(cut.piece, size(cut.loop) - first);
  return part;
}

std::vector<LoopNest> over(std::span<const LoopNest> nests, std::size_t first, std::size_t second) {
  std::vector<LoopNest> result;
  for (const LoopNest& nest : nests) {
    LoopNest& both = result.emplace_back(2);
    both.offset(0) = nest.offset(first);
    both.offset(1) = nest.offset(second);
    for (std::size_t loop = 0; loop < nest.rank(); ++loop)
      both.add(nest.size(loop), {nest.stride(loop, first), nest.stride(loop, second)});
  }
  return result;
}

bool distinct(std::span<const LoopNest> nests, std::span<const std::int64_t> weights) {
  constexpr std::size_t kMost = 64;  // nests that are compared with each other
  if (nests.size() > kMost) return false;
  std::vector<Numbers> all;
  for (const LoopNest& nest : nests) {
    if (nest.empty()) continue;
    const Numbers& numbers = all.emplace_back(nest, weights);
    if (!numbers.distinct()) return false;
    for (std::size_t other = 0; other + 1 < all.size(); ++other)
      if (!apart(numbers, all[other])) return false;
  }
  return true;
}

bool ascending(std::span<const LoopNest> nests, std::size_t tensor) {
  std::int64_t end = std::numeric_limits<std::int64_t>::min();
  for (const LoopNest& nest : nests) {
    if (nest.empty()) continue;
    const LoopNest::Reach reach = *nest.reach(tensor);
    if (reach.first < end) return false;
    end = reach.last + 1;
  }
  return true;
}

}  // namespace spyre::card
