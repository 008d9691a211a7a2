// Chains of ops give the bits of the same ops run one by one through memory.
#include <algorithm>

#include "chain_support.h"
#include "kernels/pointwise.h"
#include "nests/lines.h"

using namespace spyre::card;
using namespace spyre::card::test;
using spyre::DataFormat;
using spyre::OpFunc;

namespace {

struct Size {
  std::int64_t lines, length;
};
constexpr Size kSizes[] = {{1, 1},    {5, 64},   {70, 130}, {3, 1300},  {600, 5},  {130, 20},
                           {9, 5000}, {200, 64}, {64, 700}, {33, 1024}, {20, 2048}};
constexpr Form kForms[] = {Form::rows, Form::sticks, Form::columns, Form::sticks_across};

/// Operand 0 to operand 1.
Chain softmax(const Size& size, Form form, DataFormat outside = kDl16,
              DataFormat inside = kSingle) {
  Chain chain;
  chain.lines = size.lines;
  chain.length = size.length;
  chain.tensors = {chain_tensor(0, outside, chain, form), chain_tensor(1, outside, chain, form)};
  chain.values = {load(0),
                  reduced(OpFunc::max, 0, inside),
                  op(OpFunc::sub, {{0}, {1}}, inside),
                  op(OpFunc::exp, {{2}}, inside),
                  reduced(OpFunc::sum, 3, inside),
                  op(OpFunc::realdiv, {{3}, {4}}, inside)};
  chain.stores = {{5, 1}};
  return chain;
}

/// x rsqrt(mean(x x) + eps) w, and the scale.
Chain rms_norm(const Size& size, Form form, DataFormat inside = kSingle) {
  Chain chain;
  chain.lines = size.lines;
  chain.length = size.length;
  chain.tensors = {chain_tensor(0, kDl16, chain, form),
                   chain_tensor(1, kDl16, chain, Form::rows, false),
                   chain_tensor(2, kDl16, chain, form),
                   chain_tensor(3, kSingle, chain, Form::rows, true, false)};
  chain.values = {load(0),
                  op(OpFunc::mul, {{0}, {0}}, inside),
                  reduced(OpFunc::mean, 1, inside, {1.0 / static_cast<double>(size.length)}),
                  op(OpFunc::add, {{2}, {-1, 1e-5}}, inside),
                  op(OpFunc::rsqrt, {{3}}, inside),
                  op(OpFunc::mul, {{0}, {4}}, inside),
                  load(1),
                  op(OpFunc::mul, {{5}, {6}}, inside)};
  chain.stores = {{7, 2}, {4, 3}};
  return chain;
}

/// (x - mean) rsqrt(mean((x - mean)^2) + eps) w + b.
Chain layer_norm(const Size& size, Form form, DataFormat inside = kSingle) {
  const auto length = static_cast<double>(size.length);
  Chain chain;
  chain.lines = size.lines;
  chain.length = size.length;
  chain.tensors = {
      chain_tensor(0, kDl16, chain, form), chain_tensor(1, kDl16, chain, Form::rows, false),
      chain_tensor(2, kDl16, chain, Form::rows, false), chain_tensor(3, kDl16, chain, form)};
  chain.values = {load(0),
                  reduced(OpFunc::sum, 0, inside),
                  op(OpFunc::realdiv, {{1}, {-1, length}}, inside),
                  op(OpFunc::sub, {{0}, {2}}, inside),
                  op(OpFunc::mul, {{3}, {3}}, inside),
                  reduced(OpFunc::sum, 4, inside),
                  op(OpFunc::realdiv, {{5}, {-1, length}}, inside),
                  op(OpFunc::add, {{6}, {-1, 1e-5}}, inside),
                  op(OpFunc::rsqrt, {{7}}, inside),
                  op(OpFunc::sub, {{0}, {2}}, inside),
                  op(OpFunc::mul, {{9}, {8}}, inside),
                  load(1),
                  op(OpFunc::mul, {{10}, {11}}, inside),
                  load(2),
                  op(OpFunc::add, {{12}, {13}}, inside)};
  chain.stores = {{14, 3}};
  return chain;
}

/// Any ops, any broadcasting.
Chain random_chain(std::mt19937& random) {
  const auto pick = [&](const auto& list) { return list[random() % std::size(list)]; };
  Chain chain;
  const Size size = pick(kSizes);
  chain.lines = size.lines;
  chain.length = size.length;
  const Form form = pick(kForms);
  const bool with_reductions = random() % 3 > 0;
  const DataFormat loaded[] = {kDl16, kDl16, kSingle, kInt32, kBool, DataFormat::IEEE_FP16};
  std::vector<std::pair<bool, bool>> dims;
  const auto add = [&](Chain::Value value, bool lines, bool positions) {
    chain.values.push_back(std::move(value));
    dims.emplace_back(lines, positions);
  };
  const auto add_load = [&](bool lines, bool positions) {
    const auto tensor = static_cast<std::int64_t>(chain.tensors.size());
    chain.tensors.push_back(chain_tensor(tensor, pick(loaded), chain,
                                         random() % 4 ? form : pick(kForms), lines, positions));
    add(load(tensor), lines, positions);
  };
  add_load(true, true);
  const OpFunc unary[] = {OpFunc::exp,     OpFunc::relufwd, OpFunc::abs,  OpFunc::neg,
                          OpFunc::signbit, OpFunc::tanh,    OpFunc::silu, OpFunc::rsqrt};
  const OpFunc binary[] = {OpFunc::add,     OpFunc::sub,      OpFunc::mul,        OpFunc::realdiv,
                           OpFunc::maximum, OpFunc::copysign, OpFunc::greaterthan};
  const OpFunc reductions[] = {
      OpFunc::sum,       OpFunc::mean,    OpFunc::max,          OpFunc::min,    OpFunc::any,
      OpFunc::all,       OpFunc::prod,    OpFunc::sumsq,        OpFunc::argmax, OpFunc::var,
      OpFunc::logsumexp, OpFunc::amaxabs, OpFunc::countnonzero, OpFunc::exx2};
  const std::size_t count = 3 + random() % 12;
  while (chain.values.size() < count) {
    const DataFormat format = random() % 2 ? kDl16 : kSingle;
    const auto any_input = [&]() -> Chain::Input {
      if (random() % 6 == 0) return {-1, std::uniform_real_distribution<>(-2, 2)(random)};
      return {static_cast<std::int64_t>(random() % chain.values.size())};
    };
    const auto dims_of = [&](const Chain::Input& input) {
      return input.value < 0 ? std::pair{false, false}
                             : dims[static_cast<std::size_t>(input.value)];
    };
    Chain::Value value;
    bool lines = false, positions = false;
    switch (random() % (with_reductions ? 6 : 5)) {
      case 0:
        add_load(random() % 2, random() % 2);
        continue;
      case 1:
      case 2: {
        const Chain::Input input = any_input();
        value = op(pick(unary), {input}, format);
        std::tie(lines, positions) = dims_of(input);
        break;
      }
      case 3:
      case 4: {
        const Chain::Input a = any_input(), b = any_input();
        value = op(pick(binary), {a, b}, format);
        lines = dims_of(a).first || dims_of(b).first;
        positions = dims_of(a).second || dims_of(b).second;
        break;
      }
      default: {
        const Chain::Input input{static_cast<std::int64_t>(random() % chain.values.size())};
        if (!dims_of(input).second) continue;
        value = reduced(pick(reductions), input.value, format);
        if (value.op == OpFunc::mean) value.constants = {1.0 / static_cast<double>(chain.length)};
        if (value.op == OpFunc::var) value.constants = {1.0};
        if (value.op == OpFunc::exx2) value.constants = {0.5, 0.0};
        lines = dims_of(input).first;
      }
    }
    if (random() % 8 == 0) value.narrow = Narrow::boolean;
    add(value, lines, positions);
  }
  for (std::size_t i = 0; i < chain.values.size(); ++i) {
    if (i + 1 < chain.values.size() && random() % 5) continue;
    const auto tensor = static_cast<std::int64_t>(chain.tensors.size());
    chain.tensors.push_back(chain_tensor(tensor, random() % 2 ? kDl16 : kSingle, chain,
                                         random() % 4 ? form : pick(kForms), dims[i].first,
                                         dims[i].second));
    if (random() % 8 == 0) chain.tensors.back().narrow = Narrow::boolean;
    chain.stores.push_back({static_cast<std::int64_t>(i), tensor});
  }
  return chain;
}

}  // namespace

TEST(softmax_in_every_layout) {
  std::mt19937 random(1);
  for (const Size& size : kSizes)
    for (const Form form : kForms)
      for (const DataFormat inside : {kDl16, kSingle}) {
        const Chain chain = softmax(size, form, kDl16, inside);
        check_chain(chain, filled_operands(chain, random), "softmax");
      }
}

TEST(a_norm_with_a_row_of_weights_that_all_lines_share) {
  std::mt19937 random(2);
  for (const Size& size : kSizes)
    for (const Form form : kForms)
      for (const DataFormat inside : {kDl16, kSingle}) {
        const Chain chain = rms_norm(size, form, inside);
        check_chain(chain, filled_operands(chain, random), "norm");
      }
}

TEST(a_norm_whose_stages_are_computed_together) {
  std::mt19937 random(3);
  for (const Size& size : kSizes)
    for (const Form form : kForms)
      for (const bool specials : {false, true}) {
        const Chain chain = layer_norm(size, form);
        check_chain(chain, filled_operands(chain, random, specials), "layer norm");
      }
}

TEST(random_chains) {
  for (std::uint32_t seed = 0; seed < 400; ++seed) {
    std::mt19937 random(seed);
    const Chain chain = random_chain(random);
    check_chain(chain, filled_operands(chain, random), "seed " + std::to_string(seed));
  }
}

TEST(ops_in_one_sweep_give_the_bits_of_separate_steps) {
  // Groups of every op that a sweep has, with every kind of input, folded, stored, or both.
  constexpr Size sizes[] = {{5, 64},    {70, 130},  {3, 1300}, {9, 5000},
                            {33, 1024}, {20, 2048}, {20, 65}};
  const OpFunc ops[] = {OpFunc::add,     OpFunc::sub, OpFunc::mul,
                        OpFunc::realdiv, OpFunc::exp, OpFunc::where3};
  for (std::uint32_t seed = 0; seed < 120; ++seed) {
    std::mt19937 random(seed);
    Chain chain;
    const Size size = sizes[seed % std::size(sizes)];
    chain.lines = size.lines;
    chain.length = size.length;
    const Form form = random() % 2 ? Form::sticks : Form::rows;
    chain.tensors = {chain_tensor(0, kDl16, chain, form), chain_tensor(1, kSingle, chain, form),
                     chain_tensor(2, kDl16, chain, Form::rows, false),
                     chain_tensor(3, kSingle, chain, Form::rows, true, false)};
    chain.values = {load(0), load(1), load(2), load(3)};
    const auto other = [&]() -> Chain::Input {
      const auto which = static_cast<std::int64_t>(random() % 5);
      return which < 4 ? Chain::Input{which} : Chain::Input{-1, random() % 2 ? -0.0 : 0.37};
    };
    const auto last = [&] { return static_cast<std::int64_t>(chain.values.size()) - 1; };
    std::int64_t through = 0;
    for (std::size_t members = 1 + random() % 10; members > 0; --members) {
      const OpFunc func = ops[random() % std::size(ops)];
      const Chain::Input x{through};
      if (func == OpFunc::exp) {
        chain.values.push_back(op(func, {x}));
      } else if (func == OpFunc::where3) {
        const Chain::Input otherwise = random() % 2 ? Chain::Input{-1, -kInf} : Chain::Input{3};
        chain.values.push_back(op(func, {{random() % 2 ? 2 : 1}, x, otherwise}));
      } else if (random() % 4 == 0) {
        chain.values.push_back(op(func, {x, x}));
      } else {
        const Chain::Input y = other();
        chain.values.push_back(random() % 3 ? op(func, {x, y}) : op(func, {y, x}));
      }
      through = last();
    }
    const bool folded = random() % 4 > 0, stored = !folded || random() % 2;
    const auto store = [&](std::int64_t value, bool positions, DataFormat format) {
      const auto tensor = static_cast<std::int64_t>(chain.tensors.size());
      chain.tensors.push_back(chain_tensor(tensor, format, chain, form, true, positions));
      chain.stores.push_back({value, tensor});
    };
    if (stored) store(through, true, random() % 2 ? kDl16 : kSingle);
    if (folded) {
      chain.values.push_back(reduced(random() % 2 ? OpFunc::sum : OpFunc::max, through));
      store(last(), false, kSingle);
    }
    check_chain(chain, filled_operands(chain, random, seed % 3 == 0),
                "sweep, seed " + std::to_string(seed));
  }
}

TEST(lines_in_several_loops_and_in_parts_of_sticks) {
  // Heads between the sticks of a row, as in attention; and lines that are parts of one long run.
  std::mt19937 random(6);
  for (const std::int64_t sticks : {1, 4, 20}) {
    constexpr std::int64_t rows = 70, heads = 3;
    Chain chain;
    chain.lines = rows * heads;
    chain.length = 64 * sticks;
    const LineLoops between{{64, sticks, rows, heads},
                            {1, 64 * heads, chain.length * heads, 64},
                            {0, 0, 1, rows},
                            {1, 64, 0, 0}};
    for (std::int64_t i = 0; i < 4; ++i)
      chain.tensors.push_back(chain_tensor(i, i % 2 ? kDl16 : kSingle, chain, Form::rows));
    chain.tensors[1].loops = chain.tensors[2].loops = {between};
    chain.values = {load(0), load(1), op(OpFunc::mul, {{0}, {1}}), op(OpFunc::exp, {{0}}, kDl16)};
    chain.stores = {{2, 2}, {3, 3}};
    check_chain(chain, filled_operands(chain, random), "heads");
  }
  for (const std::int64_t length : {1, 63, 4096, 4097, 50000}) {
    Chain chain;
    chain.lines = 1;
    chain.length = length;
    for (std::int64_t i = 0; i < 3; ++i)
      chain.tensors.push_back(chain_tensor(i, i % 2 ? kSingle : kDl16, chain, Form::rows));
    chain.values = {load(0), load(1), op(OpFunc::silu, {{0}}, kDl16),
                    op(OpFunc::mul, {{2}, {1}}, kDl16)};
    chain.stores = {{3, 2}};
    check_chain(chain, filled_operands(chain, random), "one run");
  }
}

TEST(every_reduction_of_every_length) {
  std::mt19937 random(3);
  for (const OpFunc func :
       {OpFunc::sum, OpFunc::mean, OpFunc::max, OpFunc::min, OpFunc::any, OpFunc::all, OpFunc::prod,
        OpFunc::sumsq, OpFunc::argmax, OpFunc::argmin, OpFunc::var, OpFunc::logsumexp,
        OpFunc::amaxabs, OpFunc::countnonzero, OpFunc::exx2})
    for (const Size& size : kSizes)
      for (const Form form : {Form::sticks, Form::columns})
        for (const DataFormat format : {kDl16, kSingle}) {
          Chain chain;
          chain.lines = size.lines;
          chain.length = size.length;
          chain.tensors = {chain_tensor(0, kDl16, chain, form),
                           chain_tensor(1, kSingle, chain, Form::rows, true, false)};
          std::vector<double> constants;
          if (func == OpFunc::mean) constants = {0.25};
          if (func == OpFunc::var) constants = {1.0};
          if (func == OpFunc::exx2) constants = {0.5, 0.0};
          chain.values = {load(0), reduced(func, 0, format, constants)};
          chain.stores = {{1, 1}};
          check_chain(chain, filled_operands(chain, random), op_info(func).name);
        }
}

TEST(sums_of_dlfloat16_may_be_chunked) {
  std::mt19937 random(4);
  Chain chain = rms_norm({9, 300}, Form::sticks, kDl16);
  const std::vector<Elements> operands = filled_operands(chain, random, false);
  const std::vector<Elements> plain = check_chain(chain, operands, "fp32");
  const Environment mode("SPYRE_ACCUMULATION", "chunked");
  const std::vector<Elements> chunked = check_chain(chain, operands, "chunked");
  CHECK(plain[3].bytes != chunked[3].bytes);
  chain = rms_norm({9, 300}, Form::sticks, kSingle);
  check_chain(chain, operands, "sums of fp32 are not");
}

TEST(no_op_but_those_of_signs_sees_the_sign_of_a_nan) {
  // In memory a NaN has none, so that an op that saw it would give something else in a chain.
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float numbers[] = {-2, -0.0f, 0, 1.5f, static_cast<float>(kInf), nan};
  for (const spyre::OpInfo& info : spyre::kOps) {
    const PointwiseRun kernel =
        info.kind == spyre::OpKind::pointwise ? pointwise_kernel(info.op, false) : nullptr;
    if (!kernel || info.op == OpFunc::copysign || info.op == OpFunc::signbit) continue;
    for (int which = 0; which < info.inputs; ++which)
      for (const float other : numbers) {
        const double constants[kMaxConstants] = {0.5, 0.25, 2};
        float results[2];
        for (int sign = 0; sign < 2; ++sign) {
          const float value = std::copysign(nan, sign ? -1.0f : 1.0f);
          const void* in[kMaxInputs];
          for (int i = 0; i < info.inputs; ++i) in[i] = i == which ? &value : &other;
          kernel(in, &results[sign], constants, 1);
        }
        const bool same = results[0] == results[1]
                              ? std::signbit(results[0]) == std::signbit(results[1])
                              : results[0] != results[0] && results[1] != results[1];
        if (!same) std::cerr << info.name << " sees the sign of a NaN\n";
        CHECK(same);
      }
  }
}

TEST(values_are_rounded_as_by_memory_at_every_vector_width) {
  std::vector<float> values;
  for (std::uint32_t high = 0; high < 1 << 18; ++high)
    for (const std::uint32_t low : {0x0000u, 0x1FFFu, 0x2000u, 0x2001u, 0x3FFFu})
      values.push_back(std::bit_cast<float>(high << 14 | low));
  std::vector<std::pair<const PointwiseKernels*, SimdLevel>> levels{
      {&baseline::pointwise_kernels, SimdLevel::baseline}};
#if defined(__x86_64__)
  levels.push_back({&avx2::pointwise_kernels, SimdLevel::avx2});
  levels.push_back({&avx512::pointwise_kernels, SimdLevel::avx512});
#endif
  for (const auto& [kernels, level] : levels) {
    if (!simd_available(level)) continue;
    for (const Dl16Specials specials : {Dl16Specials::ieee, Dl16Specials::merged}) {
      std::vector<float> rounded = values;
      (specials == Dl16Specials::ieee ? kernels->dl16_ieee : kernels->dl16_merged)(rounded.data(),
                                                                                   rounded.size());
      for (std::size_t i = 0; i < values.size(); ++i) {
        const float wanted = dl16_to_float(dl16_from_float(values[i], specials), specials);
        CHECK_EQ(std::bit_cast<std::uint32_t>(rounded[i]), std::bit_cast<std::uint32_t>(wanted));
      }
    }
  }
}

TEST(sweeps_load_and_store_sticks_as_conversions_do_at_every_vector_width) {
  // Codes and numbers in order: most lines have no special one, some nothing else.
  constexpr std::int64_t kLength = 1024, kLines = 64;
  std::vector<std::uint16_t> codes(kLines * kLength);
  for (std::size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<std::uint16_t>(i);
  std::vector<float> numbers;
  for (std::uint32_t high = 0; high < 1 << 17; ++high)
    for (const std::uint32_t low : {0x0000u, 0x1FFFu, 0x2000u, 0x3FFFu})
      for (const std::uint32_t sign : {0u, 0x80000000u})
        numbers.push_back(std::bit_cast<float>(sign | high << 14 | low));
  const auto lines = static_cast<std::int64_t>(numbers.size()) / kLength;
  for (const SimdLevel level : {SimdLevel::baseline, SimdLevel::avx2, SimdLevel::avx512})
    for (const Dl16Specials specials : {Dl16Specials::ieee, Dl16Specials::merged}) {
      if (!simd_available(level)) continue;
      const bool merged = specials == Dl16Specials::merged;
      std::vector<float> x(codes.size()), partials(2 * kLines);
      line_kernels_at(level).sweeps.largest(
          {kLines,
           kLength,
           {reinterpret_cast<const char*>(codes.data()), 2 * kLength, 128},
           x.data(),
           nullptr,
           0,
           nullptr,
           {},
           partials.data(),
           kLines,
           merged});
      for (std::size_t i = 0; i < codes.size(); ++i)
        CHECK_EQ(std::bit_cast<std::uint32_t>(x[i]),
                 std::bit_cast<std::uint32_t>(dl16_to_float(codes[i], specials)));
      // Times 1 and, with DLFloat16 in between, times 1 again.
      const float one = 1;
      const SweepStage stages[] = {{SweepOp::mul, nullptr, 0, &one, 0},
                                   {SweepOp::round, nullptr, 0, nullptr, 0}};
      for (const int count : {1, 2}) {
        std::vector<std::uint16_t> stored(numbers.size());
        line_kernels_at(level).sweeps.plain(
            {lines,
             kLength,
             {},
             numbers.data(),
             stages,
             count,
             nullptr,
             {reinterpret_cast<char*>(stored.data()), 2 * kLength, 128},
             nullptr,
             0,
             merged});
        for (std::size_t i = 0; i < numbers.size(); ++i)
          CHECK_EQ(stored[i], dl16_from_float(numbers[i], specials));
      }
    }
}

TEST(digest_of_chains) {
  std::uint64_t digest = 0;
  const auto run_on = [&](const Chain& chain, std::mt19937& random) {
    std::vector<Elements> operands = filled_operands(chain, random);
    run(program_of(chain), pointers(operands));
    for (const Elements& each : operands) digest = digest_of(digest, each);
  };
  for (std::uint32_t seed = 1000; seed < 1040; ++seed) {
    std::mt19937 random(seed);
    run_on(random_chain(random), random);
  }
  std::mt19937 random(5);
  for (const Form form : kForms) run_on(softmax({500, 700}, form), random);
  if (std::getenv("SPYRE_TEST_DIGEST")) std::printf("digest %llu\n", (unsigned long long)digest);
}

TEST(threads_and_vector_width_change_no_bit) { check_same_digests("digest_of_chains"); }
