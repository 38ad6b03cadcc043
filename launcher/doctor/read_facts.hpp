#pragma once
// Reads this machine: files of the kernel, limits, disks, programs. Changes nothing but for a control group that is
// made and removed at once, and waits for `python3` no longer than some seconds.

#include <string>
#include <utility>
#include <vector>

#include "launcher/doctor/facts.hpp"

namespace sgd::doctor {

struct FactSources {
  std::vector<std::pair<std::string, std::string>> folders;  ///< What each is, and its path.
  std::string account;                                       ///< Name of the one that asks.
  std::string worker;                                        ///< Path of sgd-worker.
  std::string search_path;                                   ///< PATH, for python3.
};

/// All but what the caller knows: version, certificates, cluster, now_s.
[[nodiscard]] Facts read_facts(const FactSources& sources);

/// "[madvise]" out of "always [madvise] never"; empty where there is none.
[[nodiscard]] std::string chosen_of(const std::string& text);
/// "570.133.20" out of /proc/driver/nvidia/version.
[[nodiscard]] std::string driver_version_of(const std::string& text);
/// The newest CUDA that the driver of this NVML runs, 12080 for 12.8; 0: it does not say. `has_library` tells whether
/// it could be opened.
[[nodiscard]] int newest_cuda(const std::string& library, bool& has_library);

}  // namespace sgd::doctor
