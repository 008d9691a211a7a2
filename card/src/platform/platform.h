// The software cards of this machine.
#pragma once

#include <map>
#include <memory>
#include <mutex>

#include "platform/soft_card.h"
#include "spyre/card.h"

namespace spyre::card {

class SoftPlatform : public Platform {
 public:
  int card_count() const override;
  /// The same card for the same index as long as somebody holds it.
  std::shared_ptr<Card> open(int index, Mode mode) override;
  void convert(DataFormat src, const void* from, DataFormat dst, void* to, std::size_t count,
               Narrow narrow) const override;

 private:
  struct Opened {
    std::weak_ptr<SoftCard> card;
    Mode mode = Mode::physical;
  };

  std::mutex mutex_;
  std::map<int, Opened> opened_;  // guarded by mutex_
};

}  // namespace spyre::card
