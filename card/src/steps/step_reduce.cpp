// Reductions: lines of elements to one value each, or two.
//
// A line (all elements of one accumulator) is cut into pieces of kFoldPiece positions. Blocks of
// pieces are gathered and folded, in any order and on any thread, each into its own place; then the
// pieces of a line are put together in an order that depends on their number alone.
#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "formats/accumulation.h"
#include "nests/move.h"
#include "steps/line_step.h"
#include "steps/reduce_pieces.h"
#include "steps/steps.h"

namespace spyre::card {
namespace {

constexpr std::int64_t kBlockBytes = 128 << 10;  // gathered at once: fits a core's own cache
constexpr std::int64_t kShortLine = 16;  // lines shorter than that are worked on side by side

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

class ReduceStep : public LineStep {
 public:
  explicit ReduceStep(PayloadReader& reader) {
    read_op(reader);
    shape_ = read_line_shape(reader, "accumulators", "extent", "accumulator", "position");
    inputs_[0].read_view(reader, "input", shape_);
    read_outputs(reader);
    reader.finish();
    check(reader);
    pieces_.chunked = (op_->op == OpFunc::sum || op_->op == OpFunc::mean) && !integer_ &&
                      inputs_[0].format == DataFormat::SEN169_FP16 &&
                      accumulation() == Accumulation::chunked;
    across_ = !view().runs_along() || shape_.length < kShortLine;
    plan_blocks();
  }

  const char* name() const override { return "reduce"; }

  void run(std::span<const Extent> operands) const override {
    if (shape_.lines == 0) return;
    integer_ ? reduce<std::int64_t>(operands) : reduce<float>(operands);
  }

 private:
  const LineView& view() const { return *inputs_[0].view; }

  void read_op(PayloadReader& reader) {
    op_ = &reader.op(OpKind::reduce, "is not a reduction");
    pieces_.recipe = reduce_recipe(op_->op);
    inputs_.push_back({reader.tensor("input")});
    outputs_.push_back({reader.tensor("output")});
    narrow_ = reader.narrow("narrow");
    outputs_.push_back({reader.optional_tensor("second output")});
    integer_ = reader.integers(*op_);
    pieces_.constants = reader.constants(*op_);
    if (!outputs_[1].present()) return;
    switch (op_->op) {
      case OpFunc::max:
      case OpFunc::min:
        // Their indices come from the folds of argmax and argmin.
        pieces_.recipe.second = Fold::match;
        pieces_.recipe.parameter = FoldParameter::value;
        pieces_.recipe.needs_all = true;
        break;
      case OpFunc::exx2:
      case OpFunc::var:
        break;
      default:
        reader.refuse("second output operand", std::string(op_->name) + " has one output");
    }
  }

  void read_outputs(PayloadReader& reader) {
    constexpr const char* names[] = {"accumulator", "output", "second output"};
    const std::size_t count = outputs_[1].present() ? 2 : 1;
    const LoopNests loops = read_nests(reader, std::span(names).first(1 + count));
    written_ = loops.visits;
    const auto used = static_cast<std::int64_t>(loops.range(0, DataFormat::BOOL).end);
    if (used > shape_.lines)
      reader.refuse("accumulator", std::to_string(used - 1) + " of the output is not below " +
                                       std::to_string(shape_.lines));
    // Indices and counts are integers whatever the elements are.
    results_[0].format =
        integer_ || pieces_.counts_or_indices() ? DataFormat::IEEE_INT64 : DataFormat::IEEE_FP32;
    results_[1].format =
        pieces_.recipe.second == Fold::match ? DataFormat::IEEE_INT64 : DataFormat::IEEE_FP32;
    for (std::size_t k = 0; k < count; ++k) {
      outputs_[k].range = loops.range(1 + k, outputs_[k].format);
      Mover& mover = results_[k].mover.emplace(results_[k].format, outputs_[k].format,
                                               k == 0 ? narrow_ : Narrow::none);
      for (LoopNest& nest : over(loops.nests, 0, 1 + k)) mover.add(std::move(nest));
    }
  }

  void check(const PayloadReader& reader) const {
    const std::int64_t elements = shape_.lines * shape_.length;
    if (shape_.length == 0 && shape_.lines > 0 && pieces_.recipe.needs_elements)
      reader.refuse("extent", std::string("there is no ") + op_->name + " of no elements");
    view().check_visits(reader, "input", shape_);
    if (pieces_.recipe.needs_all && view().visits() < elements)
      reader.refuse("input", "the loops visit " + std::to_string(view().visits()) +
                                 " elements, but " + op_->name + " needs all " +
                                 std::to_string(elements));
    if (written_ < shape_.lines)
      reader.refuse("accumulators", std::to_string(shape_.lines) + ", but only " +
                                        std::to_string(written_) + " results are written");
  }

  /// The length of pieces decides about rounding and is always the same. Blocks decide about
  /// nothing but speed: as large as a core's cache likes, yet enough of them for all threads.
  void plan_blocks() {
    pieces_.two_results = outputs_[1].present();
    pieces_.cut(shape_.length);
    const std::int64_t budget =
        block_elements(shape_.lines * shape_.length, kBlockBytes / (integer_ ? 8 : 4));
    const std::int64_t least = std::clamp<std::int64_t>(shape_.length, 1, kFoldPiece);
    block_lines_ = budget / least;
    if (block_lines_ > 64) block_lines_ = block_lines_ / 64 * 64;  // whole sticks
    block_lines_ =
        std::clamp<std::int64_t>(block_lines_, 1, std::max<std::int64_t>(1, shape_.lines));
    block_pieces_ =
        std::clamp<std::int64_t>(budget / block_lines_ / pieces_.piece_length, 1, pieces_.pieces);
  }

  template <typename T>
  T unvisited() const {
    switch (pieces_.recipe.first) {
      case Fold::product:
        return 1;
      case Fold::largest:
        return std::is_same_v<T, float> ? -std::numeric_limits<T>::infinity()
                                        : std::numeric_limits<T>::min();
      case Fold::smallest:
        return std::is_same_v<T, float> ? std::numeric_limits<T>::infinity()
                                        : std::numeric_limits<T>::max();
      default:
        return op_->op == OpFunc::all ? T{1} : T{0};
    }
  }

  template <typename T>
  void reduce(std::span<const Extent> operands) const {
    const std::byte* const input = inputs_[0].data(operands);
    const std::int64_t all = pieces_.pieces * shape_.lines;
    const Scratch<T> partials(ScratchSlot::partials, pieces_.recipe.second ? 2 * all : all);
    T* const first = partials.data();
    T* const second = first + all;
    const std::int64_t line_blocks = ceil_div(shape_.lines, block_lines_);
    const std::int64_t piece_blocks = ceil_div(pieces_.pieces, block_pieces_);
    ThreadPool& pool = ThreadPool::shared();
    pool.parallel_for(line_blocks * piece_blocks, [&](std::int64_t block) {
      fold_block(input, block % line_blocks, block / line_blocks, first, second);
    });
    // Room for indices and counts, which are integers.
    const bool integers = results_[0].format == DataFormat::IEEE_INT64 ||
                          results_[1].format == DataFormat::IEEE_INT64;
    const Scratch<std::int64_t> results(ScratchSlot::results, integers ? shape_.lines : 0);
    const std::int64_t share = std::clamp<std::int64_t>((1 << 16) / pieces_.pieces, 64,
                                                        1 << 16);  // lines to finish at once
    pool.parallel_for(ceil_div(shape_.lines, share), [&](std::int64_t task) {
      const std::int64_t line = task * share;
      pieces_.finish(first + line, second + line, results.data() + line,
                     std::min(share, shape_.lines - line), shape_.lines);
    });
    write_outputs(operands, first, second, results.data());
  }

  template <typename T>
  void write_outputs(std::span<const Extent> operands, const T* first, const T* second,
                     const std::int64_t* integers) const {
    const void* const sources[] = {
        pieces_.counts_or_indices() ? static_cast<const void*>(integers) : first,
        pieces_.recipe.second == Fold::match ? static_cast<const void*>(integers) : second};
    for (std::size_t k = 0; k < 2; ++k)
      if (outputs_[k].present())
        results_[k].mover->run(static_cast<const std::byte*>(sources[k]),
                               outputs_[k].data(operands));
  }

  /// Folds the pieces of one block into first[piece][line] and second[piece][line].
  template <typename T>
  void fold_block(const std::byte* input, std::int64_t line_block, std::int64_t piece_block,
                  T* first, T* second) const {
    const std::int64_t line = line_block * block_lines_;
    const std::int64_t lines = std::min(block_lines_, shape_.lines - line);
    const std::int64_t position = piece_block * block_pieces_ * pieces_.piece_length;
    const std::int64_t length = std::max<std::int64_t>(
        0, std::min(block_pieces_ * pieces_.piece_length, shape_.length - position));
    // A few more than a power of two, lest lines meet in the same places of a cache.
    const std::int64_t pitch = across_ ? lines : length + 16;
    const std::int64_t elements = across_ ? lines * length : lines * pitch;
    const Scratch<T> block(ScratchSlot::block, elements + lines);
    const Scratch<T> work(ScratchSlot::work, across_ ? kFoldLanes * lines : 0);
    if (!view().complete()) std::fill_n(block.data(), elements, unvisited<T>());
    view().gather(input, {line, lines, position, length, across_ ? 1 : pitch, across_ ? pitch : 1},
                  block.data());
    T* const parameters = block.data() + elements;
    for (std::int64_t k = 0; k < block_pieces_; ++k) {
      const std::int64_t piece = piece_block * block_pieces_ + k;
      if (piece >= pieces_.pieces) break;
      const T* const x = block.data() + k * pieces_.piece_length * (across_ ? pitch : 1);
      const LineBlock shape{lines, pieces_.length_of(piece), pitch, across_};
      T* const values = first + piece * shape_.lines + line;
      pieces_.fold(x, shape, parameters, values, second + piece * shape_.lines + line, work.data());
    }
  }

  /// The second: indices of max and min, squares of exx2, mean of var.
  struct Result {
    DataFormat format;  // before it is written
    std::optional<Mover> mover;
  } results_[2];
  Narrow narrow_;  // of the first
  std::int64_t written_ = 0;
  bool integer_, across_;
  ReducePieces pieces_{};
  std::int64_t block_lines_, block_pieces_;
};

}  // namespace

std::unique_ptr<const Step> decode_reduce(PayloadReader& reader) {
  return std::make_unique<const ReduceStep>(reader);
}

}  // namespace spyre::card
