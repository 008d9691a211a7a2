// Which parts of a memory are allocated, and which free parts are worth using again.
//
// Pure bookkeeping over offsets: it touches no memory. Free blocks come in two kinds. *Cold* blocks
// have no host memory behind them; neighbours are always merged. *Warm* blocks were freed recently
// and still have theirs; they stay apart, so that a loop that allocates and frees the same sizes
// gets the same blocks back without a page fault, and are bounded in bytes: the oldest turn cold.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

namespace spyre::card {

/// Best fit, lowest address first among equals; every operation is O(log n). Not thread safe.
class Blocks {
 public:
  /// Told which range lost its last user; whole granules only, so that pages can be given back.
  using Discard = std::function<void(std::uint64_t offset, std::uint64_t bytes)>;

  struct Shape {
    std::uint64_t capacity;       ///< bytes
    std::uint64_t segment_bytes;  ///< no block crosses a multiple of it
    std::uint64_t warm_limit;     ///< bytes of free blocks kept warm
    std::uint64_t granule;        ///< unit of Discard
  };

  struct Usage {
    std::uint64_t free, largest_free_block, allocations;
  };

  Blocks(const Shape& shape, Discard discard);

  /// Offset of a new block, or nothing. `bytes` is a positive multiple of the granularity.
  std::optional<std::uint64_t> allocate(std::uint64_t bytes);
  /// False if no block starts at `offset`.
  bool free(std::uint64_t offset);
  /// Size of the allocated block that starts at `offset`, if there is one.
  std::optional<std::uint64_t> size_of(std::uint64_t offset) const;

  /// Offset and size of every allocated block.
  std::vector<std::pair<std::uint64_t, std::uint64_t>> allocated() const;

  /// Turn all warm blocks cold.
  void trim();
  /// Walks all blocks: for reports and error messages.
  Usage usage() const;
  /// No block has ever ended beyond this offset.
  std::uint64_t high_water() const { return high_water_; }

 private:
  enum class State { allocated, cold, warm };

  struct Block {
    std::uint64_t offset, bytes;
    State state;
    std::uint64_t age;  // key in ages_ while warm
    std::uint64_t end() const { return offset + bytes; }
  };
  using Position = std::list<Block>::iterator;
  using BySize = std::map<std::pair<std::uint64_t, std::uint64_t>, Position>;  // (bytes, offset)

  static std::pair<std::uint64_t, std::uint64_t> size_key(const Block& block) {
    return {block.bytes, block.offset};
  }

  Position take(BySize& pool, BySize::iterator fit, std::uint64_t bytes);
  void add_warm(Position block);
  void remove_warm(Position block);
  void make_cold(Position block);
  bool same_segment(const Block& a, const Block& b) const;

  const Shape shape_;
  const Discard discard_;
  std::list<Block> blocks_;  // all of them, by address
  std::unordered_map<std::uint64_t, Position> allocated_;
  BySize cold_, warm_;
  std::map<std::uint64_t, Position> ages_;  // warm blocks, oldest first
  std::uint64_t next_age_ = 0, warm_bytes_ = 0, free_bytes_, high_water_ = 0;
};

}  // namespace spyre::card
