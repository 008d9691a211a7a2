// The step that multiplies matrices.
#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <utility>

#include "kernels/matmul.h"
#include "nests/byte_range.h"
#include "spyre/program.h"
#include "steps/steps.h"

namespace spyre::card {
namespace {

/// Elements along the dimension that an operand has its sticks on: whole sticks, then the rest.
struct Along {
  std::int64_t size, lanes, stick_stride, lane_stride;
};

/// The places that rows and batches have in an operand: whole sticks, and the parts of sticks
/// behind them. `outer` is around `along`.
std::vector<LoopNest> places_of(const PayloadReader& reader, const char* field,
                                const LoopNest& outer, const Along& along) {
  const auto nest = [&](std::int64_t lanes, std::int64_t sticks, std::int64_t offset) {
    LoopNest places(1);
    places.offset(0) = offset;
    places.add(lanes, {along.lane_stride});
    places.add(sticks, {along.stick_stride});
    for (std::size_t loop = 0; loop < outer.rank(); ++loop)
      places.add(outer.size(loop), {outer.stride(loop, 0)});
    check_reach(reader, field, places, 0);
    return places;
  };
  const std::int64_t whole = along.size / along.lanes, rest = along.size % along.lanes;
  std::vector<LoopNest> nests{nest(along.lanes, whole, outer.offset(0))};
  if (rest == 0) return nests;
  std::int64_t last;
  if (__builtin_mul_overflow(whole, along.stick_stride, &last) ||
      __builtin_add_overflow(last, outer.offset(0), &last))
    reader.refuse(field, "reaches beyond 64 bits");
  nests.push_back(nest(rest, 1, last));
  return nests;
}

// Up to so many rows a core spends more on unpacking a right operand, which other cores unpack too,
// than on waiting for them.
constexpr std::int64_t kFewRows = 96;
constexpr double kWorthWaiting = 1'000'000;  // multiply-adds

/// Cores as loops, innermost first: all begin where the strides lead. Nothing if there are none
/// such.
std::optional<std::vector<Matmul::Batch>> loops_of_cores(
    std::vector<std::array<std::int64_t, 4>> cores) {
  std::vector<Matmul::Batch> loops;
  while (cores.size() > 1) {
    const auto step = [&](std::size_t core) {
      std::array<std::int64_t, 4> way;
      for (std::size_t i = 0; i < way.size(); ++i) way[i] = cores[core][i] - cores[core - 1][i];
      return way;
    };
    const auto first = step(1);
    std::size_t size = 2;
    while (size < cores.size() && step(size) == first) ++size;
    while (cores.size() % size != 0) --size;
    for (std::size_t core = 1; core < cores.size(); ++core)
      if (core % size != 0 && step(core) != first) return {};
    if (size == 1 || *std::min_element(first.begin(), first.end()) < 0) return {};
    loops.push_back({static_cast<std::int64_t>(size), first[0], first[1], first[2], first[3]});
    std::size_t kept = 0;
    for (std::size_t core = 0; core < cores.size(); core += size) cores[kept++] = cores[core];
    cores.resize(kept);
  }
  return loops;
}

class MatmulStep : public Step {
 public:
  explicit MatmulStep(PayloadReader& reader) {
    const Matmul matmul = matmul_ = read(reader);
    check_numbers(reader, matmul);
    check_sizes(reader, matmul);
    check_places(reader, matmul);
    a_ = matmul.a.operand, b_ = matmul.b.operand, c_ = matmul.c.operand;
    bias_ = matmul.bias.operand;
    bias_in_place_ =
        matmul.bias.format == matmul.c.format && matmul.bias.offset == matmul.c.offset &&
        matmul.bias.m_stride == matmul.c.m_stride &&
        matmul.bias.n_stick_stride == matmul.c.n_stick_stride && matmul.bias.n_lane_stride == 1 &&
        std::all_of(matmul.batch.begin(), matmul.batch.end(),
                    [](const Matmul::Batch& dim) { return dim.bias == dim.c; });
    plan_ = std::make_unique<const MatmulPlan>(matmul);
  }

  const char* name() const override { return "matmul"; }
  std::vector<Need> needs() const override {
    std::vector<Need> needs{{a_, a_range_.end}, {b_, b_range_.end}, {c_, c_range_.end}};
    if (bias_ >= 0) needs.push_back({bias_, bias_range_.end});
    return needs;
  }
  Traffic traffic() const override {
    return {a_range_.touched + b_range_.touched + bias_range_.touched, c_range_.touched};
  }
  /// On all cores, split as it takes least time.
  OpCost cost() const override {
    OpCost best;
    best.unit = Unit::pt;
    if (c_range_.touched == 0) return best;
    std::optional<std::int64_t> least;
    for (std::int64_t m = 1; m <= kCores; m *= 2)
      for (std::int64_t n = 1; n * m <= kCores; n *= 2) {
        const OpCost cost = split(kCores / (n * m), m, n);
        const std::int64_t ns = price(cost).total;
        if (!least || ns < *least) best = cost, least = ns;
      }
    return best;
  }
  void run(std::span<const Extent> operands) const override {
    MatmulPlan::Operands all = places_in(operands);
    std::byte* const c = all.c;
    ReadBefore before;
    const auto keep = [&](const std::byte*& operand, const ByteRange& range) {
      if (operand && overlap(operand, range, c, c_range_)) operand = before.keep(operand, range);
    };
    keep(all.a, a_range_);
    keep(all.b, b_range_);
    if (!bias_in_place_ || all.bias != c) keep(all.bias, bias_range_);
    plan_->run(all);
  }
  /// Products of few rows each with one B: one product, which unpacks it once.
  std::function<void(std::span<const Extent>)> at_once(const CorePlaces& places,
                                                       bool) const override {
    std::int64_t rows = matmul_.m;
    for (const Matmul::Batch& dim : matmul_.batch) rows *= dim.b == 0 ? dim.size : 1;
    if (rows > kFewRows || c_ == a_ || c_ == b_ || c_ == bias_) return {};
    std::vector<std::array<std::int64_t, 4>> cores(places[static_cast<std::size_t>(c_)].size());
    const auto in_elements = [&](std::size_t i, std::int64_t operand, DataFormat format) {
      for (std::size_t core = 0; core < cores.size(); ++core)
        cores[core][i] =
            operand < 0 ? 0
                        : places[static_cast<std::size_t>(operand)][core] / element_bytes(format);
    };
    in_elements(0, a_, matmul_.a.format);
    in_elements(1, b_, matmul_.b.format);
    in_elements(2, c_, matmul_.c.format);
    in_elements(3, bias_, matmul_.bias.format);
    const auto loops = loops_of_cores(std::move(cores));
    if (!loops || std::none_of(loops->begin(), loops->end(),
                               [](const Matmul::Batch& loop) { return loop.b == 0; }))
      return {};
    Matmul matmul = matmul_;
    matmul.batch.insert(matmul.batch.end(), loops->begin(), loops->end());
    auto plan = std::make_shared<const MatmulPlan>(matmul);
    if (plan->work() < kWorthWaiting) return {};
    return [this, plan, places](std::span<const Extent> operands) {
      if (!overwrites_operand(operands, places)) return plan->run(places_in(operands));
      // Core by core, from copies.
      std::vector<Extent> own(operands.begin(), operands.end());
      for (std::size_t core = 0; core < places[static_cast<std::size_t>(c_)].size(); ++core) {
        for (std::size_t i = 0; i < own.size(); ++i)
          own[i].data = operands[i].data + places[i][core];
        run(own);
      }
    };
  }

 private:
  MatmulPlan::Operands places_in(std::span<const Extent> operands) const {
    return {data_of(a_, operands), data_of(b_, operands), data_of(c_, operands),
            data_of(bias_, operands)};
  }

  /// Whether the C of one of the cores lies over what that core reads.
  bool overwrites_operand(std::span<const Extent> operands, const CorePlaces& places) const {
    const auto c = static_cast<std::size_t>(c_);
    const auto overwrites = [&](std::int64_t operand, const ByteRange& range) {
      if (operand < 0) return false;
      const auto read = static_cast<std::size_t>(operand);
      for (std::size_t core = 0; core < places[c].size(); ++core)
        if (overlap(operands[read].data + places[read][core], range,
                    operands[c].data + places[c][core], c_range_))
          return true;
      return false;
    };
    return overwrites(a_, a_range_) || overwrites(b_, b_range_) || overwrites(bias_, bias_range_);
  }

  /// The cost with batches, rows and sticks of columns over so many cores; there is a result.
  OpCost split(std::int64_t b, std::int64_t m, std::int64_t n) const {
    const auto part = [](std::int64_t size, std::int64_t splits) {
      return (size + splits - 1) / splits;
    };
    const auto bytes = [](const ByteRange& range) {
      return static_cast<std::int64_t>(range.touched);
    };
    std::int64_t batches = 1;
    for (const Matmul::Batch& dim : matmul_.batch) batches *= dim.size;
    const std::int64_t lanes = format_info(matmul_.c.format).elems_per_stick;
    const std::int64_t sticks = part(matmul_.n, lanes);
    OpCost cost;
    cost.unit = Unit::pt;
    cost.rows = part(matmul_.m, m);
    cost.cores = std::min(b, batches) * std::min(m, matmul_.m) * std::min(n, sticks);
    cost.points =
        part(batches, b) * cost.rows * std::min(part(sticks, n) * lanes, matmul_.n) * matmul_.k;
    cost.all_points = batches * matmul_.m * matmul_.n * matmul_.k;
    cost.read_bytes = multicast_bytes(bytes(a_range_), std::min(n, sticks)) +
                      multicast_bytes(bytes(b_range_), std::min(m, matmul_.m)) + bytes(bias_range_);
    cost.written_bytes = bytes(c_range_);
    return cost;
  }

  static DataFormat format(PayloadReader& reader, const char* field) {
    const DataFormat format = reader.format(field);
    if (!multiplies(format))
      reader.refuse(field, std::string(format_info(format).name) + " is not multiplied");
    return format;
  }

  static Matmul read(PayloadReader& reader) {
    Matmul matmul;
    const std::int64_t op = reader.word("op");
    if (op != static_cast<std::int64_t>(OpFunc::batchmatmul) &&
        op != static_cast<std::int64_t>(OpFunc::batchmatmulfp8))
      reader.refuse("op", std::to_string(op) + " is not a matrix product");
    matmul.op = static_cast<OpFunc>(op);
    matmul.a.operand = reader.operand("A operand");
    matmul.a.format = format(reader, "A format");
    matmul.b.operand = reader.operand("B operand");
    matmul.b.format = format(reader, "B format");
    matmul.c.operand = reader.operand("C operand");
    matmul.c.format = format(reader, "C format");
    matmul.c.narrow = reader.narrow("narrow");
    matmul.bias.operand = reader.within("bias operand", -1, kMaxProgramOperands - 1);
    // Without a bias nothing that is said of it counts.
    if (matmul.bias.operand >= 0) {
      matmul.bias.format = format(reader, "bias format");
    } else {
      reader.word("bias format");
    }
    matmul.alpha = reader.real("alpha");
    matmul.beta = reader.real("beta");
    matmul.m = reader.within("M", 0, kMaxElements);
    matmul.n = reader.within("N", 0, kMaxElements);
    matmul.k = reader.within("K", 0, kMaxElements);
    matmul.a.offset = reader.word("A offset");
    matmul.a.m_stride = reader.word("A m stride");
    matmul.a.k_stick_stride = reader.word("A k stick stride");
    matmul.a.k_lane_stride = reader.word("A k lane stride");
    matmul.b.sticks = static_cast<Matmul::Sticks>(reader.within("B sticks", 0, 1));
    matmul.b.offset = reader.word("B offset");
    matmul.b.stride = reader.word("B stride");
    matmul.b.stick_stride = reader.word("B stick stride");
    matmul.c.offset = reader.word("C offset");
    matmul.c.m_stride = reader.word("C m stride");
    matmul.c.n_stick_stride = reader.word("C n stick stride");
    matmul.bias.offset = reader.word("bias offset");
    matmul.bias.m_stride = reader.word("bias m stride");
    matmul.bias.n_stick_stride = reader.word("bias n stick stride");
    matmul.bias.n_lane_stride = reader.word("bias n lane stride");
    const std::int64_t batches = reader.count("batch dimensions");
    for (std::int64_t i = 0; i < batches; ++i) {
      Matmul::Batch& dim = matmul.batch.emplace_back();
      dim.size = reader.within("batch size", 0, kMaxElements);
      dim.a = reader.word_of("A", "batch stride");
      dim.b = reader.word_of("B", "batch stride");
      dim.c = reader.word_of("C", "batch stride");
      dim.bias = reader.word_of("bias", "batch stride");
    }
    reader.finish();
    return matmul;
  }

  static void check_numbers(const PayloadReader& reader, const Matmul& matmul) {
    const auto fp8 = [](DataFormat format) {
      return format == DataFormat::SEN143_FP8 || format == DataFormat::SEN152_FP8;
    };
    if (matmul.op == OpFunc::batchmatmulfp8 && !fp8(matmul.a.format))
      reader.refuse("A format", "batchmatmulfp8 takes 8-bit floats");
    if (matmul.op == OpFunc::batchmatmulfp8 && !fp8(matmul.b.format))
      reader.refuse("B format", "batchmatmulfp8 takes 8-bit floats");
    if (!integer_product(matmul)) return;
    const auto whole = [](double value) {
      return std::trunc(value) == value && std::abs(value) < 0x1p53;
    };
    if (!whole(matmul.alpha)) reader.refuse("alpha", "is not an integer, but the operands are");
    if (!whole(matmul.beta)) reader.refuse("beta", "is not an integer, but the operands are");
  }

  static void check_sizes(const PayloadReader& reader, const Matmul& matmul) {
    const auto check = [&](const char* field, std::int64_t x, std::int64_t y) {
      bool empty = x == 0 || y == 0;
      for (const Matmul::Batch& dim : matmul.batch) empty |= dim.size == 0;
      if (empty) return;
      std::int64_t elements = 1;
      const auto times = [&](std::int64_t size) {
        if (__builtin_mul_overflow(elements, size, &elements) || elements > kMaxElements)
          reader.refuse(field, "more elements than a card has bytes");
      };
      times(x), times(y);
      for (const Matmul::Batch& dim : matmul.batch) times(dim.size);
    };
    check("M x K", matmul.m, matmul.k);
    check("K x N", matmul.k, matmul.n);
    check("M x N", matmul.m, matmul.n);
  }

  /// Works out ranges; refuses what lies outside of any operand, and a C of which
  /// two elements share a place.
  void check_places(const PayloadReader& reader, const Matmul& matmul) {
    const auto along = [](std::int64_t size, DataFormat format, std::int64_t stick,
                          std::int64_t lane) {
      return Along{size, format_info(format).elems_per_stick, stick, lane};
    };
    const auto rows = [&](std::int64_t offset, std::int64_t size, std::int64_t stride,
                          std::int64_t Matmul::Batch::* batch) {
      LoopNest nest(1);
      nest.offset(0) = offset;
      nest.add(size, {stride});
      for (const Matmul::Batch& dim : matmul.batch) nest.add(dim.size, {dim.*batch});
      return nest;
    };
    const Matmul::Left& a = matmul.a;
    const Matmul::Right& b = matmul.b;
    const Matmul::Result& c = matmul.c;
    const Matmul::Bias& bias = matmul.bias;
    const LoopNest c_rows = rows(c.offset, matmul.m, c.m_stride, &Matmul::Batch::c);
    if (c_rows.empty() || matmul.n == 0) return;  // there is no C: nothing is touched
    if (matmul.k > 0) {
      const bool along_n = b.sticks == Matmul::Sticks::along_n;
      const auto [b_rows, b_length] =
          along_n ? std::pair(matmul.k, matmul.n) : std::pair(matmul.n, matmul.k);
      a_range_ =
          byte_range(places_of(reader, "A", rows(a.offset, matmul.m, a.m_stride, &Matmul::Batch::a),
                               along(matmul.k, a.format, a.k_stick_stride, a.k_lane_stride)),
                     0, a.format);
      b_range_ =
          byte_range(places_of(reader, "B", rows(b.offset, b_rows, b.stride, &Matmul::Batch::b),
                               along(b_length, b.format, b.stick_stride, 1)),
                     0, b.format);
    }
    const std::vector<LoopNest> places =
        places_of(reader, "C", c_rows, along(matmul.n, c.format, c.n_stick_stride, 1));
    if (!distinct(places, std::array{std::int64_t{1}}))
      reader.refuse("C", "its strides bring two elements to one place");
    c_range_ = byte_range(places, 0, c.format);
    if (bias.operand >= 0)
      bias_range_ = byte_range(
          places_of(reader, "bias",
                    rows(bias.offset, matmul.m, bias.m_stride, &Matmul::Batch::bias),
                    along(matmul.n, bias.format, bias.n_stick_stride, bias.n_lane_stride)),
          0, bias.format);
  }

  Matmul matmul_;
  std::int64_t a_, b_, c_, bias_;
  bool bias_in_place_;
  ByteRange a_range_, b_range_, c_range_, bias_range_;
  std::unique_ptr<const MatmulPlan> plan_;
};

}  // namespace

std::unique_ptr<const Step> decode_matmul(PayloadReader& reader) {
  return std::make_unique<const MatmulStep>(reader);
}

}  // namespace spyre::card
