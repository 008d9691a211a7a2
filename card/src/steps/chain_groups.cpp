#include "steps/chain_groups.h"

#include <optional>

namespace spyre::card {
namespace {

using Member = ChainGroup::Member;

constexpr ChainDims kFull{true, true};

/// How many ops and stores use each value. An op may take it twice.
std::vector<int> count_users(const ChainValues& chain) {
  std::vector<int> users(chain.values.size());
  std::vector<std::size_t> last_user(chain.values.size(), ChainGroup::kNone);
  for (const ChainStore& store : chain.stores) ++users[store.value];
  for (std::size_t i = 0; i < chain.values.size(); ++i) {
    if (!chain.values[i].needed) continue;
    for (const ChainValue::Input& input : chain.values[i].inputs) {
      if (input.value < 0) continue;
      const auto from = static_cast<std::size_t>(input.value);
      users[from] += last_user[from] != i;
      last_user[from] = i;
    }
  }
  return users;
}

bool stays_fp32(const ChainValue& value) {
  return value.format == DataFormat::IEEE_FP32 && value.narrow == Narrow::none;
}

/// Whether a sweep can go on from the value, which nothing else needs.
bool passes(const ChainValue& value) { return value.narrow == Narrow::none && !value.clean_nan; }

class Grouping {
 public:
  explicit Grouping(const ChainValues& values)
      : values_(values.values), users_(count_users(values)) {}

  void group(std::vector<ChainGroup>& ending, std::vector<bool>& swallowed) const {
    for (std::size_t i = 0; i < values_.size(); ++i) extend(i, ending, swallowed);
    for (std::size_t i = 0; i < values_.size(); ++i) {
      ChainGroup& group = ending[i];
      if (group.members.empty()) continue;
      add_reduction(i, group);
      if (group.reduce != ChainGroup::kNone) swallowed[group.reduce] = true;
    }
  }

 private:
  /// Lets value `i` be the next member of a group, or the first of a new one.
  void extend(std::size_t i, std::vector<ChainGroup>& ending, std::vector<bool>& swallowed) const {
    std::optional<Member> first;
    const auto inputs = static_cast<int>(values_[i].inputs.size());
    for (int through = 0; through < inputs; ++through) {
      const std::optional<Member> member = member_of(i, through);
      if (!member) continue;
      if (!first) first = member;
      const auto from = static_cast<std::size_t>(input(i, through).value);
      ChainGroup& group = ending[from];
      const ChainValue& before = values_[from];
      const int stages = stages_of(group) + (stays_fp32(before) ? 1 : 2);
      if (group.members.empty() || stages > kMaxSweepStages || users_[from] > 1 || !passes(before))
        continue;
      swallowed[from] = true;
      ending[i].members = std::move(group.members);
      ending[i].members.push_back(*member);
      group.members.clear();
      return;
    }
    if (first) ending[i].members = {*first};
  }

  /// Value `i` as an op on its input `through`, if a sweep has that.
  std::optional<Member> member_of(std::size_t i, int through) const {
    const ChainValue& value = values_[i];
    if (!value.needed || value.kind != Chain::Kind::pointwise || value.dims != kFull ||
        input(i, through).value < 0 || dims(i, through) != kFull)
      return {};
    const auto with_other = [&](SweepOp op) -> std::optional<Member> {
      const int other = 1 - through;
      Member member{i, op, through};
      (dims(i, other).positions ? member.elements : member.number) = other;
      return member;
    };
    switch (value.op) {
      case OpFunc::exp:
        return Member{i, SweepOp::exp, 0};
      case OpFunc::mul:
        if (input(i, 0).value == input(i, 1).value) return Member{i, SweepOp::square, 0};
        return with_other(SweepOp::mul);
      case OpFunc::add:
        if (input(i, 0).value == input(i, 1).value) return {};
        return with_other(SweepOp::add);
      case OpFunc::sub:
      case OpFunc::realdiv:
        if (through != 0 || input(i, 0).value == input(i, 1).value) return {};
        return with_other(value.op == OpFunc::sub ? SweepOp::sub : SweepOp::divide);
      case OpFunc::where3:
        if (through != 1 || !dims(i, 0).positions || dims(i, 2).positions ||
            input(i, 0).value == input(i, 1).value)
          return {};
        return Member{i, SweepOp::where, 1, 0, 2};
      default:
        return {};
    }
  }

  /// Members, and the rounding of all but the last.
  int stages_of(const ChainGroup& group) const {
    int stages = 0;
    for (const Member& member : group.members)
      stages += &member == &group.members.back() || stays_fp32(values_[member.value]) ? 1 : 2;
    return stages;
  }

  void add_reduction(std::size_t last, ChainGroup& group) const {
    if (!stays_fp32(values_[last])) return;
    for (std::size_t i = last + 1; i < values_.size(); ++i) {
      const ChainValue& value = values_[i];
      if (!value.needed || value.kind != Chain::Kind::reduce ||
          value.inputs[0].value != static_cast<std::int64_t>(last))
        continue;
      if (!folds_in_sweep(*value.fold)) continue;
      group.reduce = i;
      group.stored = users_[last] > 1;
      return;
    }
  }

  const ChainValue::Input& input(std::size_t i, int which) const {
    return values_[i].inputs[static_cast<std::size_t>(which)];
  }
  ChainDims dims(std::size_t i, int which) const {
    const std::int64_t from = input(i, which).value;
    return from < 0 ? ChainDims{} : values_[static_cast<std::size_t>(from)].dims;
  }

  const std::vector<ChainValue>& values_;
  const std::vector<int> users_;
};

}  // namespace

bool folds_in_sweep(const ReducePieces& fold) {
  const bool sweeps = fold.recipe.first == Fold::sum || fold.recipe.first == Fold::largest;
  return sweeps && !fold.recipe.second && !fold.chunked && fold.length > 0;
}

ChainGroups::ChainGroups(const ChainValues& values)
    : ending_(values.values.size()), swallowed_(values.values.size()) {
  Grouping(values).group(ending_, swallowed_);
}

const ChainGroup* ChainGroups::ending_with(std::size_t value) const {
  return value < ending_.size() && !ending_[value].members.empty() ? &ending_[value] : nullptr;
}

}  // namespace spyre::card
