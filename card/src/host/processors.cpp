#include "host/processors.h"

#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <sstream>
#include <string_view>
#include <thread>
#include <vector>

namespace spyre::card {

namespace {

/// Processors in the affinity mask of this thread, which others that it starts inherit.
std::optional<int> processors_of_affinity() {
  // The kernel refuses masks shorter than its own; there are hosts with more than CPU_SETSIZE.
  for (std::size_t most = CPU_SETSIZE; most <= (1 << 20); most *= 2) {
    std::vector<cpu_set_t> mask(CPU_ALLOC_SIZE(most) / sizeof(cpu_set_t) + 1);
    const std::size_t bytes = mask.size() * sizeof(cpu_set_t);
    if (sched_getaffinity(0, bytes, mask.data()) == 0) return CPU_COUNT_S(bytes, mask.data());
    if (errno != EINVAL) break;
  }
  return std::nullopt;
}

/// Whether a list like "cpu,cpuacct" has the word.
bool has_word(const std::string& list, std::string_view word) {
  std::istringstream words(list);
  for (std::string each; std::getline(words, each, ',');)
    if (each == word) return true;
  return false;
}

/// The groups of this process that may have a quota: one of version 2, one of version 1.
struct Groups {
  std::optional<std::string> unified, cpu;
};

Groups groups_of_process(const std::string& root) {
  Groups groups;
  std::ifstream lines(root + "/proc/self/cgroup");
  for (std::string line; std::getline(lines, line);) {  // number:controllers:path
    const auto first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    if (controllers.empty()) groups.unified = line.substr(second + 1);
    if (has_word(controllers, "cpu")) groups.cpu = line.substr(second + 1);
  }
  return groups;
}

std::optional<int> rounded_up(double quota, double period) {
  if (!(quota > 0 && period > 0)) return std::nullopt;
  return std::max(1, static_cast<int>(std::min(1e6, (quota + period - 1) / period)));
}

std::optional<int> quota_v2(const std::string& directory) {
  std::ifstream file(directory + "/cpu.max");  // "max 100000" or "150000 100000"
  double quota = 0, period = 0;
  if (!(file >> quota >> period)) return std::nullopt;
  return rounded_up(quota, period);
}

std::optional<int> quota_v1(const std::string& directory) {
  std::ifstream quota_file(directory + "/cpu.cfs_quota_us");  // -1: none
  std::ifstream period_file(directory + "/cpu.cfs_period_us");
  double quota = 0, period = 0;
  if (!(quota_file >> quota) || !(period_file >> period)) return std::nullopt;
  return rounded_up(quota, period);
}

/// The least quota of the group and of those above it that the mount shows.
template <class Quota>
std::optional<int> least_quota(const std::string& mount_point, const std::string& mounted_group,
                               std::string group, const Quota& quota) {
  // A container may see a part of the hierarchy, with its own group for the root of it.
  if (mounted_group != "/" && (group + '/').starts_with(mounted_group + '/'))
    group.erase(0, mounted_group.size());
  std::optional<int> least;
  for (;;) {
    while (!group.empty() && group.back() == '/') group.pop_back();
    if (const auto here = quota(mount_point + group))
      least = std::min(least.value_or(*here), *here);
    if (group.empty()) return least;
    group.erase(group.rfind('/') == std::string::npos ? 0 : group.rfind('/'));
  }
}

}  // namespace

std::optional<int> processors_of_control_groups(const std::string& root) {
  const Groups groups = groups_of_process(root);
  std::optional<int> least;
  const auto take = [&](const std::optional<int>& quota) {
    if (quota) least = std::min(least.value_or(*quota), *quota);
  };
  std::ifstream mounts(root + "/proc/self/mountinfo");
  for (std::string line; std::getline(mounts, line);) {
    // id parent major:minor root point options [optional fields] - type source super-options
    std::istringstream words(line);
    std::string skipped, group, point, type, options;
    words >> skipped >> skipped >> skipped >> group >> point;
    while (words >> skipped && skipped != "-") continue;
    words >> type >> skipped >> options;
    if (type == "cgroup2" && groups.unified)
      take(least_quota(root + point, group, *groups.unified, quota_v2));
    if (type == "cgroup" && groups.cpu && has_word(options, "cpu"))
      take(least_quota(root + point, group, *groups.cpu, quota_v1));
  }
  return least;
}

int usable_processors() {
  const int processors = processors_of_affinity().value_or(
      std::max(1, static_cast<int>(std::thread::hardware_concurrency())));
  return std::min(processors, processors_of_control_groups().value_or(processors));
}

}  // namespace spyre::card
