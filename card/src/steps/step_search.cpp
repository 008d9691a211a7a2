// Binary search: where each query belongs in the sorted line it goes with.
#include <algorithm>
#include <optional>

#include "host/thread_pool.h"
#include "nests/lines.h"
#include "spyre/ops.h"
#include "spyre/program.h"
#include "steps/steps.h"

namespace spyre::card {
namespace {

constexpr std::int64_t kBlockQueries = 16 << 10;

class SearchStep : public Step {
 public:
  SearchStep(PayloadReader& reader, const OpInfo& op) {
    sequence_operand_ = reader.operand("sequence operand");
    const DataFormat sequence_format = reader.format("sequence format");
    query_operand_ = reader.operand("query operand");
    const DataFormat query_format = reader.format("query format");
    output_operand_ = reader.operand("output operand");
    const DataFormat output_format = reader.format("output format");
    integer_ = reader.within("compute type", 0, 1) == 1;
    const std::int64_t constants = reader.count("constants");
    if (constants != op.constants)
      reader.refuse("constants", std::string(op.name) + " takes " + std::to_string(op.constants) +
                                     ", not " + std::to_string(constants));
    right_ = reader.real("constant") != 0;
    sequences_ = read_line_shape(reader, "lines", "line length", "line", "position");
    queries_ = sequences_;
    queries_.length = reader.within("query length", 0, kMaxElements);
    std::int64_t elements;
    if (__builtin_mul_overflow(queries_.lines, queries_.length, &elements) ||
        elements > kMaxElements)
      reader.refuse("query length", "more queries than a card has bytes");
    sequence_.emplace(reader, "sequence", sequence_format, sequences_);
    query_.emplace(reader, "queries", query_format, queries_);
    output_.emplace(reader, "output", output_format, queries_);
    reader.finish();
    sequence_->check_visits(reader, "sequence", sequences_);
    query_->check_visits(reader, "queries", queries_);
  }

  const char* name() const override { return "sort"; }

  std::vector<Need> needs() const override {
    return {{sequence_operand_, sequence_->range().end},
            {query_operand_, query_->range().end},
            {output_operand_, output_->range().end}};
  }

  Traffic traffic() const override {
    return {sequence_->read().read + query_->read().read, output_->written().written};
  }

  void run(std::span<const Extent> operands) const override {
    if (queries_.lines == 0 || queries_.length == 0) return;
    integer_ ? search<std::int64_t>(operands) : search<float>(operands);
  }

 private:
  template <typename T>
  void search(std::span<const Extent> operands) const {
    const auto data = [&](std::int64_t operand) {
      return operands[static_cast<std::size_t>(operand)].data;
    };
    const std::byte *sequence = data(sequence_operand_), *queries = data(query_operand_);
    std::byte* const output = data(output_operand_);
    std::vector<std::byte> copies[2];
    const auto keep = [&](const std::byte*& from, const LineView& view, auto& copy) {
      if (!overlap(from, view, output, *output_)) return;
      copy.assign(from, from + view.range().end);
      from = copy.data();
    };
    keep(sequence, *sequence_, copies[0]);
    keep(queries, *query_, copies[1]);
    // A task reads its line anew: that should not be most of its work.
    const std::int64_t block =
        std::min(queries_.length, std::max(kBlockQueries, sequences_.length));
    const std::int64_t blocks = (queries_.length + block - 1) / block;
    const auto task = [&](std::int64_t index) {
      const std::int64_t first = index % blocks * block;
      const std::int64_t count = std::min(block, queries_.length - first);
      search_line<T>(index / blocks, first, count, sequence, queries, output);
    };
    if (output_->distinct()) {
      ThreadPool::shared().parallel_for(queries_.lines * blocks, task);
    } else {
      // Where elements are written more than once, the last line stays.
      for (std::int64_t index = 0; index < queries_.lines * blocks; ++index) task(index);
    }
  }

  template <typename T>
  void search_line(std::int64_t line, std::int64_t first, std::int64_t count,
                   const std::byte* sequence, const std::byte* queries, std::byte* output) const {
    const std::int64_t length = sequences_.length;
    const Scratch<T> sorted(ScratchSlot::block, length);
    const Scratch<T> wanted(ScratchSlot::work, count);
    const Scratch<std::int64_t> found(ScratchSlot::results, count);
    if (!sequence_->complete()) std::fill_n(sorted.data(), length, T{0});
    if (!query_->complete()) std::fill_n(wanted.data(), count, T{0});
    sequence_->gather(sequence, {line, 1, 0, length, length, 1}, sorted.data());
    const LineWindow window{line, 1, first, count, count, 1};
    query_->gather(queries, window, wanted.data());
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
    output_->scatter(found.data(), window, output);
  }

  std::int64_t sequence_operand_, query_operand_, output_operand_;
  bool integer_, right_;
  LineShape sequences_, queries_;
  std::optional<LineView> sequence_, query_, output_;
};

}  // namespace

std::unique_ptr<const Step> decode_search(PayloadReader& reader, const OpInfo& op) {
  return std::make_unique<const SearchStep>(reader, op);
}

}  // namespace spyre::card
