// Runs the registered tests: all of them, or those whose name contains argv[1].
#include <cstdio>
#include <cstring>

#include "check.h"

int main(int argc, char** argv) {
  using namespace spyre::card::check;
  int passed = 0, failed = 0;
  for (const Test& test : tests()) {
    if (argc > 1 && !std::strstr(test.name, argv[1])) continue;
    failures = 0;
    try {
      test.body();
    } catch (const std::exception& error) {
      fail(test.name, 0, std::string("unexpected exception: ") + error.what());
    }
    ++(failures ? failed : passed);
    std::printf("%s %s\n", failures ? "FAIL" : "ok  ", test.name);
    std::fflush(stdout);
  }
  std::printf("%d passed, %d failed\n", passed, failed);
  return failed ? 1 : 0;
}
