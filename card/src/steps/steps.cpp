// The opcodes and their decoders.
#include "steps/steps.h"

#include "spyre/program.h"

namespace spyre::card {
namespace {

struct Decoder {
  Opcode opcode;
  const char* name;
  std::unique_ptr<const Step> (*decode)(PayloadReader& reader);
};

constexpr Decoder kDecoders[] = {
    {Opcode::move, "move", decode_move},
    {Opcode::fill, "fill", decode_fill},
    {Opcode::pointwise, "pointwise", decode_pointwise},
    {Opcode::reduce, "reduce", decode_reduce},
    {Opcode::rows, "rows", decode_rows},
    {Opcode::scan, "scan", decode_scan},
    {Opcode::matmul, "matmul", decode_matmul},
    {Opcode::index, "index", decode_index},
    {Opcode::sort, "sort", decode_sort},
    {Opcode::cores, "cores", decode_cores},
    {Opcode::chain, "chain", decode_chain},
};

}  // namespace

std::unique_ptr<const Step> decode_step(std::size_t index, std::uint32_t opcode,
                                        std::span<const std::byte> payload) {
  for (const Decoder& decoder : kDecoders) {
    if (static_cast<std::uint32_t>(decoder.opcode) != opcode) continue;
    PayloadReader reader(index, decoder.name, payload);
    return decoder.decode(reader);
  }
  throw Error(ErrorCode::invalid_argument, "program: step " + std::to_string(index) + ", opcode: " +
                                               std::to_string(opcode) + " is unknown");
}

}  // namespace spyre::card
