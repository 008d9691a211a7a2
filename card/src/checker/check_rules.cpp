#include "checker/check_rules.h"

#include <algorithm>
#include <cstring>

#include "nests/move.h"

namespace spyre::card {

namespace {

constexpr std::int64_t kStick = kStickBytes;

/// Whether (byte & mask) == wanted for all of them.
bool all_are(const std::uint8_t* bytes, std::uint64_t count, std::uint8_t mask,
             std::uint8_t wanted) {
  constexpr std::uint64_t kEach = 0x0101010101010101;
  std::uint64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    std::uint64_t word;
    std::memcpy(&word, bytes + i, sizeof word);
    if ((word & (kEach * mask)) != kEach * wanted) return false;
  }
  for (; i < count; ++i)
    if ((bytes[i] & mask) != wanted) return false;
  return true;
}

std::string index_text(std::int64_t number, const std::vector<std::int64_t>& size) {
  if (size.empty()) return std::to_string(number);
  std::string text;
  for (std::size_t d = size.size(); d-- > 0;) {
    text = std::to_string(number % size[d]) + (text.empty() ? "" : ", ") + text;
    number /= size[d];
  }
  return '(' + text + ')';
}

/// The number that nests give to the element at a place, or -1.
std::int64_t number_at(const std::vector<StrideInfo>& nests, std::int64_t place) {
  std::int64_t found = -1;
  for (const StrideInfo& info : nests) {
    const LoopNest nest = nest_of(info);
    each_row(nest, [&](const std::int64_t* at, std::int64_t count) {
      const std::int64_t number = stride_in_row(nest, 0), step = stride_in_row(nest, 1);
      for (std::int64_t i = 0; i < count && found < 0; ++i)
        if (at[1] + i * step == place) found = at[0] + i * number;
    });
    if (found >= 0) break;
  }
  return found;
}

/// "the output (operand 1, float32[5])"
std::string named(const CheckedTensor& tensor) {
  const std::string text = tensor.operand->told ? tensor.operand->told->text() : "";
  return tensor.role + (text.empty() ? "" : " (" + text + ')');
}

}  // namespace

// ------------------------------------------------------------------------------------ OperandTold

OperandTold::OperandTold(std::int64_t operand, const OperandDescription* told,
                         std::string allocation_name, std::uint64_t allocation_bytes)
    : number(operand), allocation(std::move(allocation_name)), description(told) {
  if (!told || told->view.empty()) return;
  places.resize(allocation_bytes);
  const std::int64_t width = format_info(told->format).bits / 8;
  const auto mark = [&](const std::vector<StrideInfo>& nests, Place place) {
    for (const StrideInfo& info : nests) {
      const LoopNest nest = nest_of(info);
      each_row(nest, [&](const std::int64_t* at, std::int64_t count) {
        const std::int64_t stride = stride_in_row(nest, 1);
        for (std::int64_t i = 0; i < count; i += stride == 1 ? count : 1) {
          const std::int64_t begin = (at[1] + i * stride) * width;
          const std::int64_t bytes = stride == 1 ? count * width : width;
          if (begin < 0 || begin + bytes > static_cast<std::int64_t>(allocation_bytes))
            throw Error(ErrorCode::fault, "check: " + text() + ": byte " +
                                              std::to_string(begin + bytes - 1) +
                                              " of what the launch describes is out of bounds: the "
                                              "allocation has " +
                                              std::to_string(allocation_bytes) + " bytes");
          std::memset(places.data() + begin, place, static_cast<std::size_t>(bytes));
        }
      });
    }
  };
  mark(told->storage, storage);
  mark(told->view, view);
  // Whose tensor is all of the storage, to him belongs all of its padding.
  if (std::find(places.begin(), places.end(), storage) == places.end()) return;
  for (auto stick = places.begin(); stick < places.end();) {
    const auto end = stick + std::min<std::ptrdiff_t>(kStick, places.end() - stick);
    if (std::find(stick, end, view) == end)
      std::replace(stick, end, std::uint8_t{padding}, std::uint8_t{others_padding});
    stick = end;
  }
}

std::string OperandTold::text() const {
  std::string text = number < 0 ? "" : "operand " + std::to_string(number);
  if (description && !description->name.empty())
    text += (text.empty() ? "" : ", ") + description->name;
  return text;
}

std::string OperandTold::element(std::uint64_t byte) const {
  if (places.empty()) return "byte " + std::to_string(byte);
  const std::int64_t width = format_info(description->format).bits / 8;
  const auto place = static_cast<std::int64_t>(byte) / width;
  if (const std::int64_t number_in_view = number_at(description->view, place); number_in_view >= 0)
    return "element " + index_text(number_in_view, description->size);
  if (const std::int64_t in_storage = number_at(description->storage, place); in_storage >= 0)
    return "element " + std::to_string(in_storage) + " of the storage, which is not in the tensor,";
  return "byte " + std::to_string(byte) + ", which is padding" +
         (places[byte] == others_padding ? " of other elements," : ",");
}

// ------------------------------------------------------------------------------- ScratchpadThings

bool ScratchpadThings::lost(std::uint64_t stick, std::int64_t thing) const {
  return stick < last_.size() && last_[stick] != thing && before_[stick] == thing;
}

void ScratchpadThings::write(std::uint64_t stick, std::int64_t thing) {
  if (last_.empty()) {
    last_.assign(static_cast<std::size_t>(kCores * kLxBytesPerCore / kStick), -1);
    before_ = last_;
  }
  if (last_[stick] == thing) return;
  before_[stick] = last_[stick];
  last_[stick] = thing;
}

// ------------------------------------------------------------------------------------- CheckRules

void CheckRules::complain(const std::string& what) const {
  throw Error(ErrorCode::fault, "check: " + where_ + (step_.empty() ? "" : ", " + step_) +
                                    (core_ >= 0 ? ", core " + std::to_string(core_) : "") +
                                    (inside_.empty() ? "" : ", " + inside_) + ": " + what);
}

std::string CheckRules::element(const CheckedTensor& tensor, std::int64_t byte) const {
  const CheckedOperand& operand = *tensor.operand;
  if (operand.told)
    return operand.told->element(operand.start + static_cast<std::uint64_t>(byte)) + " of " +
           named(tensor);
  const auto place = static_cast<std::int64_t>(operand.offset()) + byte;
  return "byte " + std::to_string(place % kLxBytesPerCore) + " of the scratchpad of core " +
         std::to_string(place / kLxBytesPerCore) + " (" + tensor.role + ")";
}

std::string CheckRules::culprit(const CheckedTensor& tensor, std::int64_t offset,
                                std::uint8_t wrong) const {
  const std::int64_t byte = offset * tensor.width;
  const CheckedOperand& operand = *tensor.operand;
  std::string text = element(tensor, byte);
  const std::uint8_t* const places = operand.places();
  if ((wrong & kPadding) && places && places[byte] != OperandTold::view) return text;
  const std::uint8_t state = operand.shadow->states(operand.offset())[byte];
  text += state & kWritten ? wrong & kPadding ? ", which was computed from padding"
                                              : ", which was computed from memory never written"
                           : ", which was never written";
  if (operand.told && !operand.told->allocation.empty())
    text += " since it was allocated by " + operand.told->allocation;
  return text;
}

void CheckRules::check_bounds(const CheckedTensor& tensor, std::int64_t offset, std::int64_t stride,
                              std::int64_t count, const char* verb) const {
  const std::int64_t last = offset + (count - 1) * stride;
  const std::int64_t low = std::min(offset, last), high = std::max(offset, last) + 1;
  if (low >= 0 && high * tensor.width <= static_cast<std::int64_t>(tensor.operand->bytes)) return;
  complain(std::string(verb) + " element " + std::to_string(low < 0 ? low : high - 1) + " of " +
           named(tensor) + ", which is out of bounds: there is room for " +
           std::to_string(static_cast<std::int64_t>(tensor.operand->bytes) / tensor.width));
}

void CheckRules::touch(const CheckedTensor& tensor, std::int64_t offset, std::int64_t stride,
                       std::int64_t count) const {
  CheckedOperand& operand = *tensor.operand;
  const std::int64_t last = offset + (count - 1) * stride;
  const auto low = static_cast<std::uint64_t>(std::min(offset, last) * tensor.width);
  const auto high = static_cast<std::uint64_t>((std::max(offset, last) + 1) * tensor.width);
  operand.low = std::min(operand.low, low);
  operand.high = std::max(operand.high, high);
  operand.touched->add(operand.offset() + low, operand.offset() + high);
}

std::uint8_t CheckRules::wrong_at(const CheckedTensor& tensor, std::int64_t byte) const {
  const CheckedOperand& operand = *tensor.operand;
  const std::uint8_t* const state = operand.shadow->states(operand.offset()) + byte;
  const std::uint8_t* const places = operand.places();
  std::uint8_t wrong = 0;
  for (std::int64_t i = 0; i < tensor.width; ++i)
    wrong |= state[i] & kWritten ? state[i] & kWrong : kUndefined;
  if (places && places[byte] != OperandTold::view) wrong |= kPadding;
  return wrong;
}

std::uint8_t CheckRules::read(const CheckedTensor& tensor, std::int64_t offset, std::int64_t stride,
                              std::int64_t count, std::uint8_t* wrong) {
  check_bounds(tensor, offset, stride, count, "reads");
  touch(tensor, offset, stride, count);
  const CheckedOperand& operand = *tensor.operand;
  const std::int64_t width = tensor.width;
  if (stride == 1 || count == 1) {
    const auto bytes = static_cast<std::uint64_t>(count * width);
    const std::uint8_t* const places = operand.places();
    read_by_core(tensor, offset * width, count * width);
    if (all_are(operand.shadow->states(operand.offset()) + offset * width, bytes, kWritten | kWrong,
                kWritten) &&
        (!places || all_are(places + offset * width, bytes, OperandTold::view, OperandTold::view)))
      return 0;
  }
  std::uint8_t all = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t byte = (offset + i * stride) * width;
    if (stride != 1) read_by_core(tensor, byte, width);
    const std::uint8_t here = wrong_at(tensor, byte);
    if (wrong) wrong[i] |= here;
    all |= here;
  }
  return all;
}

void CheckRules::check_result(const CheckedTensor& tensor, std::int64_t byte, std::uint8_t wrong,
                              const std::function<std::string()>& origin) const {
  const CheckedOperand& operand = *tensor.operand;
  const std::uint8_t* const places = operand.places();
  if (places && OperandTold::is_others(places[byte]))
    complain("writes " + element(tensor, byte) +
             ": that is not what the launch was asked to write");
  if (operand.scratch() || (places && places[byte] == OperandTold::padding)) return;
  if ((wrong & kPadding) && places) complain(element(tensor, byte) + " is made of " + origin());
  if (wrong & kMixed) complain(element(tensor, byte) + " is made of " + origin());
}

void CheckRules::write(const CheckedTensor& tensor, std::int64_t offset, std::int64_t stride,
                       std::int64_t count, const std::uint8_t* wrong, const Origin& origin) {
  check_bounds(tensor, offset, stride, count, "writes");
  touch(tensor, offset, stride, count);
  const CheckedOperand& operand = *tensor.operand;
  const std::int64_t width = tensor.width;
  const std::uint8_t* const places = operand.places();
  std::uint8_t* const states = operand.shadow->states(operand.offset());
  for (std::int64_t i = 0; i < count;) {
    // Rows of which nothing is wrong are one piece.
    const std::int64_t piece = !wrong && stride == 1 ? count : 1;
    const std::int64_t byte = (offset + i * stride) * width, bytes = piece * width;
    const std::uint8_t now = wrong ? wrong[i] : 0;
    if (places) {
      const auto* const end = places + byte + bytes;
      const auto* const first = std::find_if(places + byte, end, OperandTold::is_others);
      if (first != end) check_result(tensor, first - places, 0, {});
    }
    if (now) check_result(tensor, byte, now, [&] { return origin(i); });
    write_by_core(tensor, byte, bytes);
    std::memset(states + byte, kWritten | kDeclared | now, static_cast<std::size_t>(bytes));
    // Who reads it will see by itself that it is padding, or that nobody knows.
    if (!operand.scratch() && (now & (kPadding | kMixed)))
      std::memset(states + byte, kWritten | kDeclared | kUndefined,
                  static_cast<std::size_t>(bytes));
    i += piece;
  }
}

void CheckRules::may_write(const CheckedTensor& tensor, std::int64_t offset, std::int64_t count) {
  check_bounds(tensor, offset, 1, count, "writes");
  touch(tensor, offset, 1, count);
  std::uint8_t* const states = tensor.operand->shadow->states(tensor.operand->offset());
  for (std::int64_t i = offset * tensor.width; i < (offset + count) * tensor.width; ++i)
    states[i] |= kDeclared;
}

bool CheckRules::written_by_step(const CheckedTensor& tensor, std::int64_t offset) const {
  const CheckedOperand& operand = *tensor.operand;
  return operand.shadow->states(operand.offset())[offset * tensor.width] & kDeclared;
}

void CheckRules::aligned(const CheckedTensor& tensor, std::int64_t offset) const {
  if (core_ < 0) return;
  const auto place = static_cast<std::int64_t>(tensor.operand->offset()) + offset * tensor.width;
  if (place % kStick != 0)
    complain("a stick of " + tensor.role + " begins at " + element(tensor, offset * tensor.width) +
             ", which is " + std::to_string(place % kStick) +
             " bytes behind the beginning of a stick of memory");
}

void CheckRules::within_span(const CheckedOperand& operand) const {
  if (!operand.told || operand.high <= operand.low) return;
  const std::uint64_t span = operand.high - operand.low;
  if (span > static_cast<std::uint64_t>(kCoreSpanBytes))
    complain("touches " + std::to_string(span) + " bytes of " + operand.told->text() +
             " from the first to the last; a core reaches " + std::to_string(kCoreSpanBytes));
}

void CheckRules::read_by_core(const CheckedTensor& tensor, std::int64_t byte, std::int64_t bytes) {
  if (core_ < 0) return;
  const CheckedOperand& operand = *tensor.operand;
  const std::uint64_t begin = operand.offset() + static_cast<std::uint64_t>(byte);
  const std::uint64_t end = begin + static_cast<std::uint64_t>(bytes);
  const auto me = static_cast<std::uint8_t>(core_ + 1);
  std::uint8_t* const readers = operand.shadow->readers(0);
  const std::uint8_t* const states = operand.shadow->states(0);
  for (std::uint64_t at = begin; at < end;) {
    const std::uint64_t stick = at / kStick,
                        stop = std::min<std::uint64_t>(end, (stick + 1) * kStick);
    const std::uint8_t writer = operand.shadow->writer(at);
    if (!operand.told && things_.lost(stick, operand.thing))
      complain("reads " + element(tensor, static_cast<std::int64_t>(at - operand.offset())) +
               ", where something else was written since: two things overlap in the scratchpad");
    for (; at < stop; ++at) {
      if (writer != 0 && writer != me && (states[at] & kDeclared))
        complain("reads " + element(tensor, static_cast<std::int64_t>(at - operand.offset())) +
                 ", which core " + std::to_string(writer - 1) +
                 " writes in the same step: cores do not wait for each other");
      readers[at] = readers[at] == 0 || readers[at] == me ? me : Shadow::kManyCores;
    }
  }
}

void CheckRules::write_by_core(const CheckedTensor& tensor, std::int64_t byte, std::int64_t bytes) {
  if (core_ < 0) return;
  const CheckedOperand& operand = *tensor.operand;
  const std::uint64_t begin = operand.offset() + static_cast<std::uint64_t>(byte);
  const std::uint64_t end = begin + static_cast<std::uint64_t>(bytes);
  const auto me = static_cast<std::uint8_t>(core_ + 1);
  const std::uint8_t* const readers = operand.shadow->readers(0);
  for (std::uint64_t at = begin; at < end;) {
    const std::uint64_t stick = at / kStick,
                        stop = std::min<std::uint64_t>(end, (stick + 1) * kStick);
    std::uint8_t& writer = operand.shadow->writer(at);
    const auto here = [&] {
      return element(tensor, static_cast<std::int64_t>(at - operand.offset()));
    };
    if (writer != 0 && writer != me)
      complain("writes " + here() + ", in a stick that core " + std::to_string(writer - 1) +
               " writes in the same step: cores do not wait for each other");
    writer = me;
    if (!operand.told) things_.write(stick, operand.thing);
    for (; at < stop; ++at)
      if (readers[at] != 0 && readers[at] != me)
        complain("writes " + here() + ", which " +
                 (readers[at] == Shadow::kManyCores
                      ? "other cores read"
                      : "core " + std::to_string(readers[at] - 1) + " reads") +
                 " in the same step: cores do not wait for each other");
  }
}

}  // namespace spyre::card
