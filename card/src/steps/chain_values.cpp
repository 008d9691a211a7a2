#include "steps/chain_values.h"

#include <algorithm>
#include <string>

#include "formats/accumulation.h"
#include "spyre/program.h"

namespace spyre::card {
namespace {

/// Ops whose result depends on the sign of a NaN, which memory does not keep.
bool sees_sign_of_nan(OpFunc op) { return op == OpFunc::copysign || op == OpFunc::signbit; }

const OpInfo& read_op(PayloadReader& reader, OpKind kind, const char* is_not) {
  const std::int64_t id = reader.word("op");
  const OpInfo* const op = find_op(static_cast<std::uint64_t>(id));
  if (!op) reader.refuse("op", std::to_string(id) + " is unknown");
  if (op->kind != kind) reader.refuse("op", std::string(op->name) + ' ' + is_not);
  return *op;
}

std::string described(const ChainDims& dims) {
  if (dims.lines) return dims.positions ? "lines and positions" : "lines and no positions";
  return dims.positions ? "positions and no lines" : "neither lines nor positions";
}

}  // namespace

ChainValues::ChainValues(PayloadReader& reader)
    : shape(read_line_shape(reader, "lines", "length", "line", "position")) {
  const std::int64_t tensor_count = reader.count("tensor count");
  for (std::int64_t i = 0; i < tensor_count; ++i) read_tensor(reader, i);
  const std::int64_t value_count = reader.count("value count");
  for (std::int64_t i = 0; i < value_count; ++i) read_value(reader, i);
  const std::int64_t store_count = reader.count("store count");
  for (std::int64_t i = 0; i < store_count; ++i) read_store(reader);
  reader.finish();
  mark_needed();
}

void ChainValues::read_tensor(PayloadReader& reader, std::int64_t index) {
  const auto [operand, format] = reader.tensor("tensor");
  const auto narrow = static_cast<Narrow>(reader.within("tensor narrow", 0, 1));
  ChainDims dims;
  dims.lines = reader.within("has lines", 0, 1) == 1;
  dims.positions = reader.within("has positions", 0, 1) == 1;
  const std::string name = "tensor " + std::to_string(index);
  LineShape mine = shape;
  if (!dims.lines) mine.lines = 1;
  if (!dims.positions) mine.length = 1;
  LineView view(reader, name.c_str(), format, mine);
  view.check_visits(reader, name.c_str(), mine);
  tensors.push_back({operand, narrow, dims, std::move(view)});
}

void ChainValues::read_value(PayloadReader& reader, std::int64_t index) {
  ChainValue value{};
  value.kind = static_cast<Chain::Kind>(reader.within("value kind", 0, 2));
  if (value.kind == Chain::Kind::load) {
    value.tensor = static_cast<std::size_t>(
        reader.within("loaded tensor", 0, static_cast<std::int64_t>(tensors.size()) - 1));
    const ChainTensor& tensor = tensors[value.tensor];
    const std::int64_t places =
        (tensor.dims.lines ? shape.lines : 1) * (tensor.dims.positions ? shape.length : 1);
    if (tensor.view.visits() != places)
      reader.refuse("loaded tensor", "the loops of tensor " + std::to_string(value.tensor) +
                                         " visit " + std::to_string(tensor.view.visits()) +
                                         " elements, but a load needs all " +
                                         std::to_string(places));
    value.dims = tensor.dims;
    value.format = tensor.view.format();
  } else if (value.kind == Chain::Kind::pointwise) {
    read_pointwise(reader, index, value);
  } else {
    read_reduce(reader, index, value);
  }
  values.push_back(std::move(value));
}

void ChainValues::read_pointwise(PayloadReader& reader, std::int64_t index, ChainValue& value) {
  const OpInfo& op = read_op(reader, OpKind::pointwise, "is no pointwise op");
  value.op = op.op;
  value.run = pointwise_kernel(op.op, false);
  if (!value.run) reader.refuse("op", std::string(op.name) + " does not compute in fp32");
  for (int i = 0; i < 2 && op.inputs == 2; ++i) value.number_run[i] = number_kernel(op.op, i);
  value.cost = work_of(op);
  const std::int64_t inputs = reader.word("inputs");
  if (inputs != op.inputs)
    reader.refuse("inputs", std::to_string(inputs) + ", but " + op.name + " takes " +
                                std::to_string(op.inputs));
  for (std::int64_t i = 0; i < inputs; ++i) {
    const std::int64_t input = reader.within("input value", Chain::Input::kScalar, index - 1);
    value.inputs.push_back({input, reader.real("input scalar")});
    if (input < 0) continue;
    ChainValue& from = values[static_cast<std::size_t>(input)];
    value.dims = value.dims | from.dims;
    from.clean_nan |= sees_sign_of_nan(op.op);
  }
  read_result(reader, op, value);
}

void ChainValues::read_reduce(PayloadReader& reader, std::int64_t index, ChainValue& value) {
  const OpInfo& op = read_op(reader, OpKind::reduce, "is not a reduction");
  const ReduceRecipe& recipe = reduce_recipe(op.op);
  if (!op.fp32) reader.refuse("op", std::string(op.name) + " does not compute in fp32");
  const std::int64_t input = reader.within("input value", 0, index - 1);
  const ChainValue& from = values[static_cast<std::size_t>(input)];
  if (!from.dims.positions)
    reader.refuse("input value", std::to_string(input) + " has no positions to reduce");
  if (recipe.needs_elements && shape.length == 0 && (shape.lines > 0 || !from.dims.lines))
    reader.refuse("length", std::string("there is no ") + op.name + " of no elements");
  value.dims = {from.dims.lines, false};
  value.inputs = {{input, 0.0}};
  ReducePieces& fold = value.fold.emplace();
  fold.recipe = recipe;
  fold.chunked = (op.op == OpFunc::sum || op.op == OpFunc::mean) &&
                 from.format == DataFormat::SEN169_FP16 && accumulation() == Accumulation::chunked;
  fold.two_results = false;
  fold.cut(shape.length);
  read_result(reader, op, value);
  fold.constants.assign(value.constants, value.constants + op.constants);
}

/// Constants, format and narrowing.
void ChainValues::read_result(PayloadReader& reader, const OpInfo& op, ChainValue& value) {
  const std::int64_t constants = reader.word("constants");
  if (constants != op.constants)
    reader.refuse("constants", std::string(op.name) + " takes " + std::to_string(op.constants) +
                                   ", not " + std::to_string(constants));
  for (std::int64_t i = 0; i < constants; ++i) value.constants[i] = reader.real("constant");
  value.format = reader.format("value format");
  if (value.format != DataFormat::SEN169_FP16 && value.format != DataFormat::IEEE_FP32)
    reader.refuse("value format", std::string(format_info(value.format).name) +
                                      " is neither SEN169_FP16 nor IEEE_FP32");
  value.narrow = static_cast<Narrow>(reader.within("value narrow", 0, 1));
}

void ChainValues::read_store(PayloadReader& reader) {
  const auto last = [](const auto& list) { return static_cast<std::int64_t>(list.size()) - 1; };
  const std::int64_t value = reader.within("stored value", 0, last(values));
  const std::int64_t tensor = reader.within("stored tensor", 0, last(tensors));
  const ChainStore store{static_cast<std::size_t>(value), static_cast<std::size_t>(tensor)};
  const ChainDims &from = values[store.value].dims, &to = tensors[store.tensor].dims;
  if (from != to)
    reader.refuse("stored tensor", std::to_string(tensor) + " has " + described(to) +
                                       ", but value " + std::to_string(value) + " has " +
                                       described(from));
  stores.push_back(store);
}

bool ChainValues::loaded(std::size_t tensor) const {
  return std::any_of(values.begin(), values.end(), [&](const ChainValue& value) {
    return value.needed && value.kind == Chain::Kind::load && value.tensor == tensor;
  });
}

void ChainValues::mark_needed() {
  for (const ChainStore& store : stores)
    values[store.value].needed = values[store.value].only_stored = true;
  for (const ChainStore& store : stores) {
    const ChainTensor& tensor = tensors[store.tensor];
    values[store.value].only_stored &=
        tensor.view.format() == values[store.value].format && tensor.narrow == Narrow::none;
  }
  for (std::size_t i = values.size(); i-- > 0;) {
    if (!values[i].needed) continue;
    for (const ChainValue::Input& input : values[i].inputs) {
      if (input.value < 0) continue;
      ChainValue& from = values[static_cast<std::size_t>(input.value)];
      from.needed = true;
      from.only_stored = false;
    }
  }
}

}  // namespace spyre::card
