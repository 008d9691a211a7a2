// What programs that are launched together hand over in the scratchpads. Nothing of it runs.
#include "nests/step_payload.h"
#include "program/program.h"
#include "spyre/program.h"

namespace spyre::card {

Handover decode_handover(std::size_t index, std::span<const std::byte> payload) {
  PayloadReader reader(index, "handover", payload);
  const auto read = [&](const char* part, const char* count) {
    std::vector<ScratchpadBytes> ranges(static_cast<std::size_t>(reader.count(count)));
    for (std::size_t i = 0; i < ranges.size(); ++i) {
      reader.in_loop(static_cast<std::int64_t>(i), part);
      ScratchpadBytes& range = ranges[i];
      range.begin = reader.within("begin", 0, kLxBytesPerCore - kStickBytes);
      range.end = reader.within("end", range.begin + kStickBytes, kLxBytesPerCore);
      range.cores = reader.within("cores", 1, kCores);
      if (range.begin % kStickBytes != 0) reader.refuse("begin", "not that of a stick");
      if (range.end % kStickBytes != 0) reader.refuse("end", "not that of a stick");
    }
    reader.in_loop(-1);
    return ranges;
  };
  Handover handover;
  handover.found = read("found", "found count");
  handover.left = read("left", "left count");
  reader.finish();
  return handover;
}

}  // namespace spyre::card
