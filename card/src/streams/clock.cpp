#include "streams/clock.h"

#include <algorithm>

namespace spyre::card {

void Clock::transfer(Engine engine, std::uint64_t device_bytes, Moment& stream, Submit submit) {
  const std::lock_guard lock(mutex_);
  charge(engine, transfer_ns(device_bytes), stream, submit);
  Counters& counters = state_.counters;
  if (engine == Engine::to_card) {
    ++counters.transfers_to_card;
    counters.bytes_to_card += device_bytes;
  } else {
    ++counters.transfers_to_host;
    counters.bytes_to_host += device_bytes;
  }
}

void Clock::launch(const Bill& bill, std::uint64_t program_bytes, Moment& stream, Submit submit) {
  const std::lock_guard lock(mutex_);
  Counters& counters = state_.counters;
  if (program_bytes) {
    charge(Engine::to_card, transfer_ns(program_bytes), stream, submit);
    counters.program_bytes += program_bytes;
  }
  charge(Engine::compute, bill.total_ns(), stream, submit);
  ++counters.launches;
  const auto add = [](std::uint64_t& counter, std::int64_t value) {
    counter += static_cast<std::uint64_t>(value);
  };
  add(counters.device_bytes_read, bill.read_bytes);
  add(counters.device_bytes_written, bill.written_bytes);
  add(counters.lx_bytes, bill.lx_bytes);
  add(counters.ring_bytes, bill.ring_bytes);
  add(counters.macs, bill.macs);
  add(counters.sfp_elements, bill.sfp_elements);
  add(counters.memory_ns, bill.memory_ns);
  add(counters.compute_ns, bill.compute_ns);
  add(counters.lx_ns, bill.lx_ns);
  add(counters.ring_ns, bill.ring_ns);
  add(counters.overhead_ns, bill.overhead_ns);
}

void Clock::program_loaded() {
  const std::lock_guard lock(mutex_);
  ++state_.counters.programs_loaded;
}

Moment Clock::record(Moment& stream) {
  const std::lock_guard lock(mutex_);
  std::int64_t& time = now(stream);
  time = std::max(time, state_.host);
  return stream;
}

void Clock::wait(Moment& stream, std::int64_t ns) {
  const std::lock_guard lock(mutex_);
  std::int64_t& time = now(stream);
  time = std::max(time, ns);
  state_.horizon = std::max(state_.horizon, time);
}

void Clock::host_waits_for(const Moment& moment) {
  const std::lock_guard lock(mutex_);
  if (moment.life == life_) state_.host = std::max(state_.host, moment.ns);
}

void Clock::host_waits_for_all() {
  const std::lock_guard lock(mutex_);
  state_.host = std::max(state_.host, state_.horizon);
}

std::int64_t Clock::ns_of(const Moment& moment) const {
  const std::lock_guard lock(mutex_);
  return moment.life == life_ ? moment.ns : 0;
}

Counters Clock::counters() const {
  const std::lock_guard lock(mutex_);
  return state_.counters;
}

void Clock::reset() {
  const std::lock_guard lock(mutex_);
  state_ = State{};
  ++life_;
}

std::int64_t& Clock::now(Moment& stream) {
  if (stream.life != life_) stream = {life_, 0};
  return stream.ns;
}

void Clock::charge(Engine engine, std::int64_t cost, Moment& stream, Submit submit) {
  std::int64_t& time = now(stream);
  std::int64_t& engine_free = state_.engine_free[static_cast<std::size_t>(engine)];
  const std::int64_t end = std::max({time, engine_free, state_.host}) + cost;
  time = engine_free = end;
  state_.horizon = std::max(state_.horizon, end);
  if (submit == Submit::wait) state_.host = std::max(state_.host, end);
  auto& clock = state_.counters.modelled_ns;
  clock = std::max(clock, static_cast<std::uint64_t>(end));
}

}  // namespace spyre::card
