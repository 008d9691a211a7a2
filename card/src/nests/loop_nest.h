// Loops over several tensors at once: what steps go by, whatever they compute.
//
// A nest says for each of its iterations which place it has in each tensor. What steps have to know
// of nests, and what they do with them, is here: the shortest form of a nest, whether places are
// distinct, how far they reach, parts for threads, going through all of it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace spyre::card {

/// Loop 0 is the innermost one. Places, and so offsets and strides, count elements or, after
/// scale(), bytes. Arithmetic on places does not overflow where reach() has been asked before.
class LoopNest {
 public:
  /// Loops of two iterations or more: a nest of more has more iterations than a card has bytes.
  static constexpr std::size_t kMaxRank = 64;

  struct Reach {
    std::int64_t first, last;
    /// By a loop. False: beyond 64 bits.
    bool widen(std::int64_t size, std::int64_t stride) {
      std::int64_t way;
      if (__builtin_mul_overflow(size - 1, stride, &way)) return false;
      std::int64_t& end = way < 0 ? first : last;
      return !__builtin_add_overflow(end, way, &end);
    }
  };
  /// How one loop is cut into parts for threads; the last may be smaller.
  struct Cut {
    std::size_t loop;
    std::int64_t piece, parts;
  };

  /// One iteration, at place 0 of each tensor; room for so many loops.
  explicit LoopNest(std::size_t tensors, std::size_t loops = 4) : tensors_(tensors) {
    words_.reserve(tensors + loops * (1 + tensors));
    words_.resize(tensors);
  }

  /// Puts a loop around the others.
  void add(std::int64_t size, std::span<const std::int64_t> strides);
  void add(std::int64_t size, std::initializer_list<std::int64_t> strides) {
    add(size, std::span(strides.begin(), strides.size()));
  }

  std::size_t tensors() const { return tensors_; }
  std::size_t rank() const { return rank_; }
  /// Of the iteration that is the first one.
  std::int64_t offset(std::size_t tensor) const { return words_[tensor]; }
  std::int64_t& offset(std::size_t tensor) { return words_[tensor]; }
  std::int64_t size(std::size_t loop) const { return row(loop)[0]; }
  std::int64_t& size(std::size_t loop) { return row(loop)[0]; }
  std::int64_t stride(std::size_t loop, std::size_t tensor) const { return row(loop)[1 + tensor]; }
  std::int64_t& stride(std::size_t loop, std::size_t tensor) { return row(loop)[1 + tensor]; }
  std::span<const std::int64_t> strides(std::size_t loop) const {
    return {row(loop) + 1, tensors_};
  }
  /// 0 without such a loop.
  std::int64_t stride_or_0(std::size_t loop, std::size_t tensor) const {
    return loop < rank_ ? stride(loop, tensor) : 0;
  }
  std::span<const std::int64_t> offsets() const { return {words_.data(), tensors_}; }

  bool empty() const;
  /// Iterations of the loops from this one on.
  std::int64_t count(std::size_t from = 0) const;
  /// First and last place in the tensor, of a nest that is not empty. None: beyond 64 bits.
  std::optional<Reach> reach(std::size_t tensor) const;

  /// Places become so many times as large, by tensor.
  void scale(std::span<const std::int64_t> factors);
  /// Of the loop, the first iteration is left.
  void drop(std::size_t loop);
  /// Loops of one iteration.
  void drop_single();
  /// Loops to be run in any order: turned and sorted so that the strides of this tensor ascend. If
  /// iterations share places there, or it is hard to see, nothing is done: false.
  bool sort_by(std::size_t tensor);
  /// Makes one loop of each two neighbours that are linear in all tensors.
  void merge();
  /// The shortest form to write this tensor by. Where each round of a loop writes the same places,
  /// the last one is left. False: iterations share places, and their order is kept.
  bool shorten_for(std::size_t written);
  /// Sorts the loops from this one on by key(loop), smallest first.
  template <class Key>
  void sort(std::size_t from, const Key& key);
  /// A loop comes to lie further in; those between move out.
  void bring(std::size_t loop, std::size_t to);

  /// Cuts the outermost loop that has as many iterations as parts are wanted, else the longest. The
  /// loops below `fine` are cut at multiples of `grain` if pieces are longer than that.
  Cut cut(std::int64_t wanted, std::size_t fine, std::int64_t grain) const;
  Cut cut_loop(std::size_t loop, std::int64_t wanted, std::int64_t grain) const;
  LoopNest part(const Cut& cut, std::int64_t index) const;

  bool operator==(const LoopNest&) const = default;

 private:
  std::int64_t* row(std::size_t loop) { return words_.data() + tensors_ + loop * (1 + tensors_); }
  const std::int64_t* row(std::size_t loop) const {
    return words_.data() + tensors_ + loop * (1 + tensors_);
  }
  void turn(std::size_t loop);

  std::size_t tensors_, rank_ = 0;
  std::vector<std::int64_t> words_;  // offsets; then of each loop: size, strides
};

/// The same loops over two of the tensors.
std::vector<LoopNest> over(std::span<const LoopNest> nests, std::size_t first, std::size_t second);

/// No two iterations of all these nests have the same number, which is the sum of their places in
/// each tensor times its weight. False also where that is hard to see.
bool distinct(std::span<const LoopNest> nests, std::span<const std::int64_t> weights);

/// Each nest reaches places in the tensor that are all behind those of the one before.
bool ascending(std::span<const LoopNest> nests, std::size_t tensor);

template <class Key>
void LoopNest::sort(std::size_t from, const Key& key) {
  for (std::size_t end = from + 1; end < rank_; ++end)
    for (std::size_t loop = end; loop > from && key(loop) < key(loop - 1); --loop)
      std::swap_ranges(row(loop - 1), row(loop), row(loop));
}

/// Calls run(places, count) for the iterations [first, first + count) of the loops from `inner` on,
/// in their order, a row of loop `inner` at a time; the loops further in stand still. `places` has
/// one for each tensor: where the row begins. An array, the offsets or others, is changed on the
/// way. A nest that has no such loop has one row, of one iteration.
template <class Places, class Run>
void each_row(const LoopNest& nest, std::size_t inner, std::int64_t first, std::int64_t count,
              Places places, Run&& run) {
  const std::size_t rank = nest.rank();
  const auto move = [&](std::size_t loop, std::int64_t iterations) {
    for (std::size_t k = 0; k < places.size(); ++k) places[k] += iterations * nest.stride(loop, k);
  };
  if (count <= 0) return;
  if (inner >= rank) return run(std::as_const(places), std::int64_t{1});
  std::int64_t done[LoopNest::kMaxRank];
  for (std::size_t loop = inner; loop < rank; ++loop) {
    done[loop] = first % nest.size(loop);
    first /= nest.size(loop);
    if (done[loop] > 0) move(loop, done[loop]);
  }
  for (;;) {
    const std::int64_t row = std::min(count, nest.size(inner) - done[inner]);
    run(std::as_const(places), row);
    count -= row;
    if (count <= 0) return;
    if (done[inner] > 0) move(inner, -done[inner]);
    done[inner] = 0;
    for (std::size_t loop = inner + 1;; ++loop) {
      if (++done[loop] < nest.size(loop)) {
        move(loop, 1);
        break;
      }
      move(loop, 1 - nest.size(loop));
      done[loop] = 0;
    }
  }
}

/// All iterations of the loops from `inner` on.
template <class Places, class Run>
void each_row(const LoopNest& nest, std::size_t inner, Places places, Run&& run) {
  const std::int64_t count = inner < nest.rank() ? nest.count(inner) : 1;
  each_row(nest, inner, 0, count, std::move(places), run);
}

}  // namespace spyre::card
