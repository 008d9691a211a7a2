// The cost model: formulae against numbers worked out by hand, laws of scaling, accounts.
#include <algorithm>
#include <cmath>
#include <random>

#include "check.h"
#include "program/program.h"
#include "spyre/cost.h"
#include "support.h"

using namespace spyre;
using namespace spyre::card;
using namespace spyre::card::test;

namespace {

/// A softmax's ops over (512, 1024) on one core; tensors of a MiB in device memory or in LX.
OpCost on_one_core(bool read, bool written, double passes = 1) {
  OpCost op;
  op.passes = passes;
  op.points = op.all_points = 512 * 1024;
  op.read_bytes = read ? 1 << 20 : 0;
  op.written_bytes = written ? 1 << 20 : 0;
  op.lx_bytes = op.all_lx_bytes = (2 - read - written) << 20;
  return op;
}

std::vector<std::byte> accounted(std::span<const Account> accounts) {
  ProgramBuilder builder;
  builder.accounts(accounts);
  builder.move(0, 1, copy(1024, true));
  return builder.finish();
}

}  // namespace

TEST(the_sfp_works_on_a_stick_a_cycle_in_each_corelet) {
  OpCost op;
  op.points = 128 * 1500;  // 1500 cycles of 1.5 GHz
  CHECK_EQ(price(op).compute, 1000);
  op.passes = 1.5;
  CHECK_EQ(price(op).compute, 1500);
  op.passes = 1, op.element_bytes = 4;
  CHECK_EQ(price(op).compute, 2000);
  op.element_bytes = 1;  // no faster than 2 bytes
  CHECK_EQ(price(op).compute, 1000);
  CHECK(price(op).bound == Bound::compute);
  CHECK_EQ(price(op).total, 1000 + kOpNs);
}

TEST(few_rows_do_not_fill_the_array) {
  OpCost op;
  op.unit = Unit::pt;
  op.points = 1'536'000;  // a microsecond at full speed
  for (const auto& [rows, efficiency] : {std::pair{64, 1.0},
                                         {512, 1.0},
                                         {32, std::sqrt(0.5)},
                                         {16, 0.5},
                                         {8, std::sqrt(0.125)},
                                         {1, std::sqrt(0.125)}}) {
    op.rows = rows;
    CHECK_EQ(price(op).compute, static_cast<std::int64_t>(std::ceil(1000 / efficiency - 1e-6)));
  }
}

TEST(memory_is_two_streams_that_overlap_with_each_other_and_with_the_rest) {
  OpCost op;
  op.read_bytes = 2'048'000, op.written_bytes = 1'024'000;
  const Price memory = price(op);
  CHECK_EQ(memory.read, 10'000);
  CHECK_EQ(memory.write, 5'000);
  CHECK_EQ(memory.total, 10'000 + kOpNs);
  CHECK(memory.bound == Bound::memory);
  op.points = 128 * 30'000, op.lx_bytes = 512 * 1500;
  const Price all = price(op);
  CHECK_EQ(all.lx, 1000);
  CHECK_EQ(all.total, all.compute + kOpNs);
  CHECK_EQ(all.read, memory.read);
}

TEST(a_small_op_is_all_overhead) {
  OpCost op;
  op.points = 64, op.read_bytes = op.written_bytes = 128;
  CHECK(price(op).bound == Bound::overhead);
  CHECK_EQ(price({}).total, kOpNs);
}

TEST(bytes_that_many_cores_share_are_sent_once_for_every_eight) {
  for (const auto& [sharers, times] : {std::pair{1, 1}, {8, 1}, {9, 2}, {16, 2}, {32, 4}})
    CHECK_EQ(multicast_bytes(1000, sharers), 1000 * times);
}

TEST(a_k_split_pays_for_its_partial_sums) {
  OpCost op;
  op.unit = Unit::pt, op.points = 1000, op.rows = 64, op.partial_sums = 100'000;
  CHECK_EQ(price(op).overhead, kOpNs + 14'000);
  CHECK_EQ(price(op).total, price(op).compute + kOpNs + 14'000);
}

TEST(more_of_anything_never_takes_less_time) {
  std::mt19937_64 random(7);
  const auto number = [&] { return static_cast<std::int64_t>(random() % (1 << (random() % 30))); };
  for (int round = 0; round < 20'000; ++round) {
    OpCost op;
    op.unit = random() % 2 ? Unit::pt : Unit::sfp;
    for (const AccountField& field : kAccountFields) op.*field.member = number();
    const Price before = price(op);
    const auto& field = kAccountFields[random() % std::size(kAccountFields)];
    const bool rows = field.member == &OpCost::rows;  // more rows fill the array better
    OpCost more = op;
    more.*field.member *= 2;
    const Price after = price(more);
    CHECK(rows ? after.total <= before.total : after.total >= before.total);
    CHECK(after.total <= 2 * before.total || rows);
    CHECK_EQ(before.total, before.overhead + std::max({before.compute, before.read, before.write,
                                                       before.lx, before.ring}));
  }
}

TEST(the_ring_takes_the_shorter_way) {
  const Send near[] = {{0, 3, 1280}};
  RingLoad load = ring_load(near);
  CHECK_EQ(load.hops, 3);
  CHECK_EQ(load.link_bytes, 1280);
  CHECK_EQ(load.ns(), 9);  // 10 + 3 cycles
  const Send back[] = {{0, 30, 1280}};
  CHECK_EQ(ring_load(back).hops, 2);
  const Send itself[] = {{5, 5, 1280}};
  CHECK_EQ(ring_load(itself).ns(), 0);
  CHECK_EQ(ring_load(itself).bytes, 0);
  // Everybody to the next one: no link is used twice.
  std::vector<Send> shift, far;
  for (int core = 0; core < 32; ++core) {
    shift.push_back({core, (core + 1) % 32, 128});
    far.push_back({core, (core + 8) % 32, 128});
  }
  CHECK_EQ(ring_load(shift).link_bytes, 128);
  CHECK_EQ(ring_load(shift).bytes, 32 * 128);
  CHECK_EQ(ring_load(far).link_bytes, 8 * 128);
}

TEST(an_all_gather_passes_slices_on_in_both_directions) {
  const std::vector<int> everybody(32, 0);
  RingLoad load = ring_all_gather(everybody, 128);
  CHECK_EQ(load.bytes, 32 * 31 * 128);
  CHECK_EQ(load.link_bytes, 16 * 128);
  CHECK_EQ(load.hops, 16);
  std::vector<int> neighbours(32), apart(32);
  for (int core = 0; core < 32; ++core) neighbours[core] = core / 4, apart[core] = core % 8;
  load = ring_all_gather(neighbours, 128);
  CHECK_EQ(load.bytes, 32 * 3 * 128);
  CHECK_EQ(load.link_bytes, 3 * 128);  // into the last of a group
  CHECK_EQ(load.hops, 3);
  CHECK(ring_all_gather(apart, 128).link_bytes > load.link_bytes);
  const std::vector<int> nobody(32, -1);
  CHECK_EQ(ring_all_gather(nobody, 128).ns(), 0);
}

TEST(the_published_softmax_times_are_met_within_11_percent) {
  const double exp = kPassesTranscendental, div = kPassesDivide;
  const auto microseconds = [](std::initializer_list<OpCost> ops) {
    Bill bill;
    for (const OpCost& op : ops) CHECK(bill.add({"op", 1, op}));
    return static_cast<double>(bill.total_ns()) / 1000;
  };
  const auto close = [](double modelled, double published) {
    CHECK(std::abs(modelled / published - 1) < 0.11);
  };
  const OpCost memory = on_one_core(true, true), max = on_one_core(true, false);
  // Maximum and sum write next to nothing.
  const double all_in_memory =
      microseconds({max, memory, on_one_core(true, true, exp), max, on_one_core(true, true, div)});
  close(all_in_memory, 32.5);
  close(all_in_memory, 27.7);  // the same with these in LX
  close(microseconds({max, on_one_core(true, false), on_one_core(false, false, exp),
                      on_one_core(false, false), on_one_core(false, true, div)}),
        23.9);
  close(microseconds({on_one_core(true, false), on_one_core(false, false),
                      on_one_core(false, false), on_one_core(false, false, exp),
                      on_one_core(false, false), on_one_core(false, true, div)}),
        23.7);
}

TEST(accounts_replace_what_the_steps_would_cost) {
  const auto card = small_card();
  const auto stream = card->create_stream(0);
  Tensor x(*card, 3), y(*card);
  x.to_card(*stream, Submit::wait);
  card->reset();
  OpCost product;
  product.unit = Unit::pt;
  product.points = 1000, product.all_points = 2000, product.rows = 64;
  product.read_bytes = 204'800, product.partial_sums = 100;
  OpCost local;
  local.points = local.all_points = 128 * 1500;
  local.lx_bytes = 512 * 3000, local.all_lx_bytes = 512 * 5000;
  const Account accounts[] = {{"batchmatmul", 3, product}, {"", 2, local}};
  const auto program = card->load_program(accounted(accounts));
  const Handle operands[] = {x.handle, y.handle};
  stream->launch(program, operands, Submit::either, nullptr);
  const Counters counters = card->counters();
  CHECK_EQ(counters.device_bytes_read, 3u * 204'800);
  CHECK_EQ(counters.device_bytes_written, 0u);
  CHECK_EQ(counters.macs, 6000u);
  CHECK_EQ(counters.sfp_elements, 2u * 128 * 1500);
  CHECK_EQ(counters.lx_bytes, 2u * 512 * 5000);
  CHECK_EQ(counters.ring_bytes, 3u * 400);
  CHECK_EQ(counters.memory_ns, 3000u);
  CHECK_EQ(counters.lx_ns, 4000u);
  CHECK_EQ(counters.compute_ns + counters.ring_ns, 0u);
  CHECK_EQ(counters.overhead_ns, static_cast<std::uint64_t>(kLaunchNs + 5 * kOpNs + 3 * 14));
  CHECK_EQ(counters.modelled_ns, counters.memory_ns + counters.lx_ns + counters.overhead_ns +
                                     static_cast<std::uint64_t>(transfer_ns(program->bytes())));
  y.to_host(*stream, Submit::wait);
  CHECK_EQ(y.host[9], 3);  // the steps ran all the same
}

TEST(accounts_that_make_no_sense_are_refused) {
  const auto card = small_card();
  const auto refused = [&](auto change, const char* why) {
    Account account{"exp", 1, {}};
    change(account);
    CHECK_THROWS(card->load_program(accounted({&account, 1})), why);
  };
  refused([](Account& a) { a.count = -1; }, "step 0 (accounts), account 0, count: -1");
  refused([](Account& a) { a.cost.cores = 33; }, "cores: 33 is not in 1..32");
  refused([](Account& a) { a.cost.read_bytes = -5; }, "read bytes: -5");
  refused([](Account& a) { a.cost.passes = std::nan(""); }, "passes");
  refused([](Account& a) { a.cost.element_bytes = 0; }, "element bytes");
  refused([](Account& a) { a.name.assign(300, 'x'); }, "name: 300");
  refused(
      [](Account& a) {
        a.count = 1 << 30;
        a.cost.all_points = std::int64_t{1} << 50;
      },
      "costs more than 64 bits can count");
  ProgramBuilder builder;
  const Account account{"exp", 1, {}};
  builder.accounts({&account, 1});
  builder.accounts({&account, 1});
  CHECK_THROWS(card->load_program(builder.finish()), "accounts once");
  CoreProgram cores;
  cores.cores = 1;
  builder.accounts({&account, 1});
  CoreProgram::Node& node = cores.nodes.emplace_back();
  node.step = builder.finish(), node.end_core = 1;
  builder.cores(cores);
  CHECK_THROWS(card->load_program(builder.finish()), "opcode: 12 is unknown");
}

TEST(mutated_accounts_are_refused_or_priced) {
  const auto card = small_card();
  const Account accounts[] = {{"exp", 3, on_one_core(true, false)}, {"a longer name", 1, {}}};
  const std::vector<std::byte> good = accounted(accounts);
  constexpr std::int64_t awkward[] = {
      0,         -1,       1, 12, 33, 256, 1 << 30, std::int64_t{1} << 58, std::int64_t{1} << 62,
      INT64_MAX, INT64_MIN};
  std::mt19937_64 random(11);
  int priced = 0;
  for (int round = 0; round < 4000; ++round) {
    std::vector<std::byte> bad = good;
    const auto body = std::span(bad).subspan(sizeof(ProgramHeader));
    for (unsigned change = 0; change < 1 + random() % 3; ++change) {
      const std::int64_t value = awkward[random() % std::size(awkward)];
      std::memcpy(body.data() + 8 * (1 + random() % 44), &value, 8);
    }
    ProgramHeader header;
    std::memcpy(&header, bad.data(), sizeof header);
    header.checksum = program_checksum(body);
    std::memcpy(bad.data(), &header, sizeof header);
    try {
      const auto program = card->load_program(bad);
      CHECK(SoftProgram::from(program.get()).bill().total_ns() >= kLaunchNs);
      ++priced;
    } catch (const Error&) {
    }
  }
  CHECK(priced > 0);
}
