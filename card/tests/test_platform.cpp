// The platform: how many cards, which one is opened, and what the environment says.
#include <sys/resource.h>

#include <cstdio>
#include <cstring>

#include "check.h"
#include "host/environment.h"
#include "platform/platform.h"
#include "support.h"

using namespace spyre::card;
using namespace spyre::card::test;

TEST(the_entry_point_speaks_one_abi_version) {
  CHECK(spyre_card_platform(kAbiVersion) != nullptr);
  CHECK(spyre_card_platform(kAbiVersion) == spyre_card_platform(kAbiVersion));
  CHECK(spyre_card_platform(kAbiVersion + 1) == nullptr);
}

TEST(the_number_of_cards_comes_from_the_environment) {
  SoftPlatform platform;
  {
    const Environment cards("SPYRE_SOFT_CARDS", nullptr);
    CHECK_EQ(platform.card_count(), 1);
  }
  for (const char* legal : {"1", "2", "8"}) {
    const Environment cards("SPYRE_SOFT_CARDS", legal);
    CHECK_EQ(platform.card_count(), std::atoi(legal));
  }
  for (const char* illegal : {"0", "9", "-1", "two", "2x", " 2"}) {
    const Environment cards("SPYRE_SOFT_CARDS", illegal);
    CHECK_THROWS(platform.card_count(), "SPYRE_SOFT_CARDS='" + std::string(illegal) + "'");
    CHECK_THROWS(platform.card_count(), "from 1 to 8");
  }
}

TEST(sizes_are_read_as_people_write_them) {
  const auto parse = [](const char* text) { return parse_bytes("X", text, 0, 128 * kGiB); };
  CHECK_EQ(parse("131072"), 131072u);
  CHECK_EQ(parse("64K"), 64 * kKiB);
  CHECK_EQ(parse("64M"), 64 * kMiB);
  CHECK_EQ(parse("64m"), 64 * kMiB);
  CHECK_EQ(parse("2G"), 2 * kGiB);
  CHECK_EQ(parse("2GiB"), 2 * kGiB);
  CHECK_EQ(parse("2GB"), 2 * kGiB);
  CHECK_EQ(parse("0"), 0u);
  for (const char* illegal : {"", "M", "-1", "1.5G", "2X", "2GiBs", "129G", "99999999999999999999",
                              "99999999999999T", "0x10"})
    CHECK_THROWS(parse(illegal), "X='" + std::string(illegal) +
                                     "' is not valid: give a number of bytes from 0 bytes to "
                                     "128 GiB, such as 131072, 64M or 2G");
}

TEST(card_memory_comes_from_the_environment) {
  SoftPlatform platform;
  {
    const Environment memory("SPYRE_CARD_MEMORY", "64M");
    const auto card = platform.open(0, Mode::physical);
    CHECK_EQ(card->properties().memory_bytes, 64 * kMiB);
    CHECK_EQ(card->memory_info(MemoryKind::tensor).capacity, 64 * kMiB);
    CHECK_EQ(card->memory_info(MemoryKind::program).capacity, 64 * kMiB);
  }
  for (const char* illegal : {"1", "a lot", "200G"}) {
    const Environment memory("SPYRE_CARD_MEMORY", illegal);
    CHECK_THROWS(platform.open(0, Mode::physical), "SPYRE_CARD_MEMORY='" + std::string(illegal));
  }
  const Environment memory("SPYRE_CARD_MEMORY", "64M"), warm("SPYRE_CARD_WARM_BYTES", "plenty");
  CHECK_THROWS(platform.open(0, Mode::physical), "SPYRE_CARD_WARM_BYTES='plenty'");
}

TEST(a_card_has_the_properties_of_the_machine_description) {
  SoftPlatform platform;
  const auto card = platform.open(0, Mode::physical);
  CHECK_EQ(card->properties().name, "IBM Spyre (software card)");
  CHECK_EQ(card->properties().type, "dd2");
  CHECK_EQ(card->properties().cores, 32);
  CHECK_EQ(card->properties().lx_bytes_per_core, 2 * kMiB);
  CHECK_EQ(card->properties().memory_bytes, 128 * kGiB);
}

TEST(a_virtual_function_has_its_share_of_the_memory) {
  const Environment memory("SPYRE_CARD_MEMORY", "64M");
  SoftPlatform platform;
  const auto card = platform.open(0, Mode::virtual_);
  CHECK_EQ(card->properties().memory_bytes, 16 * kMiB);
  card->free(card->allocate(16 * kMiB, MemoryKind::tensor));
  CHECK_THROWS(card->allocate(16 * kMiB + 1, MemoryKind::tensor), "capacity 16 MiB");
}

TEST(one_index_is_one_card_while_somebody_holds_it) {
  const Environment cards("SPYRE_SOFT_CARDS", "2"), memory("SPYRE_CARD_MEMORY", "64M");
  SoftPlatform platform;
  auto first = platform.open(0, Mode::physical);
  CHECK(platform.open(0, Mode::physical) == first);
  CHECK(platform.open(1, Mode::physical) != first);
  CHECK_THROWS(platform.open(0, Mode::virtual_), "card 0 is already open in PF mode");
  first->allocate(kMiB, MemoryKind::tensor);
  first.reset();
  CHECK_EQ(platform.open(0, Mode::virtual_)->memory_info(MemoryKind::tensor).allocations, 0u);
}

TEST(cards_are_separate) {
  const Environment cards("SPYRE_SOFT_CARDS", "2"), memory("SPYRE_CARD_MEMORY", "64M");
  SoftPlatform platform;
  const auto a = platform.open(0, Mode::physical), b = platform.open(1, Mode::physical);
  const Handle on_a = a->allocate(64 * kMiB, MemoryKind::tensor);
  const Handle on_b = b->allocate(64 * kMiB, MemoryKind::tensor);
  CHECK_EQ(a->device_address(on_a), b->device_address(on_b));
  CHECK(on_a != on_b);
  CHECK_THROWS(b->free(on_a), "not an allocation of this card");
  std::vector<std::int32_t> host(32, 7);
  b->create_stream(0)->to_card(host.data(), 128, on_b, copy(32, true), Submit::wait, nullptr);
  a->create_stream(0)->to_host(on_a, host.data(), 128, copy(32, false), Submit::wait, nullptr);
  CHECK_EQ(host[0], 0);
  CHECK_EQ(a->counters().transfers_to_card, 0u);
  CHECK_EQ(b->counters().transfers_to_card, 1u);
}

TEST(cards_that_do_not_exist_cannot_be_opened_but_mocked) {
  const Environment cards("SPYRE_SOFT_CARDS", "2"), memory("SPYRE_CARD_MEMORY", "64M");
  SoftPlatform platform;
  CHECK_THROWS(platform.open(2, Mode::physical), "there is no card 2");
  CHECK_THROWS(platform.open(2, Mode::physical), "SPYRE_SOFT_CARDS");
  CHECK_THROWS(platform.open(-1, Mode::physical), "there is no card -1");
  CHECK(platform.open(63, Mode::mock) != nullptr);
  CHECK_THROWS(platform.open(64, Mode::mock), "mock cards are 0..63");
}

// A sanitizer's own shadow memory does not fit in the limit.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST(a_card_that_does_not_fit_the_address_space_says_what_to_do) {
  const int status = status_in_child([] {
    const rlimit limit{8 * kGiB, 8 * kGiB};
    setrlimit(RLIMIT_AS, &limit);
    SoftPlatform platform;
    try {
      platform.open(0, Mode::physical);
      _exit(1);
    } catch (const Error& error) {
      if (!std::strstr(error.what(), "SPYRE_CARD_MEMORY")) _exit(2);
      if (error.code != ErrorCode::unavailable) _exit(3);
    }
    setenv("SPYRE_CARD_MEMORY", "1G", 1);
    platform.open(0, Mode::physical)->allocate(kMiB, MemoryKind::tensor);
  });
  CHECK_EQ(status, 0);
}
#endif

TEST(the_platform_converts_on_the_host) {
  SoftPlatform platform;
  const float from[] = {1.0f, -2.0f};
  std::uint16_t to[2];
  platform.convert(spyre::DataFormat::IEEE_FP32, from, spyre::DataFormat::SEN169_FP16, to, 2,
                   Narrow::none);
  CHECK_EQ(to[0], 31 << 9);  // DLFloat16: bias 31, nine fraction bits
  CHECK_EQ(to[1], 0x8000 | (32 << 9));
}

TEST(eight_whole_cards_fit_in_one_process) {
  const Environment cards("SPYRE_SOFT_CARDS", "8");
  SoftPlatform platform;
  std::vector<std::shared_ptr<Card>> all;
  for (int i = 0; i < 8; ++i) all.push_back(platform.open(i, Mode::physical));
  for (const auto& card : all) CHECK_EQ(card->memory_info(MemoryKind::tensor).capacity, 112 * kGiB);
}
