#include "memory/blocks.h"

#include <algorithm>
#include <iterator>

namespace spyre::card {

namespace {

std::uint64_t round_down(std::uint64_t value, std::uint64_t unit) { return value / unit * unit; }
std::uint64_t round_up(std::uint64_t value, std::uint64_t unit) {
  return round_down(value + unit - 1, unit);
}

}  // namespace

Blocks::Blocks(const Shape& shape, Discard discard)
    : shape_(shape), discard_(std::move(discard)), free_bytes_(shape.capacity) {
  for (std::uint64_t base = 0; base < shape_.capacity; base += shape_.segment_bytes) {
    const std::uint64_t bytes = std::min(shape_.segment_bytes, shape_.capacity - base);
    const auto block = blocks_.insert(blocks_.end(), {base, bytes, State::cold, 0});
    cold_.emplace(size_key(*block), block);
  }
}

std::optional<std::uint64_t> Blocks::allocate(std::uint64_t bytes) {
  if (bytes > free_bytes_) return std::nullopt;
  // A warm block is taken if it fits closely: cutting small pieces from a large one would spoil it
  // for the next allocation of its own size.
  auto fit = warm_.lower_bound({bytes, 0});
  Position block;
  if (fit != warm_.end() && fit->first.first <= bytes + bytes / 4) {
    remove_warm(fit->second);
    block = take(warm_, fit, bytes);
  } else {
    fit = cold_.lower_bound({bytes, 0});
    if (fit == cold_.end()) {
      trim();  // warm blocks may be what keeps cold ones apart
      fit = cold_.lower_bound({bytes, 0});
      if (fit == cold_.end()) return std::nullopt;
    }
    block = take(cold_, fit, bytes);
  }
  block->state = State::allocated;
  allocated_.emplace(block->offset, block);
  free_bytes_ -= bytes;
  high_water_ = std::max(high_water_, block->end());
  return block->offset;
}

/// Removes a free block from its pool, cut to size; what is left over stays free in that pool.
Blocks::Position Blocks::take(BySize& pool, BySize::iterator fit, std::uint64_t bytes) {
  const Position block = fit->second;
  const bool warm = block->state == State::warm;
  pool.erase(fit);
  if (block->bytes > bytes) {
    const auto rest = blocks_.insert(std::next(block),
                                     {block->offset + bytes, block->bytes - bytes, State::cold, 0});
    block->bytes = bytes;
    if (warm) {
      add_warm(rest);
    } else {
      cold_.emplace(size_key(*rest), rest);
    }
  }
  return block;
}

bool Blocks::free(std::uint64_t offset) {
  const auto found = allocated_.find(offset);
  if (found == allocated_.end()) return false;
  const Position block = found->second;
  allocated_.erase(found);
  free_bytes_ += block->bytes;
  if (block->bytes > shape_.warm_limit) {
    make_cold(block);
    return true;
  }
  add_warm(block);
  while (warm_bytes_ > shape_.warm_limit) {
    const Position oldest = ages_.begin()->second;
    remove_warm(oldest);
    warm_.erase(size_key(*oldest));
    make_cold(oldest);
  }
  return true;
}

std::optional<std::uint64_t> Blocks::size_of(std::uint64_t offset) const {
  const auto found = allocated_.find(offset);
  if (found == allocated_.end()) return std::nullopt;
  return found->second->bytes;
}

std::vector<std::pair<std::uint64_t, std::uint64_t>> Blocks::allocated() const {
  std::vector<std::pair<std::uint64_t, std::uint64_t>> blocks;
  for (const auto& [offset, block] : allocated_) blocks.emplace_back(offset, block->bytes);
  return blocks;
}

void Blocks::trim() {
  while (!ages_.empty()) {
    const Position block = ages_.begin()->second;
    remove_warm(block);
    warm_.erase(size_key(*block));
    make_cold(block);
  }
}

Blocks::Usage Blocks::usage() const {
  Usage usage{free_bytes_, 0, allocated_.size()};
  std::uint64_t run = 0;
  const Block* previous = nullptr;
  for (const Block& block : blocks_) {
    const bool joins =
        previous && previous->state != State::allocated && same_segment(*previous, block);
    run = block.state == State::allocated ? 0 : (joins ? run : 0) + block.bytes;
    usage.largest_free_block = std::max(usage.largest_free_block, run);
    previous = &block;
  }
  return usage;
}

void Blocks::add_warm(Position block) {
  block->state = State::warm;
  block->age = next_age_++;
  ages_.emplace_hint(ages_.end(), block->age, block);
  warm_.emplace(size_key(*block), block);
  warm_bytes_ += block->bytes;
}

/// Everything but the entry in warm_: the caller has its iterator or needs it for another search.
void Blocks::remove_warm(Position block) {
  ages_.erase(block->age);
  warm_bytes_ -= block->bytes;
}

/// Merges the block with its cold neighbours and discards the granules that thereby became unused.
void Blocks::make_cold(Position block) {
  const std::uint64_t begin = block->offset, end = block->end();
  block->state = State::cold;
  if (block != blocks_.begin()) {
    const auto before = std::prev(block);
    if (before->state == State::cold && same_segment(*before, *block)) {
      cold_.erase(size_key(*before));
      block->offset = before->offset;
      block->bytes += before->bytes;
      blocks_.erase(before);
    }
  }
  const auto after = std::next(block);
  if (after != blocks_.end() && after->state == State::cold && same_segment(*block, *after)) {
    cold_.erase(size_key(*after));
    block->bytes += after->bytes;
    blocks_.erase(after);
  }
  cold_.emplace(size_key(*block), block);

  // A granule at the edge of the freed block may be shared with a neighbour; it goes when the
  // merged block covers it. Beyond the capacity there is nobody to share with.
  const std::uint64_t granule = shape_.granule;
  const std::uint64_t covered_end = block->end() == shape_.capacity
                                        ? round_up(block->end(), granule)
                                        : round_down(block->end(), granule);
  const std::uint64_t first =
      std::max(round_down(begin, granule), round_up(block->offset, granule));
  const std::uint64_t last = std::min(round_up(end, granule), covered_end);
  if (first < last) discard_(first, last - first);
}

bool Blocks::same_segment(const Block& a, const Block& b) const {
  return a.offset / shape_.segment_bytes == b.offset / shape_.segment_bytes;
}

}  // namespace spyre::card
