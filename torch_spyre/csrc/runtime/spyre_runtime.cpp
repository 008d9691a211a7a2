#include "runtime/spyre_runtime.h"

#include <dlfcn.h>
#include <pthread.h>

#include <array>
#include <atomic>
#include <mutex>

#include <c10/util/Exception.h>

#include "runtime/logging.h"
#include "runtime/spyre_device_enum.h"
#include "runtime/spyre_environment.h"

namespace spyre::runtime {
namespace {

struct State {
  std::mutex mutex;
  std::array<std::shared_ptr<card::Card>, kMaxDevices> owners;
  std::array<std::atomic<card::Card*>, kMaxDevices> cards{};  // what owners hold, readable unlocked
  std::atomic<bool> started{false};
  std::atomic<bool> bad_fork{false};
  std::atomic<bool> ending{false};
  std::atomic<bool> used{false};
  std::function<void()> first_use;
};

/// Leaked: tensors may be freed after static destructors have run.
State& state() {
  static State& instance = *new State;
  return instance;
}

std::string card_library_path() {
  if (const auto path = environment_text(knobs::kCardLibrary.variable)) return *path;
  Dl_info here{};
  dladdr(reinterpret_cast<void*>(&card_library_path), &here);
  const std::string module = here.dli_fname;
  return module.substr(0, module.rfind('/') + 1) + "lib/libspyre_card.so";
}

card::Platform* load_platform() {
  const std::string path = card_library_path();
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  TORCH_CHECK(library != nullptr,
              "Failed to initialize Spyre runtime. The card library cannot be loaded: ", dlerror(),
              ". Rebuild the package, or point SPYRE_CARD_LIBRARY to a card library.");
  using Entry = card::Platform* (*)(int);
  const auto entry = reinterpret_cast<Entry>(dlsym(library, "spyre_card_platform"));
  TORCH_CHECK(entry != nullptr, "Failed to initialize Spyre runtime. ", path,
              " is not a card library: it has no spyre_card_platform().");
  card::Platform* platform = entry(card::kAbiVersion);
  TORCH_CHECK(platform != nullptr, "Failed to initialize Spyre runtime. ", path,
              " does not support version ", card::kAbiVersion, " of the card interface.");
  return platform;
}

thread_local c10::DeviceIndex tls_device = -1;  // -1: not chosen yet

}  // namespace

void check_usable() {
  TORCH_CHECK(!state().ending.load(std::memory_order_relaxed),
              "The process is ending: the spyre device takes no more work.");
  TORCH_CHECK(!state().bad_fork.load(std::memory_order_relaxed),
              "Cannot use the spyre device in a forked subprocess: the parent had already started "
              "it, and a card has one owner. Create the process with the 'spawn' start method "
              "(torch.multiprocessing.set_start_method('spawn')), or fork before the first use.");
}

card::Platform& platform() {
  static card::Platform* const instance = load_platform();
  return *instance;
}

void on_first_use(std::function<void()> act) { state().first_use = std::move(act); }

void first_use() {
  State& shared = state();
  if (shared.used.load(std::memory_order_relaxed) || shared.used.exchange(true)) return;
  if (shared.first_use) shared.first_use();
}

bool started() noexcept { return state().started && !state().bad_fork; }
bool in_bad_fork() noexcept { return state().bad_fork.load(std::memory_order_relaxed); }
void mark_bad_fork() noexcept { state().bad_fork = true; }

void start() { card(current_device()); }

card::Card& card(c10::DeviceIndex device) {
  State& shared = state();
  check_usable();
  if (device >= 0 && device < kMaxDevices)
    if (card::Card* open = shared.cards[device].load(std::memory_order_acquire)) return *open;

  check_device_index(device);
  first_use();
  const std::lock_guard lock(shared.mutex);
  if (!shared.owners[device]) {
    const VisibleDevices& visible = visible_devices();
    try {
      shared.owners[device] = platform().open(visible.cards[device], visible.mode);
    } catch (const card::Error& error) {
      TORCH_CHECK(false, "Failed to initialize Spyre runtime. ", error.what());
    }
    shared.cards[device].store(shared.owners[device].get(), std::memory_order_release);
    debug("opened device ", static_cast<int>(device), " on card ", visible.cards[device]);
    if (!shared.started.exchange(true)) pthread_atfork(nullptr, nullptr, [] { mark_bad_fork(); });
  }
  return *shared.owners[device];
}

std::vector<card::Card*> open_cards() {
  check_usable();
  std::vector<card::Card*> cards;
  for (const std::atomic<card::Card*>& open : state().cards)
    if (card::Card* card = open.load(std::memory_order_acquire)) cards.push_back(card);
  return cards;
}

namespace {
void wait_for(const std::vector<card::Card*>& cards) noexcept {
  for (card::Card* card : cards) {
    try {
      card->synchronize();
    } catch (const std::exception& error) {
      write_debug_line(std::string("an operation failed before the process ended: ") +
                       error.what());
    }
  }
}
}  // namespace

void drain() noexcept {
  if (started()) wait_for(open_cards());
}

void shutdown() noexcept {
  if (!started()) return;
  const std::vector<card::Card*> cards = open_cards();
  state().ending = true;  // threads that go on queueing work must not keep the process alive
  wait_for(cards);
}

c10::DeviceIndex current_device() {
  if (tls_device < 0) {
    const long device = environment_number(knobs::kLocalRank).value_or(0);  // torchrun's choice
    const auto count = static_cast<long>(visible_devices().cards.size());
    TORCH_CHECK(count > 0,
                "No Spyre device is visible: AIU_WORLD_SIZE and SPYRE_DEVICES leave none of the "
                "machine's cards.");
    TORCH_CHECK(device >= 0 && device < count,
                "Device index out of bounds. logical_device_id=", device,
                ", number of visible devices=", count,
                ". The index comes from LOCAL_RANK; SPYRE_SOFT_CARDS sets how many software cards "
                "the machine has.");
    tls_device = static_cast<c10::DeviceIndex>(device);
  }
  return tls_device;
}

void check_device_index(std::int64_t device) {
  const auto count = static_cast<std::int64_t>(visible_devices().cards.size());
  TORCH_CHECK_INDEX(device >= 0 && device < count, "Device index ", device, " out of range [0, ",
                    count,
                    "). torch.spyre.device_count() says how many cards there are; "
                    "SPYRE_SOFT_CARDS, AIU_WORLD_SIZE and SPYRE_DEVICES choose them.");
}

c10::DeviceIndex device_or_current(std::int64_t device) {
  if (device == -1) return current_device();
  check_device_index(device);
  return static_cast<c10::DeviceIndex>(device);
}

void set_device(c10::DeviceIndex device) {
  check_device_index(device);
  tls_device = device;
}

c10::DeviceIndex exchange_device(c10::DeviceIndex device) {
  const c10::DeviceIndex previous = tls_device >= 0 ? tls_device : current_device();
  if (device != previous) set_device(device);
  return previous;
}

}  // namespace spyre::runtime
