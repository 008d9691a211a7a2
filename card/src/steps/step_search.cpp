// Binary search: where each query belongs in the sorted line it goes with.
#include <algorithm>

#include "steps/line_step.h"
#include "steps/steps.h"

namespace spyre::card {
namespace {

constexpr std::int64_t kBlockQueries = 16 << 10;

class SearchStep : public LineStep {
 public:
  SearchStep(PayloadReader& reader, const OpInfo& op) {
    op_ = &op;
    for (const char* const name : {"sequence", "query"}) inputs_.push_back({reader.tensor(name)});
    outputs_.push_back({reader.tensor("output")});
    integer_ = reader.integers(op);
    right_ = reader.constants(op)[0] != 0;
    shape_ = read_line_shape(reader, "lines", "line length", "line", "position");
    queries_ = shape_;
    queries_.length = reader.within("query length", 0, kMaxElements);
    std::int64_t elements;
    if (__builtin_mul_overflow(queries_.lines, queries_.length, &elements) ||
        elements > kMaxElements)
      reader.refuse("query length", "more queries than a card has bytes");
    inputs_[0].read_view(reader, "sequence", shape_);
    inputs_[1].read_view(reader, "queries", queries_);
    outputs_[0].read_view(reader, "output", queries_);
    reader.finish();
    inputs_[0].view->check_visits(reader, "sequence", shape_);
    inputs_[1].view->check_visits(reader, "queries", queries_);
  }

  const char* name() const override { return "sort"; }
  OpCost cost() const override { return Step::cost(); }

  void run(std::span<const Extent> operands) const override {
    if (queries_.lines == 0 || queries_.length == 0) return;
    std::byte* const output = outputs_[0].data(operands);
    ReadBefore before;
    // Lines are read several times.
    const auto data_of = [&](const Tensor& input) {
      std::byte* const data = input.data(operands);
      return overlap(data, input.range, output, outputs_[0].range) ? before.keep(data, input.range)
                                                                   : data;
    };
    const std::byte *const sequence = data_of(inputs_[0]), *const queries = data_of(inputs_[1]);
    // A task reads its line anew: that should not be most of its work.
    const std::int64_t block = std::min(queries_.length, std::max(kBlockQueries, shape_.length));
    const std::int64_t blocks = (queries_.length + block - 1) / block;
    run_tasks(queries_.lines * blocks, !outputs_[0].view->distinct(), [&](std::int64_t index) {
      const std::int64_t line = index / blocks, first = index % blocks * block;
      const std::int64_t count = std::min(block, queries_.length - first);
      integer_ ? search_line<std::int64_t>(line, first, count, sequence, queries, output)
               : search_line<float>(line, first, count, sequence, queries, output);
    });
  }

 private:
  template <typename T>
  void search_line(std::int64_t line, std::int64_t first, std::int64_t count,
                   const std::byte* sequence, const std::byte* queries, std::byte* output) const {
    const LineView &sequence_view = *inputs_[0].view, &query_view = *inputs_[1].view;
    const std::int64_t length = shape_.length;
    const Scratch<T> sorted(ScratchSlot::block, length);
    const Scratch<T> wanted(ScratchSlot::work, count);
    const Scratch<std::int64_t> found(ScratchSlot::results, count);
    if (!sequence_view.complete()) std::fill_n(sorted.data(), length, T{0});
    if (!query_view.complete()) std::fill_n(wanted.data(), count, T{0});
    sequence_view.gather(sequence, {line, 1, 0, length, length, 1}, sorted.data());
    const LineWindow window{line, 1, first, count, count, 1};
    query_view.gather(queries, window, wanted.data());
    const T *const begin = sorted.data(), *const end = begin + length;
    for (std::int64_t i = 0; i < count; ++i) {
      const T query = wanted.data()[i];
      // A NaN comes after everything else, as in a sorted line.
      const auto less = [&](T each) { return each == each && !(each >= query); };
      const auto not_greater = [&](T each) {
        return !(each > query) && (each == each || query != query);
      };
      found.data()[i] = (right_ ? std::partition_point(begin, end, not_greater)
                                : std::partition_point(begin, end, less)) -
                        begin;
    }
    outputs_[0].view->scatter(found.data(), window, output);
  }

  bool integer_, right_;
  LineShape queries_;
};

}  // namespace

std::unique_ptr<const Step> decode_search(PayloadReader& reader, const OpInfo& op) {
  return std::make_unique<const SearchStep>(reader, op);
}

}  // namespace spyre::card
