// The card ABI: everything the PyTorch side knows about a card.
//
// A card library exports one C function, spyre_card_platform(); what it returns implements the
// classes below. The software card (card/src) is one implementation; an adapter to a vendor
// runtime is another. Nothing above this header may ask which one it talks to.
//
// Rules for implementers
//  * Handles returned by Card::allocate() are opaque. Host code that dereferences one must fault.
//  * Arguments are checked when work is submitted, so that a bad descriptor or program fails in the
//    call that made it. An error of work that nobody waits for is kept for who waits next, and what
//    is behind it does not run (docs/card-interface.md, Errors).
//  * Every method may be called from any thread.
//  * Modelled time depends on the order of submissions only, never on the wall clock.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "spyre/machine.h"  // generated from torch_spyre/machine.toml

#define SPYRE_CARD_API __attribute__((visibility("default")))

namespace spyre::card {

inline constexpr int kAbiVersion = 3;

// ---------------------------------------------------------------------------------------- errors

enum class ErrorCode {
  invalid_argument,  ///< a descriptor, handle, index or program that makes no sense
  out_of_memory,     ///< see OutOfMemory
  unavailable,       ///< no such card, or the card could not be opened
  failed,            ///< the card failed while working
  bad_index,         ///< a coordinate in device memory lies outside the dimension it is for
  fault,             ///< a stream that checks found a program that does what it must not
};

class SPYRE_CARD_API Error : public std::runtime_error {
 public:
  Error(ErrorCode error_code, const std::string& message)
      : std::runtime_error(message), code(error_code) {}
  const ErrorCode code;
};

class SPYRE_CARD_API OutOfMemory : public Error {
 public:
  OutOfMemory(const std::string& message, std::uint64_t wanted, std::uint64_t free_bytes,
              std::uint64_t largest_block, std::uint64_t all_bytes)
      : Error(ErrorCode::out_of_memory, message),
        requested(wanted),
        free(free_bytes),
        largest_free_block(largest_block),
        capacity(all_bytes) {}
  const std::uint64_t requested, free, largest_free_block, capacity;
};

// --------------------------------------------------------------------------------------- transfers

/// One loop nest of a transfer. Vectors are innermost dimension first; all numbers count elements.
struct StrideInfo {
  std::vector<std::int64_t> size, stride_src, stride_dst;
  std::int64_t offset_src = 0, offset_dst = 0;
};

/// What a value is brought to before it is encoded in the destination format: a bool tensor holds
/// only 0 and 1, a uint8 tensor only 0..255, though their device formats could hold more.
enum class Narrow : std::uint8_t { none = 0, boolean = 1, uint8 = 2 };

/// Data-conversion descriptor (DCI): how elements move and which formats they have on both sides.
/// Every element visited by `loops` is read from the source, converted and written.
struct DataConversion {
  std::string name = "DCI-Tensor-0";
  bool host_to_device = true;
  DataFormat src = DataFormat::INVALID, dst = DataFormat::INVALID;
  Narrow narrow = Narrow::none;
  std::vector<StrideInfo> loops;
  std::vector<std::int64_t> input_shape, output_shape;  ///< innermost first, for people and tools
};

/// Opaque reference to device memory: the value Card::allocate() returned.
using Handle = void*;

// ------------------------------------------------------------------------------ streams and events

/// When a submission may run.
enum class Submit {
  wait,    ///< return when it is done
  queue,   ///< return at once; the stream's worker runs it
  either,  ///< run it on this thread if the stream is idle, else queue it: least latency
};

/// Kept alive until the submitted work is done (host buffers, tensor storages).
using Retained = std::shared_ptr<const void>;

/// A point in a stream. Recording again moves it; whoever waits already, waits for the old point.
class Event {
 public:
  virtual ~Event() = default;
  /// True if never recorded or passed. Throws if work before it failed; the stream keeps the error.
  virtual bool query() const = 0;
  virtual void synchronize() const = 0;  ///< block until passed; throws if work before it failed
  virtual bool recorded() const = 0;
  virtual std::int64_t wall_ns() const = 0;      ///< host clock when passed; waits for that
  virtual std::int64_t modelled_ns() const = 0;  ///< card clock; known as soon as recorded
};

/// A program loaded into a card's program segment. Freed with the last reference.
class Program {
 public:
  virtual ~Program() = default;
  virtual std::size_t bytes() const = 0;
  virtual std::uint64_t device_address() const = 0;
};

/// What a launch is asked to work on, for streams that check: docs/checker.md. Numbers of elements
/// are those of the operand's format from the start of its allocation.
struct OperandDescription {
  std::string name;                ///< for people: "float32[5]"
  std::vector<std::int64_t> size;  ///< of the tensor, outermost first
  DataFormat format = DataFormat::INVALID;
  /// The tensor's elements: `src` counts them in row-major order, `dst` is where each is. None of
  /// them: nothing is known.
  std::vector<StrideInfo> view;
  /// The same of all elements that share the allocation; what is none of them is padding.
  std::vector<StrideInfo> storage;
  bool scratch = false;  ///< memory for intermediates: what is in it does not outlive the launch
};

struct LaunchDescription {
  std::string op;      ///< "aten::add_", the name of a kernel
  std::string source;  ///< the user's line, or nothing
  std::vector<OperandDescription> operands;
};

/// A program and what it works on: operand i of its steps is operands[i].
struct Launch {
  std::shared_ptr<const Program> program;
  std::span<const Handle> operands;
  /// Looked at by streams that check. Lives as long as what is retained; may be null.
  const LaunchDescription* description = nullptr;
};

/// Work in first-in first-out order. Streams of one card run concurrently.
class Stream {
 public:
  virtual ~Stream() = default;

  /// Host to card. `host_bytes` and the allocation behind `device` bound what may be touched.
  virtual void to_card(const void* host, std::size_t host_bytes, Handle device,
                       DataConversion conversion, Submit submit, Retained retained) = 0;
  /// Card to host.
  virtual void to_host(Handle device, void* host, std::size_t host_bytes, DataConversion conversion,
                       Submit submit, Retained retained) = 0;
  /// Run programs one after the other. Nobody else works in the scratchpads in between: what a
  /// program hands over there (docs/program-format.md), the next one finds.
  virtual void launch(std::span<const Launch> launches, Submit submit, Retained retained) = 0;
  void launch(std::shared_ptr<const Program> program, std::span<const Handle> operands,
              Submit submit, Retained retained) {
    const Launch alone{std::move(program), operands};
    launch({&alone, 1}, submit, std::move(retained));
  }
  /// Run a host function in stream order, on the stream's worker.
  virtual void host_callback(std::function<void()> function) = 0;

  virtual void record(Event& event) = 0;
  virtual void wait(const Event& event) = 0;  ///< later work of this stream waits for the event

  virtual bool query() = 0;  ///< true if idle; throws the error that the stream keeps, on and on
  virtual void synchronize() = 0;  ///< throws the error that the stream keeps, once
  virtual int priority() const = 0;

  /// Look at every access of what is submitted from now on, and throw Error(fault) for the first
  /// one that no program may make. Very slow.
  virtual void set_checks(bool on) = 0;
  bool checks() const { return checks_.load(std::memory_order_relaxed); }

 protected:
  std::atomic<bool> checks_ = false;
};

// --------------------------------------------------------------------------------------- one card

enum class MemoryKind { tensor, program };

struct MemoryInfo {
  std::uint64_t capacity = 0, free = 0, largest_free_block = 0, allocations = 0;
  std::uint64_t backed = 0;  ///< bytes of host memory the card holds right now
};

struct Counters {
  std::uint64_t transfers_to_card = 0, bytes_to_card = 0;  ///< bytes in the device format
  std::uint64_t transfers_to_host = 0, bytes_to_host = 0;
  std::uint64_t programs_loaded = 0, program_bytes = 0;  ///< bytes sent before a first launch
  std::uint64_t launches = 0;
  // Of launched programs, as docs/cost-model.md counts.
  std::uint64_t device_bytes_read = 0, device_bytes_written = 0;
  std::uint64_t lx_bytes = 0, ring_bytes = 0;
  std::uint64_t macs = 0, sfp_elements = 0;  ///< products of the PT, elements of the SFP
  /// Their time, by what the card waited for.
  std::uint64_t memory_ns = 0, compute_ns = 0, lx_ns = 0, ring_ns = 0, overhead_ns = 0;
  std::uint64_t modelled_ns = 0;  ///< the card's clock: end of the latest submitted work
};

struct Properties {
  std::string name;  ///< "IBM Spyre (software card)"
  std::string type;  ///< "dd2"
  int cores = 0;
  std::uint64_t memory_bytes = 0, lx_bytes_per_core = 0;
};

class Card {
 public:
  virtual ~Card() = default;
  virtual const Properties& properties() const = 0;

  /// Memory of at least `bytes` (> 0), aligned to 128. Throws OutOfMemory.
  virtual Handle allocate(std::size_t bytes, MemoryKind kind) = 0;
  /// The caller has made sure that no submitted work uses it.
  virtual void free(Handle handle) = 0;
  virtual std::size_t allocation_bytes(Handle handle) const = 0;
  /// Device virtual address: segment base + offset. For programs; never shown to Python.
  virtual std::uint64_t device_address(Handle handle) const = 0;
  /// What complaints of streams that check call the allocation.
  virtual void name_allocation(Handle handle, const std::string& name) = 0;
  virtual MemoryInfo memory_info(MemoryKind kind) const = 0;
  /// Give freed memory that is still backed by the host back to it.
  virtual void trim() = 0;

  virtual std::unique_ptr<Stream> create_stream(int priority) = 0;
  virtual std::unique_ptr<Event> create_event() = 0;
  /// Checks the program (docs/program-format.md) and copies it into the program segment.
  virtual std::shared_ptr<const Program> load_program(std::span<const std::byte> binary) = 0;

  virtual void synchronize() = 0;  ///< all streams; throws one error, leaves others their own
  virtual Counters counters() const = 0;
  /// Wait for all work, forget its errors, set counters and clock to zero. Memory stays.
  virtual void reset() = 0;
};

// ---------------------------------------------------------------------------------- the machine

enum class Mode {
  physical,  ///< PF: the whole card
  virtual_,  ///< VF: an isolated share of it; scratchpads are others' between programs
  mock,      ///< MOCK: a card that need not exist
};

class Platform {
 public:
  virtual ~Platform() = default;
  virtual int card_count() const = 0;  ///< cards in this machine; starts nothing
  virtual std::shared_ptr<Card> open(int index, Mode mode) = 0;
  /// Convert `count` packed elements on the host, with the card's rounding.
  virtual void convert(DataFormat src, const void* from, DataFormat dst, void* to,
                       std::size_t count, Narrow narrow) const = 0;
};

}  // namespace spyre::card

extern "C" {
/// The library's platform, alive until the process ends; null if `abi_version` is not supported.
SPYRE_CARD_API spyre::card::Platform* spyre_card_platform(int abi_version);
}
