#include "host/environment.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <optional>

#include "host/processors.h"
#include "spyre/card.h"

namespace spyre::card {

namespace {

std::optional<std::string> variable_text(const char* variable) {
  const char* text = std::getenv(variable);
  if (!text || !*text) return std::nullopt;
  return text;
}

[[noreturn]] void refuse(std::string_view variable, std::string_view text,
                         const std::string& legal) {
  throw Error(ErrorCode::invalid_argument,
              std::string(variable) + "='" + std::string(text) + "' is not valid: " + legal);
}

/// The power of two behind a unit, or nothing if it is not a unit.
std::optional<int> unit_shift(std::string_view unit) {
  if (unit.empty() || unit == "B" || unit == "b") return 0;
  const std::string_view units = "KMGT";
  const auto letter = units.find(static_cast<char>(unit[0] & ~0x20));  // upper case
  if (letter == std::string_view::npos) return std::nullopt;
  const std::string_view rest = unit.substr(1);
  if (!rest.empty() && rest != "B" && rest != "iB" && rest != "b" && rest != "ib")
    return std::nullopt;
  return 10 * (static_cast<int>(letter) + 1);
}

std::uint64_t bytes_from(const knobs::Bytes& knob) {
  const auto text = variable_text(knob.variable);
  return text ? parse_bytes(knob.variable, *text, knob.lowest, knob.highest) : knob.otherwise;
}

int number_from(const knobs::Number& knob) {
  const auto text = variable_text(knob.variable);
  if (!text) return static_cast<int>(knob.otherwise);
  int number = 0;
  const char* const end = text->data() + text->size();
  const auto [rest, problem] = std::from_chars(text->data(), end, number);
  if (problem != std::errc() || rest != end || number < knob.lowest || number > knob.highest)
    refuse(knob.variable, *text,
           "give a number from " + std::to_string(knob.lowest) + " to " +
               std::to_string(knob.highest));
  return number;
}

}  // namespace

std::uint64_t parse_bytes(std::string_view variable, std::string_view text, std::uint64_t lowest,
                          std::uint64_t highest) {
  std::uint64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, problem] = std::from_chars(text.data(), end, number);
  const auto shift = unit_shift({rest, static_cast<std::size_t>(end - rest)});
  const bool fits = problem == std::errc() && shift && number <= (UINT64_MAX >> *shift);
  const std::uint64_t bytes = fits ? number << *shift : 0;
  if (!fits || bytes < lowest || bytes > highest)
    refuse(variable, text,
           "give a number of bytes from " + short_bytes_text(lowest) + " to " +
               short_bytes_text(highest) + ", such as 131072, 64M or 2G");
  return bytes;
}

std::string short_bytes_text(std::uint64_t bytes) {
  const char* const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
  int unit = 0;
  double value = static_cast<double>(bytes);
  for (; value >= 1024 && unit < 4; ++unit) value /= 1024;
  char text[32];
  std::snprintf(text, sizeof text, value == static_cast<int>(value) ? "%.0f %s" : "%.2f %s", value,
                units[unit]);
  return text;
}

std::string bytes_text(std::uint64_t bytes) {
  if (bytes < 1024) return short_bytes_text(bytes);
  return short_bytes_text(bytes) + " (" + std::to_string(bytes) + " bytes)";
}

int soft_cards() { return number_from(knobs::kSoftCards); }

int card_threads() {
  const int wanted = number_from(knobs::kCardThreads);
  return wanted ? wanted : usable_processors();
}

std::size_t choice(const knobs::Choice& knob) {
  const auto text = variable_text(knob.variable);
  if (!text) return knob.otherwise;
  const auto found = std::find(knob.words.begin(), knob.words.end(), *text);
  if (found != knob.words.end()) return static_cast<std::size_t>(found - knob.words.begin());
  std::string list;
  for (const std::string_view word : knob.words)
    list += (list.empty() ? "" : ", ") + std::string(word);
  refuse(knob.variable, *text, "it is one of " + list);
}

bool card_check() { return choice(knobs::kCardCheck) == 1; }

std::uint64_t card_memory_bytes() { return bytes_from(knobs::kCardMemory); }

std::uint64_t card_warm_bytes() { return bytes_from(knobs::kCardWarmBytes); }

}  // namespace spyre::card
