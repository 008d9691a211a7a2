#include "runtime/spyre_device_enum.h"

#include <algorithm>
#include <charconv>
#include <sstream>

#include <c10/util/Exception.h>

#include "runtime/spyre_environment.h"
#include "runtime/spyre_runtime.h"

namespace spyre {
namespace {

card::Mode requested_mode() {
  constexpr card::Mode modes[] = {card::Mode::physical, card::Mode::virtual_, card::Mode::mock};
  return modes[environment_choice(knobs::kFlexDevice)];
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
  const std::optional<long> world_size = environment_number(knobs::kWorldSize);
  int total = 0;
  if (visible.mode == card::Mode::mock) {
    TORCH_CHECK_VALUE(world_size.value_or(0) >= 1 && *world_size <= kMaxDevices,
                      "FLEX_DEVICE=MOCK needs AIU_WORLD_SIZE, the number of mock cards, 1 to ",
                      kMaxDevices, ".");
    total = static_cast<int>(*world_size);
  } else {
    total = runtime::platform().card_count();
    if (world_size) total = static_cast<int>(std::min<long>(*world_size, total));
  }
  if (const std::optional<std::string> list = environment_text(knobs::kDevices.variable)) {
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
