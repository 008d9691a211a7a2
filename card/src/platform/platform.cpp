#include "platform/platform.h"

#include <string>

#include "formats/accumulation.h"
#include "formats/convert.h"
#include "formats/formats.h"
#include "host/environment.h"

namespace spyre::card {

namespace {

constexpr int kMockCards = 64;

const char* mode_name(Mode mode) {
  switch (mode) {
    case Mode::physical:
      return "PF";
    case Mode::virtual_:
      return "VF";
    case Mode::mock:
      return "MOCK";
  }
  return "unknown";
}

MemoryLimits limits_of(Mode mode) {
  const std::uint64_t card = card_memory_bytes();
  const double share = mode == Mode::virtual_ ? kVirtualFunctionShare : 1.0;
  return {static_cast<std::uint64_t>(static_cast<double>(card) * share), card_warm_bytes()};
}

}  // namespace

int SoftPlatform::card_count() const { return soft_cards(); }

std::shared_ptr<Card> SoftPlatform::open(int index, Mode mode) {
  const int cards = mode == Mode::mock ? kMockCards : card_count();
  if (index < 0 || index >= cards)
    throw Error(ErrorCode::unavailable,
                "there is no card " + std::to_string(index) + ": " +
                    (mode == Mode::mock ? "mock cards" : "the cards of this machine") + " are 0.." +
                    std::to_string(cards - 1) +
                    (mode == Mode::mock ? "" : " (SPYRE_SOFT_CARDS sets how many there are)"));
  const std::lock_guard lock(mutex_);
  // Tuning variables are read where they are used; a bad one is reported now, not in mid-work.
  card_threads();
  simd();
  dl16_specials();
  accumulation();
  Opened& opened = opened_[index];
  if (auto card = opened.card.lock()) {
    if (opened.mode != mode)
      throw Error(ErrorCode::unavailable, "card " + std::to_string(index) + " is already open in " +
                                              mode_name(opened.mode) +
                                              " mode; close it before opening it in " +
                                              mode_name(mode) + " mode");
    return card;
  }
  auto card = std::make_shared<SoftCard>(limits_of(mode), mode == Mode::virtual_);
  opened = {card, mode};
  return card;
}

void SoftPlatform::convert(DataFormat src, const void* from, DataFormat dst, void* to,
                           std::size_t count, Narrow narrow) const {
  card::convert(src, from, dst, to, count, narrow);
}

}  // namespace spyre::card

spyre::card::Platform* spyre_card_platform(int abi_version) {
  if (abi_version != spyre::card::kAbiVersion) return nullptr;
  // Never destroyed: cards and their workers may be in use while the process ends.
  static auto& platform = *new spyre::card::SoftPlatform;
  return &platform;
}
