// How many processors this process may use.
#pragma once

#include <optional>
#include <string>

namespace spyre::card {

/// By its affinity (taskset, batch systems) and the quota of its control groups (containers),
/// whichever is less; at least 1.
int usable_processors();

/// What control groups of either version allow: quota by period, rounded up, the least on the way
/// from this process's group to the root. Nothing without a quota. `root` stands before all paths:
/// for tests.
std::optional<int> processors_of_control_groups(const std::string& root = "");

}  // namespace spyre::card
