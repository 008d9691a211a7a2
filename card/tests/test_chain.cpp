// Chains of ops give the bits of the same ops run one by one through memory.
#include <algorithm>

#include "chain_support.h"

using namespace spyre::card;
using namespace spyre::card::test;
using spyre::DataFormat;
using spyre::OpFunc;

namespace {

struct Size {
  std::int64_t lines, length;
};
constexpr Size kSizes[] = {{1, 1},    {5, 64},   {70, 130}, {3, 1300}, {600, 5},
                           {130, 20}, {9, 5000}, {200, 64}, {64, 700}, {33, 1024}};
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

TEST(random_chains) {
  for (std::uint32_t seed = 0; seed < 400; ++seed) {
    std::mt19937 random(seed);
    const Chain chain = random_chain(random);
    check_chain(chain, filled_operands(chain, random), "seed " + std::to_string(seed));
  }
}
