#include "spyre_device_enum.h"

#include <algorithm>
#include <charconv>
#include <sstream>

#include <c10/util/Exception.h>

#include "spyre_environment.h"
#include "spyre_runtime.h"

namespace spyre {
namespace {

card::Mode requested_mode() {
  const std::string text = environment_text("FLEX_DEVICE").value_or("PF");
  if (text == "PF") return card::Mode::physical;
  if (text == "VF") return card::Mode::virtual_;
  if (text == "MOCK") return card::Mode::mock;
  TORCH_CHECK_VALUE(false, "environment variable FLEX_DEVICE='", text,
                    "': expected PF (the whole card), VF (a share of it) or MOCK.");
}

/// "1,0,1,9" among 2 cards is {1, 0}: the order given, each once, what does not exist dropped.
std::vector<int> listed_cards(const std::string& list, int total) {
  std::vector<int> cards;
  std::stringstream stream(list);
  for (std::string item; std::getline(stream, item, ',');) {
    item.erase(std::remove_if(item.begin(), item.end(), ::isspace), item.end());
    int index = -1;
    const char* end = item.data() + item.size();
    const auto [stop, error] = std::from_chars(item.data(), end, index);
    TORCH_CHECK_VALUE(error == std::errc() && stop == end, "environment variable SPYRE_DEVICES='",
                      list, "': expected card numbers separated by commas, such as 0,2.");
    const bool known = std::find(cards.begin(), cards.end(), index) != cards.end();
    if (index >= 0 && index < total && !known) cards.push_back(index);
  }
  return cards;
}

VisibleDevices enumerate() {
  VisibleDevices visible;
  visible.mode = requested_mode();
  const std::optional<long> world_size = environment_number("AIU_WORLD_SIZE");
  int total = 0;
  if (visible.mode == card::Mode::mock) {
    TORCH_CHECK_VALUE(world_size.value_or(0) >= 1 && *world_size <= kMaxDevices,
                      "FLEX_DEVICE=MOCK needs AIU_WORLD_SIZE, the number of mock cards, 1 to ",
                      kMaxDevices, ".");
    total = static_cast<int>(*world_size);
  } else {
    total = runtime::platform().card_count();
    TORCH_CHECK_VALUE(world_size.value_or(0) >= 0,
                      "environment variable AIU_WORLD_SIZE=", world_size.value_or(0),
                      " is negative; it is a number of cards.");
    if (world_size) total = static_cast<int>(std::min<long>(*world_size, total));
  }
  if (const std::optional<std::string> list = environment_text("SPYRE_DEVICES")) {
    visible.cards = listed_cards(*list, total);
  } else {
    for (int card = 0; card < total; ++card) visible.cards.push_back(card);
  }
  return visible;
}

}  // namespace

const VisibleDevices& visible_devices() {
  static const VisibleDevices visible = enumerate();
  return visible;
}

int visible_device_count() noexcept {
  try {
    return static_cast<int>(visible_devices().cards.size());
  } catch (const std::exception&) {
    return 0;
  }
}

}  // namespace spyre
