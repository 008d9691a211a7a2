#include "runtime/spyre_environment.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>

#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

namespace spyre {

std::optional<std::string> environment_text(const char* variable) {
  const char* text = std::getenv(variable);
  if (text == nullptr || *text == '\0') return std::nullopt;
  return text;
}

bool environment_flag(const knobs::Flag& knob) {
  std::optional<std::string> text = environment_text(knob.variable);
  if (!text) return knob.otherwise;
  std::transform(text->begin(), text->end(), text->begin(),
                 [](unsigned char letter) { return static_cast<char>(std::tolower(letter)); });
  return *text != "0" && *text != "false" && *text != "off" && *text != "no";
}

std::size_t environment_choice(const knobs::Choice& knob) {
  const std::optional<std::string> text = environment_text(knob.variable);
  if (!text) return knob.otherwise;
  const auto found = std::find(knob.words.begin(), knob.words.end(), *text);
  TORCH_CHECK_VALUE(found != knob.words.end(), "environment variable ", knob.variable, "='", *text,
                    "': expected ", c10::Join(" or ", knob.words), ".");
  return static_cast<std::size_t>(found - knob.words.begin());
}

std::optional<long> environment_number(const knobs::Number& knob) {
  const std::optional<std::string> text = environment_text(knob.variable);
  if (!text) return std::nullopt;
  long value = 0;
  const char* end = text->data() + text->size();
  const auto [stop, error] = std::from_chars(text->data(), end, value);
  TORCH_CHECK_VALUE(error == std::errc() && stop == end, "environment variable ", knob.variable,
                    "='", *text, "' is not a whole number.");
  TORCH_CHECK_VALUE(value >= knob.lowest && value <= knob.highest, "environment variable ",
                    knob.variable, "='", *text, "': expected ",
                    value < knob.lowest ? "at least " : "at most ",
                    value < knob.lowest ? knob.lowest : knob.highest, ".");
  return value;
}

}  // namespace spyre
