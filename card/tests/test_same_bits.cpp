// The same bits everywhere: at every vector width, from every compiler, on every kind of machine.
// What a width gives is compared with the baseline; what the baseline gives with digests that were
// written down once. Other digests mean that results changed: on purpose, or on this machine only.
#include <cinttypes>
#include <span>

#include "formats/accumulation.h"
#include "kernels/matmul.h"
#include "kernels/pointwise.h"
#include "line_support.h"

using namespace spyre::card;
using namespace spyre::card::test;
using spyre::DataFormat;
using spyre::OpFunc;

namespace {

using F = DataFormat;
using Bytes = std::vector<std::byte>;

std::vector<SimdLevel> levels() {
  std::vector<SimdLevel> available;
  for (const SimdLevel level : {SimdLevel::baseline, SimdLevel::avx2, SimdLevel::avx512})
    if (simd_available(level)) available.push_back(level);
  return available;
}

class Digest {
 public:
  template <typename T>
  void add(const std::vector<T>& values) {
    value_ = value_ * 31 + program_checksum(std::as_bytes(std::span(values)));
  }
  std::uint64_t value() const { return value_; }
  void check(const char* of, std::uint64_t golden) const {
    if (value_ == golden) return;
    char text[100];
    std::snprintf(text, sizeof text, "%s: the digest is 0x%016" PRIx64, of, value_);
    check::fail(__FILE__, __LINE__, text);
  }

 private:
  std::uint64_t value_ = 0;
};

/// Distributions of the standard library differ; the generator does not. In (-4, 4).
double number(std::mt19937& random) { return static_cast<double>(random()) * 0x1p-29 - 4; }

Elements numbers(DataFormat format, std::int64_t count, std::mt19937& random) {
  Elements elements(format, count);
  for (std::int64_t i = 0; i < count; ++i) elements.set(i, number(random));
  return elements;
}

std::int64_t sticks(std::int64_t elements, F format) {
  return (elements + stick_of(format) - 1) / stick_of(format) * stick_of(format);
}

}  // namespace

TEST(products) {
  constexpr F formats[] = {F::SEN169_FP16, F::IEEE_FP32, F::SEN143_FP8, F::SEN152_FP8, F::SENINT8,
                           F::IEEE_INT32,  F::SENINT16,  F::SENUINT32,  F::IEEE_FP16,  F::BFLOAT16};
  std::mt19937 random(1);
  Digest digest;
  for (const F a : formats)
    for (const F b : formats)
      for (const std::int64_t m : {1, 2, 37})
        for (const bool along_k : {false, true}) {
          Matmul product;
          product.m = m, product.n = 70, product.k = 300;
          product.a.format = a, product.b.format = b, product.c.format = F::IEEE_FP32;
          product.alpha = 0.75;
          if (integer_product(product)) product.alpha = 1, product.c.format = F::IEEE_INT32;
          product.a.m_stride = stick_of(a), product.a.k_stick_stride = stick_of(a) * m;
          product.b.sticks = along_k ? Matmul::Sticks::along_k : Matmul::Sticks::along_n;
          product.b.stride = stick_of(b);
          product.b.stick_stride = stick_of(b) * (along_k ? product.n : product.k);
          product.c.m_stride = 32, product.c.n_stick_stride = 32 * m;
          const Elements left = numbers(a, m * sticks(product.k, a), random);
          const Elements right = numbers(
              b, along_k ? product.n * sticks(product.k, b) : product.k * sticks(70, b), random);
          for (const Accumulation sums : {Accumulation::fp32, Accumulation::chunked}) {
            Bytes first;
            for (const SimdLevel level : levels()) {
              Elements result(product.c.format, m * 96);
              MatmulPlan(product, {level, Dl16Specials::ieee, sums})
                  .run({left.bytes.data(), right.bytes.data(), result.bytes.data(), nullptr});
              if (first.empty()) first = result.bytes;
              CHECK(result.bytes == first);
            }
            digest.add(first);
          }
        }
  digest.check("products", 0x5473141973b83cb6);
}

TEST(pointwise_ops) {
  const PointwiseKernels* tables[] = {
      &baseline::pointwise_kernels,
#if defined(__x86_64__)
      simd_available(SimdLevel::avx2) ? &avx2::pointwise_kernels : nullptr,
      simd_available(SimdLevel::avx512) ? &avx512::pointwise_kernels : nullptr,
#endif
  };
  constexpr std::size_t n = 2000;
  std::mt19937 random(2);
  std::vector<std::vector<float>> columns(kMaxInputs);
  std::vector<std::vector<std::int64_t>> whole(kMaxInputs);
  for (int k = 0; k < kMaxInputs; ++k)
    for (std::size_t i = 0; i < n; ++i) {
      columns[static_cast<std::size_t>(k)].push_back(
          i % 4 ? static_cast<float>(number(random) * (i % 3 ? 1 : 20))
                : std::bit_cast<float>(static_cast<std::uint32_t>(random())));
      whole[static_cast<std::size_t>(k)].push_back(static_cast<std::int32_t>(random()) >>
                                                   (random() % 32));
    }
  const std::vector<double> constants = {0.25, 0.75, 1.5, 2, 3, 4, 5, 6};
  static_assert(kMaxConstants <= 8);
  Digest digest;
  for (std::size_t entry = 0; tables[0]->ops[entry].op != OpFunc{}; ++entry) {
    const spyre::OpInfo& info = spyre::op_info(tables[0]->ops[entry].op);
    std::vector<float> first;
    std::vector<std::int64_t> first_whole;
    for (const PointwiseKernels* table : tables) {
      if (!table) continue;
      const void* in[kMaxInputs];
      if (info.fp32) {
        for (std::size_t k = 0; k < kMaxInputs; ++k) in[k] = columns[k].data();
        std::vector<float> result(n), clean(n);
        table->ops[entry].fp32(in, result.data(), constants.data(), n);
        table->clean_fp32(result.data(), clean.data(), n);
        if (first.empty()) first = clean;
        if (std::memcmp(first.data(), clean.data(), n * 4) != 0)
          check::fail(__FILE__, __LINE__, std::string(info.name) + " in fp32");
      }
      if (info.int64 && info.op != OpFunc::pow) {
        for (std::size_t k = 0; k < kMaxInputs; ++k) in[k] = whole[k].data();
        std::vector<std::int64_t> result(n);
        table->ops[entry].int64(in, result.data(), constants.data(), n);
        if (first_whole.empty()) first_whole = result;
        if (first_whole != result)
          check::fail(__FILE__, __LINE__, std::string(info.name) + " in int64");
      }
    }
    digest.add(first);
    digest.add(first_whole);
  }
  digest.check("pointwise ops", 0x995f021b48401d3d);
}

TEST(conversions) {
  std::mt19937 random(3);
  Digest digest;
  for (const spyre::FormatInfo& src : spyre::kFormats)
    for (const spyre::FormatInfo& dst : spyre::kFormats) {
      if (src.bits < 8 || dst.bits < 8) continue;
      constexpr std::size_t n = 500;
      Bytes from(n * static_cast<std::size_t>(src.bits) / 8);
      for (std::byte& each : from) each = static_cast<std::byte>(random());
      for (const Dl16Specials specials : {Dl16Specials::ieee, Dl16Specials::merged})
        for (const Narrow narrow : {Narrow::none, Narrow::boolean, Narrow::uint8}) {
          Bytes first;
          for (const SimdLevel level : levels()) {
            Bytes to(n * static_cast<std::size_t>(dst.bits) / 8);
            converter_at(level, specials, src.format, dst.format, narrow)(from.data(), to.data(),
                                                                          n);
            if (first.empty()) first = to;
            if (to != first)
              check::fail(__FILE__, __LINE__, std::string(src.name) + " to " + dst.name);
          }
          digest.add(first);
        }
    }
  digest.check("conversions", 0x57c61b7b4c045bf8);
}

/// Reductions, row operations, scans: at the width that the environment says.
TEST(digest_of_lines) {
  std::mt19937 random(4);
  Digest digest;
  const auto add = [&](const auto& description, std::initializer_list<Elements*> operands) {
    run(program_of(description), operands);
    for (const Elements* operand : operands) digest.add(operand->bytes);
  };
  for (const F format : {kDl16, kSingle})
    for (const unsigned along : {0b01u, 0b10u}) {
      const Lines lines({{130, 150}, stick_of(format)}, along);
      const Elements in = numbers(format, lines.end(), random);
      for (const OpFunc op : {OpFunc::sum, OpFunc::mean, OpFunc::prod, OpFunc::max, OpFunc::min,
                              OpFunc::var, OpFunc::exx2}) {
        Elements x = in, out(kSingle), second(kSingle);
        Reduce reduce = reduction(op, lines, format, kSingle);
        if (op == OpFunc::var) reduce.second = {2, kSingle};
        add(reduce, {&x, &out, &second});
      }
      for (const OpFunc op : {OpFunc::cumsum, OpFunc::cumprod, OpFunc::logcumsumexp}) {
        Scan scan;
        scan.op = op;
        scan.input = {0, format, lines.loops};
        scan.output = {1, format, lines.loops};
        scan.lines = lines.lines, scan.line_length = lines.length;
        Elements x = in, out(format);
        add(scan, {&x, &out});
      }
      for (const OpFunc op : {OpFunc::softmax, OpFunc::logsoftmax, OpFunc::rmsnorm,
                              OpFunc::layernorm, OpFunc::softmaxbwd, OpFunc::logsoftmaxbwd}) {
        const LineTensor x{0, format, lines.loops}, none{-1, format, {}};
        Rows rows;
        rows.op = op;
        rows.rows = lines.lines, rows.row_length = lines.length;
        rows.inputs = {x};
        rows.outputs = {{1, format, lines.loops}};
        if (op == OpFunc::rmsnorm) rows.inputs = {x, none}, rows.outputs.push_back(none);
        if (op == OpFunc::layernorm)
          rows.inputs = {x, none, none}, rows.outputs.insert(rows.outputs.end(), 2, none);
        if (op == OpFunc::rmsnorm || op == OpFunc::layernorm) rows.constants = {1e-5};
        if (op == OpFunc::softmaxbwd || op == OpFunc::logsoftmaxbwd) rows.inputs = {x, x};
        Elements given = in, out(format);
        add(rows, {&given, &out});
      }
    }
  digest.check("lines", 0x1e5112f30bd696c0);
  if (std::getenv("SPYRE_TEST_DIGEST")) std::printf("digest %" PRIx64 "\n", digest.value());
}

TEST(lines_at_every_width) { check_same_digests("digest_of_lines"); }
