// libFuzzer's door to the program loader: `make fuzz-loader`. Inputs are the words behind a
// program's header; mutations are those of program_fuzzing.h, and libFuzzer's own.
#include "program_fuzzing.h"

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t most);

namespace {

using spyre::card::test::Body;

Body words(const std::uint8_t* data, std::size_t size) {
  Body body(size / 8);
  if (!body.empty()) std::memcpy(body.data(), data, body.size() * 8);
  return body;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  spyre::card::test::load_and_run(words(data, size));
  return 0;
}

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t most, unsigned seed) {
  if (seed % 4 == 0) return LLVMFuzzerMutate(data, size, most);
  Body body = words(data, size);
  std::mt19937 random(seed);
  if (random() % 32 == 0) body.clear();  // another seed
  spyre::card::test::mutate(body, random);
  const std::size_t bytes = std::min(body.size() * 8, most / 8 * 8);
  std::memcpy(data, body.data(), bytes);
  return bytes;
}
