// A test framework in one page: TEST(name) { CHECK(..); }, linked with check_main.cpp. A failed
// check is reported and counted; the test goes on.
#pragma once

#include <exception>
#include <iostream>
#include <sstream>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace spyre::card::check {

struct Test {
  const char* name;
  void (*body)();
};

inline std::vector<Test>& tests() {
  static std::vector<Test> all;
  return all;
}

/// Failed checks of the test that runs now.
inline int failures = 0;

inline void fail(const char* file, int line, const std::string& message) {
  // An exhaustive loop over bit patterns must not bury its first failures under thousands more.
  if (++failures <= 10) std::cerr << file << ":" << line << ": " << message << "\n";
}

inline bool add(const char* name, void (*body)()) { return tests().push_back({name, body}), true; }

/// What a value looks like in a message: characters and enums as numbers.
template <typename T>
auto shown(const T& value) {
  using Number = std::conditional_t<std::is_signed_v<T>, long long, unsigned long long>;
  constexpr bool number = std::is_enum_v<T> || std::is_integral_v<T>;
  return static_cast<std::conditional_t<number, Number, std::decay_t<const T&>>>(value);
}

template <typename A, typename B>
void equal(const char* file, int line, const char* text, const A& a, const B& b) {
  if constexpr (std::is_integral_v<A> && std::is_integral_v<B>) {
    if (std::cmp_equal(shown(a), shown(b))) return;
  } else {
    if (a == b) return;
  }
  std::ostringstream message;
  message << text << ": " << shown(a) << " is not " << shown(b);
  fail(file, line, message.str());
}

}  // namespace spyre::card::check

#define TEST(name)                                                                \
  static void test_##name();                                                      \
  static const bool added_##name = ::spyre::card::check::add(#name, test_##name); \
  static void test_##name()

#define CHECK(condition) \
  ((condition) ? void() : ::spyre::card::check::fail(__FILE__, __LINE__, #condition))

#define CHECK_EQ(a, b) ::spyre::card::check::equal(__FILE__, __LINE__, #a " == " #b, (a), (b))

#define CHECK_THROWS(expression, substring)                                            \
  do {                                                                                 \
    std::string thrown = "nothing";                                                    \
    try {                                                                              \
      (void)(expression);                                                              \
    } catch (const std::exception& error) {                                            \
      thrown = error.what();                                                           \
    }                                                                                  \
    if (thrown.find(substring) == std::string::npos)                                   \
      ::spyre::card::check::fail(__FILE__, __LINE__, #expression " threw: " + thrown); \
  } while (false)
