// Arbitrary programs are refused or run, never more: a fixed sample of what `make fuzz-loader`
// does.
#include "program_fuzzing.h"

using namespace spyre::card;
using namespace spyre::card::test;

TEST(every_seed_runs) {
  for (std::size_t i = 0; i < seeds().size(); ++i)
    if (!load_and_run(seeds()[i])) {
      std::printf("seed %zu is refused: ", i);
      try {
        SoftProgram(program_of_body(seeds()[i]),
                    std::make_shared<DeviceMemory>(MemoryLimits{kMiB, 0}));
      } catch (const Error& error) {
        std::printf("%s\n", error.what());
      }
      CHECK(false);
    }
}

TEST(changed_programs_are_refused_or_run) {
  std::mt19937 random(1);
  int ran = 0, rounds = 0;
  for (const Body& seed : seeds())
    for (int round = 0; round < 1500; ++round, ++rounds) {
      Body body = seed;
      mutate(body, random);
      ran += load_and_run(body);
    }
  CHECK(ran > rounds / 20);
  CHECK(ran < rounds);
}
