#pragma once
// How much of the cores a control group lets its processes use: docker run --cpus, the CPU limit of a pod. The kernel
// shows them every core all the same, and lets whoever has used up the quota wait.

#include <optional>
#include <string>

namespace sgd::process {

/// CPUs at a time, 0.5 for half of one: the least of our group's and of those above it, version 2 or 1. Nothing: no
/// quota. `proc` and `cgroup` are where those file systems are mounted.
[[nodiscard]] std::optional<double> cpu_quota(const std::string& proc = "/proc",
                                              const std::string& cgroup = "/sys/fs/cgroup");

/// How many can compute at a time without waiting for each other: of so many cores, what the quota leaves in whole
/// CPUs; at least one.
[[nodiscard]] int cpus_within(std::optional<double> quota, int cores);

/// Of this process.
[[nodiscard]] int usable_cpus();

}  // namespace sgd::process
