// The step that spreads others over the cores: each runs them on its own part of the operands.
// Steps that take less for all cores at once (Step::at_once) are run so; cores do not see the
// difference.
#include <algorithm>
#include <functional>
#include <span>
#include <utility>

#include "host/thread_pool.h"
#include "spyre/program.h"
#include "steps/steps.h"

namespace spyre::card {
namespace {

// Deeper than any tiling a person can follow, and shallow enough for every stack.
constexpr int kMaxLoopDepth = 16;

/// Where the operands of each core are.
class CoreOperands {
 public:
  CoreOperands(std::size_t cores, std::size_t operands)
      : cores_(cores), operands_(operands), extents_(cores * operands) {}
  std::int64_t count() const { return static_cast<std::int64_t>(cores_); }
  std::span<Extent> of(std::int64_t core) {
    return std::span(extents_).subspan(static_cast<std::size_t>(core) * operands_, operands_);
  }

 private:
  std::size_t cores_, operands_;
  std::vector<Extent> extents_;  // [core][operand]
};

class CoresStep : public Step {
 public:
  explicit CoresStep(PayloadReader& reader) {
    cores_ = reader.within("cores", 1, kCores);
    const std::int64_t count = reader.count("operand count");
    for (std::int64_t i = 0; i < count; ++i) {
      Operand& operand = operands_.emplace_back();
      operand.operand =
          reader.within("operand", CoreProgram::Operand::kAllScratchpads, kMaxProgramOperands - 1);
      for (std::int64_t core = 0; core < cores_; ++core)
        operand.offset.push_back(read_bytes(reader, "offset"));
    }
    std::vector<std::int64_t> travelled(operands_.size(), 0);
    nodes_ = read_nodes(reader, travelled, 1, 0);
    reader.finish();
    bool own = ThreadPool::shared().size() < kCores;
    for (const Operand& operand : operands_) {
      uses_scratchpads_ |= operand.in_scratchpad();
      own &= !operand.in_scratchpad() || operand.in_own();
    }
    may_share_ = !find_steps_at_once(nodes_) && own && uses_scratchpads_;
  }

  const char* name() const override { return "cores"; }
  Traffic traffic() const override { return traffic_; }

  std::vector<Need> needs() const override {
    std::vector<Need> needs;
    for (const Operand& operand : operands_)
      if (!operand.in_scratchpad() && operand.end > 0)
        needs.push_back({operand.operand, operand.end});
    return needs;
  }

  bool uses_scratchpads() const override { return uses_scratchpads_; }

  /// Without a card: in scratchpads of its own.
  void run(std::span<const Extent> operands) const override {
    if (!uses_scratchpads_) return run_cores(operands, nullptr, false);
    const Scratchpads own;
    const Scratchpads::Turn turn(own);
    run_cores(operands, &turn, true);
  }
  void run(std::span<const Extent> operands, const Scratchpads::Turn& turn,
           bool alone) const override {
    run_cores(operands, &turn, alone);
  }

 private:
  struct Operand {
    std::int64_t operand;
    std::vector<std::int64_t> offset;  // one a core
    std::uint64_t end = 0;             // bytes of it that any core touches

    bool in_scratchpad() const { return operand < 0; }
    bool in_own() const { return operand == CoreProgram::Operand::kScratchpad; }
    std::uint64_t limit() const {
      if (!in_scratchpad()) return kDefaultCardBytes;
      return in_own() ? kLxBytesPerCore : kCores * kLxBytesPerCore;
    }
  };
  struct Node {
    std::unique_ptr<const Step> step;  // null: a loop
    std::int64_t first_core = 0, end_core = 0;
    std::int64_t count = 0;
    std::vector<CoreProgram::Advance> advances;
    std::vector<Node> body;
    std::function<void(std::span<const Extent>)> at_once;  // the step for all its cores, or nothing
    bool waits = false;  // it, or a step of the loop, runs at once: cores wait for each other
  };

  static std::int64_t read_bytes(PayloadReader& reader, const char* field) {
    const std::int64_t bytes = reader.within(field, 0, kDefaultCardBytes);
    if (bytes % kStickBytes != 0)
      reader.refuse(field, std::to_string(bytes) + " bytes are not whole sticks");
    return bytes;
  }

  /// `travelled`: how far loops around have carried each operand at most; `times`: iterations of
  /// them all.
  std::vector<Node> read_nodes(PayloadReader& reader, std::vector<std::int64_t>& travelled,
                               std::int64_t times, int depth) {
    if (depth > kMaxLoopDepth) reader.refuse("loop", "loops are nested too deeply");
    std::vector<Node> nodes;
    const std::int64_t count = reader.count("node count");
    for (std::int64_t i = 0; i < count; ++i) {
      Node& node = nodes.emplace_back();
      if (reader.within("node kind", 0, 1) == 0) {
        read_step(reader, node, travelled, times);
      } else {
        read_loop(reader, node, travelled, times, depth);
      }
    }
    return nodes;
  }

  void read_step(PayloadReader& reader, Node& node, const std::vector<std::int64_t>& travelled,
                 std::int64_t times) {
    node.first_core = reader.within("first core", 0, cores_ - 1);
    node.end_core = reader.within("end core", node.first_core + 1, cores_);
    const auto head = static_cast<std::uint64_t>(reader.word("step head"));
    const auto opcode = static_cast<std::uint32_t>(head);
    if (opcode == static_cast<std::uint32_t>(Opcode::cores))
      reader.refuse("opcode", "cores have no cores of their own");
    node.step = decode_step(reader.step_index(), opcode,
                            reader.words("payload", static_cast<std::int64_t>(head >> 32)));
    for (const Need& need : node.step->needs()) {
      const auto index = static_cast<std::size_t>(need.operand);
      if (index >= operands_.size())
        reader.refuse("operand", std::to_string(index) + ", but the cores have " +
                                     std::to_string(operands_.size()));
      if (need.bytes == 0) continue;
      Operand& operand = operands_[index];
      for (std::int64_t core = node.first_core; core < node.end_core; ++core)
        operand.end = std::max(
            operand.end, static_cast<std::uint64_t>(operand.offset[static_cast<std::size_t>(core)] +
                                                    travelled[index]) +
                             need.bytes);
      if (operand.end > operand.limit())
        reader.refuse("offset", "operand " + std::to_string(index) + " reaches byte " +
                                    std::to_string(operand.end) +
                                    (!operand.in_scratchpad() ? ", no card has more than "
                                     : operand.in_own()       ? ", a scratchpad has "
                                                              : ", all scratchpads have ") +
                                    std::to_string(operand.limit()));
    }
    const auto visits = static_cast<std::uint64_t>(times * (node.end_core - node.first_core));
    std::uint64_t read, written;
    if (__builtin_mul_overflow(node.step->traffic().read, visits, &read) ||
        __builtin_mul_overflow(node.step->traffic().written, visits, &written) ||
        __builtin_add_overflow(traffic_.read, read, &traffic_.read) ||
        __builtin_add_overflow(traffic_.written, written, &traffic_.written))
      reader.refuse("traffic", "more bytes than 64 bits can count");
  }

  void read_loop(PayloadReader& reader, Node& node, std::vector<std::int64_t>& travelled,
                 std::int64_t times, int depth) {
    node.count = reader.within("iterations", 0, kMaxElements);
    if (__builtin_mul_overflow(times, node.count, &times) || times > kMaxElements)
      reader.refuse("iterations", "the loops run too many times");
    const std::int64_t advances = reader.count("advance count");
    std::vector<std::int64_t> inside = travelled;
    for (std::int64_t i = 0; i < advances; ++i) {
      const std::int64_t last = static_cast<std::int64_t>(operands_.size()) - 1;
      const std::int64_t operand = reader.within("advancing operand", 0, last);
      const std::int64_t bytes = read_bytes(reader, "advance");
      node.advances.push_back({operand, bytes});
      std::int64_t way, &sum = inside[static_cast<std::size_t>(operand)];
      if (node.count > 0 && (__builtin_mul_overflow(node.count - 1, bytes, &way) ||
                             __builtin_add_overflow(sum, way, &sum) || sum > kDefaultCardBytes))
        reader.refuse("advance", "leads beyond any card's memory");
    }
    node.body = read_nodes(reader, inside, times, depth + 1);
  }

  /// Whether there are any.
  bool find_steps_at_once(std::vector<Node>& nodes) const {
    bool any = false;
    for (Node& node : nodes) {
      if (!node.step) {
        node.waits = find_steps_at_once(node.body);
      } else if (node.end_core - node.first_core > 1) {
        Step::CorePlaces places;
        for (const Operand& operand : operands_) {
          const auto place = [&](std::int64_t core) {
            return operand.offset[static_cast<std::size_t>(core)] +
                   (operand.in_own() ? core * kLxBytesPerCore : 0);
          };
          auto& from_first = places.emplace_back();
          for (std::int64_t core = node.first_core; core < node.end_core; ++core)
            from_first.push_back(place(core) - place(node.first_core));
        }
        node.at_once = node.step->at_once(places, nodes_.size() == 1 && &node == nodes_.data());
        node.waits = static_cast<bool>(node.at_once);
      }
      any |= node.waits;
    }
    return any;
  }

  void run_cores(std::span<const Extent> operands, const Scratchpads::Turn* pads,
                 bool alone) const {
    CoreOperands cores(static_cast<std::size_t>(cores_), operands_.size());
    for (std::int64_t core = 0; core < cores_; ++core) {
      const std::span<Extent> mine = cores.of(core);
      for (std::size_t i = 0; i < mine.size(); ++i) {
        const Operand& operand = operands_[i];
        if (operand.end == 0) continue;
        const Extent whole =
            operand.in_scratchpad()
                ? Extent{pads->of_core(operand.in_own() ? core : 0), operand.limit()}
                : operands[static_cast<std::size_t>(operand.operand)];
        const std::int64_t offset = operand.offset[static_cast<std::size_t>(core)];
        mine[i] = {whole.data + offset, whole.bytes - static_cast<std::uint64_t>(offset)};
      }
    }
    if (alone && may_share_) return run_in_turn(cores);
    run_together(nodes_, cores);
  }

  /// Each core from its beginning to its end: the cores of a host's thread take turns in one
  /// scratchpad, which stays in the thread's caches.
  void run_in_turn(CoreOperands& cores) const {
    ThreadPool::shared().parallel_for(cores.count(), [&](std::int64_t core) {
      const std::span<Extent> mine = cores.of(core);
      const std::int64_t away = (ThreadPool::this_thread() - core) * kLxBytesPerCore;
      for (std::size_t i = 0; i < mine.size(); ++i)
        if (operands_[i].in_own() && operands_[i].end > 0) mine[i].data += away;
      run_nodes(nodes_, core, mine);
    });
  }

  /// All cores side by side, but for steps that run at once.
  static void run_together(std::span<const Node> nodes, CoreOperands& cores) {
    while (!nodes.empty()) {
      const auto alone = static_cast<std::size_t>(
          std::find_if(nodes.begin(), nodes.end(), [](const Node& node) { return node.waits; }) -
          nodes.begin());
      if (alone > 0)
        ThreadPool::shared().parallel_for(cores.count(), [&](std::int64_t core) {
          run_nodes(nodes.first(alone), core, cores.of(core));
        });
      nodes = nodes.subspan(alone);
      if (nodes.empty()) return;
      const Node& node = nodes.front();
      nodes = nodes.subspan(1);
      if (node.at_once) {
        node.at_once(cores.of(node.first_core));
        continue;
      }
      for (std::int64_t i = 0; i < node.count; ++i) {
        run_together(node.body, cores);
        move_all_on(node, cores, 1);
      }
      move_all_on(node, cores, -node.count);
    }
  }

  static void move_all_on(const Node& node, CoreOperands& cores, std::int64_t iterations) {
    for (std::int64_t core = 0; core < cores.count(); ++core)
      move_on(node, cores.of(core), iterations);
  }

  static void run_nodes(std::span<const Node> nodes, std::int64_t core,
                        std::span<Extent> operands) {
    for (const Node& node : nodes) {
      if (node.step) {
        if (node.first_core <= core && core < node.end_core) node.step->run(operands);
        continue;
      }
      for (std::int64_t i = 0; i < node.count; ++i) {
        run_nodes(node.body, core, operands);
        move_on(node, operands, 1);
      }
      move_on(node, operands, -node.count);
    }
  }

  static void move_on(const Node& node, std::span<Extent> operands, std::int64_t iterations) {
    for (const CoreProgram::Advance& advance : node.advances) {
      Extent& operand = operands[static_cast<std::size_t>(advance.operand)];
      operand.data += advance.bytes * iterations;
      operand.bytes -= static_cast<std::uint64_t>(advance.bytes * iterations);
    }
  }

  std::int64_t cores_ = 0;
  bool uses_scratchpads_ = false;
  bool may_share_ = false;  // a core looks at no other's scratchpad, and waits for none
  std::vector<Operand> operands_;
  std::vector<Node> nodes_;
  Traffic traffic_;
};

}  // namespace

std::unique_ptr<const Step> decode_cores(PayloadReader& reader) {
  return std::make_unique<const CoresStep>(reader);
}

}  // namespace spyre::card
