#include "spyre_environment.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>

#include <c10/util/Exception.h>

namespace spyre {

std::optional<std::string> environment_text(const char* name) {
  const char* text = std::getenv(name);
  if (text == nullptr || *text == '\0') return std::nullopt;
  return text;
}

bool environment_flag(const char* name, bool fallback) {
  std::optional<std::string> text = environment_text(name);
  if (!text) return fallback;
  std::transform(text->begin(), text->end(), text->begin(),
                 [](unsigned char letter) { return static_cast<char>(std::tolower(letter)); });
  return *text != "0" && *text != "false" && *text != "off" && *text != "no";
}

std::optional<long> environment_number(const char* name) {
  const std::optional<std::string> text = environment_text(name);
  if (!text) return std::nullopt;
  long value = 0;
  const char* end = text->data() + text->size();
  const auto [stop, error] = std::from_chars(text->data(), end, value);
  TORCH_CHECK_VALUE(error == std::errc() && stop == end, "environment variable ", name, "='", *text,
                    "' is not a whole number.");
  return value;
}

}  // namespace spyre
