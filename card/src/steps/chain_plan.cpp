#include "steps/chain_plan.h"

#include <algorithm>
#include <bit>
#include <map>
#include <tuple>
#include <utility>

namespace spyre::card {
namespace {

// Elements of a stripe that are worth a call of their own, rather than copying what it reads.
constexpr std::int64_t kNumberStripe = 64, kRepeatStripe = 128;
constexpr std::int64_t kSweptLine = 64;  // lines shorter than that are computed op by op
constexpr std::int64_t kAlign = 16;      // floats of a cache line

constexpr ChainDims kFull{true, true}, kColumn{true, false}, kRow{false, true};

std::int64_t aligned(std::int64_t floats) { return (floats + kAlign - 1) / kAlign * kAlign; }

/// Turns values into instructions, then gives every buffer its place.
class Lowering {
 public:
  Lowering(const ChainValues& values, ChainPlan& plan)
      : values_(values), plan_(plan), buffer_of_(values.values.size(), -1) {
    if (!plan.across && plan.block_length >= kSweptLine) groups_ = ChainGroups(values);
  }

  void lower() {
    for (std::size_t i = 0; i < values_.values.size(); ++i) {
      const ChainValue& value = values_.values[i];
      if (!value.needed || value.kind == Chain::Kind::load || groups_.swallows(i)) continue;
      if (const ChainGroup* const group = groups_.ending_with(i)) {
        emit_sweep(*group);
      } else {
        emit(i);
      }
    }
    std::vector<std::pair<int, ChainWrite>> once, block;
    for (const ChainStore& store : values_.stores) {
      const ChainValue& value = values_.values[store.value];
      const ChainTensor& tensor = values_.tensors[store.tensor];
      const int from = buffer_of(store.value);
      if (with_part(tensor)) {
        emit_store(value, from, tensor);
        continue;
      }
      if (buffer(from).home == Home::part) buffer(from).home = Home::block;
      (value.dims.lines ? block : once).emplace_back(from, ChainWrite{{}, &value, &tensor});
    }
    load_in_sweeps();
    store_in_sweeps();
    place_buffers();
    for (auto& [from, write] : once) plan_.once_writes.push_back(placed(from, write, false));
    for (auto& [from, write] : block) plan_.block_writes.push_back(placed(from, write, true));
    place_instructions(once_, plan_.once, false);
    place_instructions(loads_, plan_.loads, true);
    place_instructions(block_, plan_.block, true);
  }

 private:
  using Home = ChainPlace::Home;
  struct Buffer {
    ChainDims dims;
    Home home;
    bool free = false;         // others have its place
    std::size_t last_use = 0;  // number of an instruction of the block
    std::int64_t offset = 0;
    std::size_t tensor = 0;
  };
  struct Draft {
    ChainInstruction instruction;
    std::vector<int> in;
    int out, reduced = -1, loaded = -1;  // -1: there is none
  };
  /// A buffer, and how an op reads it.
  struct Source {
    int buffer;
    ChainInput::Kind kind = ChainInput::Kind::same;
  };

  int new_buffer(const ChainDims& dims, Home home) {
    buffers_.push_back({dims, home});
    return static_cast<int>(buffers_.size()) - 1;
  }

  int add(const ChainInstruction& instruction, std::initializer_list<int> inputs, bool of_run) {
    const bool with_block =
        instruction.kind == ChainInstruction::Kind::load && !instruction.with_part;
    const Home home = of_run ? Home::run : with_block ? Home::block : Home::part;
    const Draft draft{instruction, inputs, new_buffer(instruction.dims, home)};
    (of_run ? once_ : with_block ? loads_ : block_).push_back(draft);
    return draft.out;
  }

  /// Whether a tensor is loaded or stored with the part that is computed.
  bool with_part(const ChainTensor& tensor) const {
    return !plan_.across && tensor.dims == kFull && tensor.view.plain();
  }

  /// Whether a part of the tensor is as it would be in a buffer.
  bool packed(const ChainTensor& tensor) const {
    const bool whole_lines = plan_.block_length == values_.shape.length || plan_.part_lines == 1;
    return with_part(tensor) && whole_lines && tensor.view.format() == DataFormat::IEEE_FP32 &&
           tensor.view.plain()->packed(values_.shape.length);
  }

  bool stored_as_loaded(std::size_t tensor) const {
    return std::any_of(values_.stores.begin(), values_.stores.end(), [&](const ChainStore& store) {
      const ChainValue& value = values_.values[store.value];
      return value.kind == Chain::Kind::load && value.tensor == tensor;
    });
  }

  /// Whether one store is all that has to do with the tensor.
  bool used_once(std::size_t tensor) const {
    return !values_.loaded(tensor) &&
           std::count_if(values_.stores.begin(), values_.stores.end(),
                         [&](const ChainStore& store) { return store.tensor == tensor; }) == 1;
  }

  /// The value as it is.
  int buffer_of(std::size_t index) {
    int& buffer = buffer_of_[index];
    const ChainValue& value = values_.values[index];
    if (buffer < 0 && value.kind == Chain::Kind::load) {
      const auto [known, is_new] = loaded_.try_emplace(value.tensor, -1);
      if (is_new) known->second = load(value);
      buffer = known->second;
    }
    return buffer;
  }

  int load(const ChainValue& value) {
    const ChainTensor& tensor = values_.tensors[value.tensor];
    if (packed(tensor) && !stored_as_loaded(value.tensor)) {
      const int in_tensor = new_buffer(value.dims, Home::loaded);
      buffer(in_tensor).tensor = value.tensor;
      return in_tensor;
    }
    return add(ChainInstruction{.kind = ChainInstruction::Kind::load,
                                .dims = value.dims,
                                .value = &value,
                                .tensor = &tensor,
                                .with_part = with_part(tensor),
                                .convert = Converters(tensor.view.format(), DataFormat::IEEE_FP32)},
               {}, !value.dims.lines);
  }

  void emit(std::size_t index) {
    const ChainValue& value = values_.values[index];
    const bool reduce = value.kind == Chain::Kind::reduce;
    const auto kind = reduce ? ChainInstruction::Kind::reduce : ChainInstruction::Kind::pointwise;
    Draft draft{ChainInstruction{.kind = kind, .dims = value.dims, .value = &value}, {}, -1};
    ChainInstruction& instruction = draft.instruction;
    for (int i = 0; std::cmp_less(i, value.inputs.size()); ++i) {
      const ChainValue::Input& input = value.inputs[static_cast<std::size_t>(i)];
      const Source source = reduce ? Source{buffer_of(static_cast<std::size_t>(input.value))}
                                   : source_of(input, value.dims, i < 2 && value.number_run[i]);
      draft.in.push_back(source.buffer);
      instruction.in[i].kind = source.kind;
      if (source.kind == ChainInput::Kind::number || source.kind == ChainInput::Kind::numbers)
        instruction.number_input = i;
      instruction.by_stripe |=
          source.kind == ChainInput::Kind::repeat || source.kind == ChainInput::Kind::numbers;
    }
    draft.out = new_buffer(value.dims, value.dims.lines ? Home::part : Home::run);
    buffer_of_[index] = draft.out;
    (value.dims.lines ? block_ : once_).push_back(draft);
  }

  void emit_store(const ChainValue& value, int from, const ChainTensor& tensor) {
    ChainInstruction instruction{.kind = ChainInstruction::Kind::store,
                                 .dims = value.dims,
                                 .value = &value,
                                 .tensor = &tensor};
    const Narrow narrow = narrow_of(value, tensor);
    Buffer& buffer = this->buffer(from);
    const auto index = static_cast<std::size_t>(&tensor - values_.tensors.data());
    if (packed(tensor) && narrow == Narrow::none && buffer.home == Home::part &&
        value.kind != Chain::Kind::load && used_once(index)) {
      instruction.kind = ChainInstruction::Kind::settle;
      buffer.home = Home::stored;
      buffer.tensor = index;
      plan_.computed_in.push_back(index);
    } else {
      instruction.convert = Converters(DataFormat::IEEE_FP32, tensor.view.format(), narrow);
    }
    block_.push_back({instruction, {from}, -1});
  }

  void emit_sweep(const ChainGroup& group) {
    const std::size_t last = group.members.back().value;
    const ChainValue& value = values_.values[last];
    Draft draft{ChainInstruction{.kind = ChainInstruction::Kind::sweep,
                                 .dims = value.dims,
                                 .value = &value,
                                 .stored = group.stored},
                {},
                -1};
    const auto use = [&](const ChainGroup::Member& member, int which) {
      const ChainValue::Input& input =
          values_.values[member.value].inputs[static_cast<std::size_t>(which)];
      draft.in.push_back(input.value < 0 ? scalar(input.scalar)
                                         : buffer_of(static_cast<std::size_t>(input.value)));
      return !buffer(draft.in.back()).dims.lines;  // repeats
    };
    use(group.members.front(), group.members.front().through);
    for (const ChainGroup::Member& member : group.members) {
      ChainStage stage{member.op, member.elements >= 0, member.number >= 0};
      if (stage.has_elements) stage.elements_repeat = use(member, member.elements);
      if (stage.has_number) stage.number_repeats = use(member, member.number);
      draft.instruction.stages.push_back(stage);
      if (member.value != last && values_.values[member.value].format == DataFormat::SEN169_FP16)
        draft.instruction.stages.push_back({SweepOp::round});
    }
    if (group.stored) draft.out = buffer_of_[last] = new_buffer(value.dims, Home::part);
    if (group.reduce != ChainGroup::kNone) {
      const ChainValue& reduction = values_.values[group.reduce];
      draft.instruction.reduction = &reduction;
      draft.reduced = buffer_of_[group.reduce] = new_buffer(reduction.dims, Home::part);
    }
    block_.push_back(draft);
  }

  /// Whether a sweep can load or store the tensor.
  bool swept(const ChainTensor& tensor) const {
    if (!with_part(tensor) || tensor.view.format() != DataFormat::SEN169_FP16 ||
        plan_.block_length < kSweptLine)
      return false;
    const bool begins_with_stick =
        plan_.block_length == values_.shape.length || plan_.block_length % kStickElements == 0;
    return begins_with_stick && tensor.view.plain()->step_of(kStickElements);
  }

  static bool reads(const Draft& draft, int buffer) {
    return std::find(draft.in.begin(), draft.in.end(), buffer) != draft.in.end();
  }

  /// What a sweep, or a fold that can be one, is the first to read is loaded by it.
  void load_in_sweeps() {
    for (std::size_t load = 0; load < block_.size(); ++load) {
      const Draft draft = block_[load];
      if (draft.instruction.kind != ChainInstruction::Kind::load ||
          !swept(*draft.instruction.tensor))
        continue;
      const auto reads_it = [&](const Draft& each) { return reads(each, draft.out); };
      const auto first =
          std::find_if(block_.begin() + static_cast<std::ptrdiff_t>(load), block_.end(), reads_it);
      if (first == block_.end() || !can_load(*first, draft.out)) continue;
      ChainInstruction& instruction = first->instruction;
      instruction.source = draft.instruction.tensor;
      instruction.keeps_source =
          buffer(draft.out).home == Home::block || std::any_of(first + 1, block_.end(), reads_it);
      if (instruction.keeps_source) {
        first->loaded = draft.out;
      } else {
        buffer(draft.out).free = true;  // it takes no room
      }
      block_.erase(block_.begin() + static_cast<std::ptrdiff_t>(load--));
    }
  }

  /// Whether the instruction can load what it reads. Makes a sweep of it.
  static bool can_load(Draft& draft, int buffer) {
    ChainInstruction& instruction = draft.instruction;
    if (instruction.kind == ChainInstruction::Kind::sweep)
      return draft.in[0] == buffer && std::count(draft.in.begin(), draft.in.end(), buffer) == 1;
    if (instruction.kind != ChainInstruction::Kind::reduce ||
        !folds_in_sweep(*instruction.value->fold))
      return false;
    instruction.kind = ChainInstruction::Kind::sweep;
    instruction.reduction = instruction.value;
    instruction.stored = false;
    draft.reduced = std::exchange(draft.out, -1);
    return true;
  }

  /// What a sweep computes, and a store alone reads, is stored by it: if nothing is loaded later,
  /// because stores may take the place of what was loaded.
  void store_in_sweeps() {
    for (std::size_t store = 0; store < block_.size(); ++store) {
      const Draft& draft = block_[store];
      const ChainInstruction& instruction = draft.instruction;
      if (instruction.kind != ChainInstruction::Kind::store || !swept(*instruction.tensor) ||
          instruction.value->narrow != Narrow::none ||
          narrow_of(*instruction.value, *instruction.tensor) != Narrow::none)
        continue;
      const int stored = draft.in[0];
      const auto users = std::count_if(block_.begin(), block_.end(),
                                       [&](const Draft& each) { return reads(each, stored); });
      const auto from = std::find_if(block_.begin(), block_.end(),
                                     [&](const Draft& each) { return each.out == stored; });
      const auto loads = [](const Draft& each) {
        return each.instruction.kind == ChainInstruction::Kind::load || each.instruction.source;
      };
      if (users != 1 || buffer(stored).home != Home::part ||
          from->instruction.kind != ChainInstruction::Kind::sweep || from->instruction.reduction ||
          std::any_of(from + 1, block_.end(), loads))
        continue;
      from->instruction.sink = instruction.tensor;
      from->instruction.stored = false;
      from->out = -1;
      block_.erase(block_.begin() + static_cast<std::ptrdiff_t>(store--));
    }
  }

  /// How an op whose result has dims `to` reads an input.
  Source source_of(const ChainValue::Input& input, const ChainDims& to, bool as_number) {
    if (input.value < 0) {
      const int one = scalar(input.scalar);
      if (to == ChainDims{}) return {one};
      if (as_number) return {one, ChainInput::Kind::number};
      return {spread(one, to)};
    }
    const int source = buffer_of(static_cast<std::size_t>(input.value));
    const ChainDims from = buffer(source).dims;
    if (from == to) return {source};
    if (from == ChainDims{} && as_number) return {source, ChainInput::Kind::number};
    if (to == kFull && from != ChainDims{}) {
      // Along, a row is the same for every stripe, and a column has a number for each.
      const bool repeats = plan_.across ? from == kColumn : from == kRow;
      const std::int64_t stripe = plan_.across ? plan_.block_lines : plan_.block_length;
      const std::int64_t stripes = plan_.across ? plan_.block_length : plan_.part_lines;
      if (repeats && stripes == 1) return {source};
      if (repeats && stripe >= kRepeatStripe) return {source, ChainInput::Kind::repeat};
      if (!repeats && stripe >= kNumberStripe && as_number)
        return {source, ChainInput::Kind::numbers};
    }
    return {spread(source, to)};
  }

  int scalar(double value) {
    const auto number = static_cast<float>(value);
    const auto [known, is_new] = scalars_.try_emplace(std::bit_cast<std::uint32_t>(number), -1);
    if (is_new)
      known->second = add(
          ChainInstruction{.kind = ChainInstruction::Kind::scalar, .dims = {}, .scalar = number},
          {}, true);
    return known->second;
  }

  int spread(int source, const ChainDims& to) {
    const ChainDims from = buffer(source).dims;
    const auto [known, is_new] =
        spread_.try_emplace(std::tuple{source, to.lines, to.positions}, -1);
    if (is_new) {
      const bool same_for_all_blocks =
          !from.lines && (!from.positions || plan_.position_blocks <= 1);
      known->second =
          add(ChainInstruction{.kind = ChainInstruction::Kind::spread, .dims = to, .from = from},
              {source}, same_for_all_blocks);
    }
    return known->second;
  }

  /// Buffers of the run and of whole blocks lie side by side; those of a part take the place of
  /// others that are no longer needed.
  void place_buffers() {
    for (std::size_t i = 0; i < block_.size(); ++i)
      for (const int in : block_[i].in) buffer(in).last_use = i;
    for (Buffer& each : buffers_) {
      const bool of_run = each.home == Home::run;
      if (!of_run && each.home != Home::block) continue;
      std::int64_t& floats = of_run ? plan_.once_floats : plan_.block_floats;
      each.offset = floats;
      floats += aligned(plan_.floats(each.dims, of_run ? plan_.part_lines : plan_.block_lines));
    }
    std::vector<std::int64_t> free_full, free_columns;
    for (std::size_t i = 0; i < block_.size(); ++i) {
      // Of all ops, only sweeps work in place: the result's buffer is taken before the inputs' are
      // free.
      if (in_place(i)) release(block_[i].in[0], free_full);
      for (const int result : {block_[i].out, block_[i].reduced, block_[i].loaded}) {
        if (result < 0 || buffer(result).home != Home::part) continue;
        Buffer& out = buffer(result);
        take(out, out.dims == kFull ? free_full : free_columns);
      }
      for (const int in : block_[i].in) {
        if (!ends_with(in, i)) continue;
        release(in, buffer(in).dims == kFull ? free_full : free_columns);
      }
    }
    plan_.once_work = plan_.once_floats;
    plan_.block_work = plan_.block_floats;
    plan_.once_floats += work_floats(once_, 1, false);
    plan_.block_floats += work_floats(block_, plan_.part_lines, plan_.across);
  }

  /// Whether nothing needs the buffer of a part after instruction i.
  bool ends_with(int index, std::size_t i) {
    const Buffer& each = buffer(index);
    return each.home == Home::part && !each.free && each.last_use <= i;
  }

  bool in_place(std::size_t i) {
    const Draft& draft = block_[i];
    const auto& stages = draft.instruction.stages;
    const bool takes_exp = std::any_of(stages.begin(), stages.end(), [](const ChainStage& stage) {
      return stage.op == SweepOp::exp;
    });
    return draft.instruction.kind == ChainInstruction::Kind::sweep && draft.out >= 0 &&
           !draft.instruction.source && !takes_exp && buffer(draft.out).home == Home::part &&
           ends_with(draft.in[0], i) &&
           std::count(draft.in.begin(), draft.in.end(), draft.in[0]) == 1;
  }

  void release(int index, std::vector<std::int64_t>& free) {
    buffer(index).free = true;
    free.push_back(buffer(index).offset);
  }

  void take(Buffer& buffer, std::vector<std::int64_t>& free) {
    if (free.empty()) {
      buffer.offset = plan_.block_floats;
      plan_.block_floats += aligned(plan_.floats(buffer.dims, plan_.part_lines));
    } else {
      buffer.offset = free.back();
      free.pop_back();
    }
  }

  static std::int64_t work_floats(const std::vector<Draft>& drafts, std::int64_t lines,
                                  bool across) {
    std::int64_t most = 0;
    for (const Draft& draft : drafts) {
      const ChainInstruction& each = draft.instruction;
      const ChainValue* const reduction =
          each.kind == ChainInstruction::Kind::reduce ? each.value : each.reduction;
      if (reduction) most = std::max(most, reduce_work_floats(*reduction->fold, lines, across));
    }
    return most;
  }

  Buffer& buffer(int index) { return buffers_[static_cast<std::size_t>(index)]; }

  ChainPlace place(int index, bool in_block) {
    const Buffer& each = buffer(index);
    const bool moves = in_block && each.home == Home::run && each.dims == kRow;
    return {each.home, moves, each.dims.positions, each.offset, each.tensor};
  }

  ChainWrite placed(int from, ChainWrite write, bool in_block) {
    write.from = place(from, in_block);
    return write;
  }

  void place_instructions(const std::vector<Draft>& drafts, std::vector<ChainInstruction>& to,
                          bool in_block) {
    for (const Draft& draft : drafts) {
      ChainInstruction& instruction = to.emplace_back(draft.instruction);
      auto next = draft.in.begin();
      if (instruction.kind == ChainInstruction::Kind::sweep) {
        instruction.in[0].place = place(*next++, in_block);
        for (ChainStage& stage : instruction.stages) {
          if (stage.has_elements) stage.elements = place(*next++, in_block);
          if (stage.has_number) stage.number = place(*next++, in_block);
        }
      } else {
        for (ChainInput* in = instruction.in; next != draft.in.end(); ++in)
          in->place = place(*next++, in_block);
      }
      if (draft.out >= 0) instruction.out = place(draft.out, in_block);
      if (draft.reduced >= 0) instruction.reduced = place(draft.reduced, in_block);
    }
  }

  const ChainValues& values_;
  ChainPlan& plan_;
  ChainGroups groups_;
  std::vector<int> buffer_of_;
  std::vector<Buffer> buffers_;
  std::vector<Draft> once_, loads_, block_;
  std::map<std::size_t, int> loaded_;                  // by tensor
  std::map<std::tuple<int, bool, bool>, int> spread_;  // by buffer and dims
  std::map<std::uint32_t, int> scalars_;               // by bits
};

}  // namespace

ChainPlan::ChainPlan(const ChainValues& values) : line_length(values.shape.length) {
  choose_blocks(values);
  Lowering(values, *this).lower();
}

std::int64_t reduce_work_floats(const ReducePieces& fold, std::int64_t lines, bool across) {
  // Pieces, twice where there are two folds; parameters; lanes; integers.
  const std::int64_t pieces = fold.pieces * (fold.recipe.second ? 2 : 1);
  return aligned(lines * pieces) + aligned(lines) + aligned(across ? lines * kFoldLanes : 0) +
         aligned(2 * lines);
}

}  // namespace spyre::card
