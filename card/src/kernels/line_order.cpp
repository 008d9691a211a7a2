#include "kernels/line_order.h"

#include <algorithm>
#include <array>
#include <bit>
#include <compare>
#include <type_traits>

namespace spyre::card {
namespace {

constexpr std::int64_t kRadixWorthwhile = 512;  // shorter lines are sorted by comparing
constexpr std::uint64_t kNanKey = 0xFFFFFFFF;

/// The usual item: 32 bits of key above 32 bits of position.
using Packed = std::uint64_t;

/// For keys or positions beyond 32 bits.
struct Wide {
  std::uint64_t key;
  std::int64_t position;
  auto operator<=>(const Wide&) const = default;
};

std::int64_t position_of(Packed item) { return static_cast<std::int64_t>(item & 0xFFFFFFFF); }
std::int64_t position_of(const Wide& item) { return item.position; }
std::uint64_t key_of(Packed item) { return item >> 32; }
std::uint64_t key_of(const Wide& item) { return item.key; }

bool is_nan(float value) { return value != value; }
bool is_nan(std::int64_t) { return false; }

std::uint64_t ascending_key(float value) {
  if (is_nan(value)) return kNanKey;
  const auto bits = std::bit_cast<std::uint32_t>(value + 0.0f);  // -0 becomes 0
  return bits >> 31 ? ~bits : bits | 0x80000000;
}
std::uint64_t ascending_key(std::int64_t value) {
  return static_cast<std::uint64_t>(value) ^ (std::uint64_t{1} << 63);
}

/// Keys of one line, from 0 on. For floats they have 32 bits.
template <typename T>
struct Keys {
  const T* line;
  bool descending;
  std::uint64_t low, high;

  Keys(const T* values, std::int64_t length, bool down) : line(values), descending(down) {
    low = 0;
    high = kNanKey;
    if constexpr (std::is_same_v<T, std::int64_t>) {
      if (length == 0) return;
      const auto [least, most] = std::minmax_element(values, values + length);
      low = ascending_key(*least);
      high = ascending_key(*most);
    }
  }
  std::uint64_t operator()(std::int64_t position) const {
    const std::uint64_t key = ascending_key(line[position]);
    return descending ? high - key : key - low;
  }
  bool fit_32_bits() const { return high - low <= 0xFFFFFFFF; }
};

template <typename Item, typename T>
Item item_at(const Keys<T>& keys, std::int64_t position) {
  if constexpr (std::is_same_v<Item, Packed>) {
    return keys(position) << 32 | static_cast<std::uint64_t>(position);
  } else {
    return {keys(position), position};
  }
}

void sort_items(Wide* items, std::int64_t count, Wide*) { std::sort(items, items + count); }

/// Items come in the order of their positions, and each pass keeps the order of equals.
void sort_items(Packed* items, std::int64_t count, Packed* room) {
  if (count < kRadixWorthwhile) {
    std::sort(items, items + count);
    return;
  }
  constexpr int kDigits = 4, kDigitBits = 8;
  std::array<std::array<std::int64_t, 256>, kDigits> counts{};
  for (std::int64_t i = 0; i < count; ++i)
    for (int digit = 0; digit < kDigits; ++digit)
      ++counts[static_cast<std::size_t>(digit)][items[i] >> (32 + kDigitBits * digit) & 0xFF];
  Packed *from = items, *to = room;
  for (int digit = 0; digit < kDigits; ++digit) {
    auto& count_of = counts[static_cast<std::size_t>(digit)];
    const int shift = 32 + kDigitBits * digit;
    if (count_of[from[0] >> shift & 0xFF] == count) continue;  // all have the same digit
    std::int64_t at = 0;
    for (std::int64_t& each : count_of) {
      const std::int64_t start = at;
      at += each;
      each = start;
    }
    for (std::int64_t i = 0; i < count; ++i) to[count_of[from[i] >> shift & 0xFF]++] = from[i];
    std::swap(from, to);
  }
  if (from != items) std::copy(from, from + count, items);
}

/// The `wanted` smallest of `length` items, in order. Few of many are found in one pass that
/// remembers little more than those.
template <typename Item, typename T>
void take_first(const Keys<T>& keys, std::int64_t length, std::int64_t wanted, Item* items) {
  if (wanted == 0) return;
  if (wanted > length / 8) {
    for (std::int64_t i = 0; i < length; ++i) items[i] = item_at<Item>(keys, i);
    return sort_items(items, length, items + length);
  }
  const std::int64_t room = std::min(length, 4 * wanted + 256);
  for (std::int64_t i = 0; i < room; ++i) items[i] = item_at<Item>(keys, i);
  const auto keep_wanted = [&](std::int64_t count) {
    std::nth_element(items, items + wanted - 1, items + count);
    return items[wanted - 1];
  };
  Item bound = keep_wanted(room);
  std::int64_t held = wanted;
  for (std::int64_t i = room; i < length; ++i) {
    const Item item = item_at<Item>(keys, i);
    if (!(item < bound)) continue;
    items[held++] = item;
    if (held < room) continue;
    bound = keep_wanted(held);
    held = wanted;
  }
  std::sort(items, items + held);
}

template <typename Item, typename T>
std::int64_t take_at(const Keys<T>& keys, std::int64_t length, std::int64_t number, Item* items) {
  for (std::int64_t i = 0; i < length; ++i) items[i] = item_at<Item>(keys, i);
  std::nth_element(items, items + number, items + length);
  return position_of(items[number]);
}

template <typename Item, typename T>
std::int64_t most_frequent(const Keys<T>& keys, std::int64_t length, Item* items) {
  take_first(keys, length, length, items);
  std::int64_t best = 0, most = 0, run = 0;
  for (std::int64_t i = 0; i < length; ++i) {
    run = i > 0 && key_of(items[i]) == key_of(items[i - 1]) ? run + 1 : 1;
    if (run <= most) continue;
    most = run;
    best = position_of(items[i]);
  }
  return best;
}

template <typename Item, typename T>
void order(const T* line, const Keys<T>& keys, std::int64_t length, const OrderWanted& wanted,
           Item* items, std::int64_t* positions) {
  using What = OrderWanted::What;
  switch (wanted.what) {
    case What::first:
      take_first(keys, length, wanted.count, items);
      for (std::int64_t i = 0; i < wanted.count; ++i) positions[i] = position_of(items[i]);
      return;
    case What::at:
      positions[0] = take_at(keys, length, wanted.count, items);
      return;
    case What::mode:
      positions[0] = most_frequent(keys, length, items);
      return;
    case What::median:
    case What::nanmedian: {
      const auto nan = [](T value) { return is_nan(value); };
      const T* const first = std::find_if(line, line + length, nan);
      const std::int64_t nans = std::count_if(first, line + length, nan);
      if (nans > 0 && (wanted.what == What::median || nans == length)) {
        positions[0] = first - line;
      } else {
        positions[0] = take_at(keys, length, (length - nans - 1) / 2, items);
      }
    }
  }
}

}  // namespace

std::int64_t order_scratch_bytes(std::int64_t length) {
  return length * static_cast<std::int64_t>(std::max(2 * sizeof(Packed), sizeof(Wide)));
}

template <typename T>
void order_line(const T* line, std::int64_t length, const OrderWanted& wanted, std::byte* scratch,
                std::int64_t* positions) {
  const Keys<T> keys(line, length, wanted.descending);
  if (keys.fit_32_bits() && length <= std::int64_t{1} << 32) {
    order(line, keys, length, wanted, reinterpret_cast<Packed*>(scratch), positions);
  } else {
    order(line, keys, length, wanted, reinterpret_cast<Wide*>(scratch), positions);
  }
}

template void order_line(const float*, std::int64_t, const OrderWanted&, std::byte*, std::int64_t*);
template void order_line(const std::int64_t*, std::int64_t, const OrderWanted&, std::byte*,
                         std::int64_t*);

}  // namespace spyre::card
