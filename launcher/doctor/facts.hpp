#pragma once
// What `sgd-launch doctor` has read of this machine and of the cluster. What could not be read is absent.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "launcher/process/system_calls.hpp"

namespace sgd::doctor {

/// A soft limit and the most it may be raised to; "unlimited" is kUnlimited.
struct Limit {
  std::uint64_t soft = 0;
  std::uint64_t hard = 0;
};
inline constexpr std::uint64_t kUnlimited = ~std::uint64_t{0};

/// A folder that is written to.
struct Disk {
  std::string what;  ///< "runs"
  std::string path;  ///< The folder, or the nearest one above it that exists.
  std::uint64_t total_bytes = 0;
  std::uint64_t free_bytes = 0;
  std::optional<std::uint64_t> free_files;  ///< Nothing: the file system has no limit of its own.
  bool is_writable = false;
};

struct Certificate {
  std::string whose;          ///< "your identity", "the coordinator's identity"
  std::string path;           ///< Of its file.
  std::string fix;            ///< The command that makes it again.
  std::string trouble;        ///< Why it cannot be used; empty: it can be read.
  std::int64_t issued_s = 0;  ///< Unix time.
  std::int64_t expires_s = 0;
  bool is_renewed = false;  ///< By its daemon, by itself.
};

struct Python {
  std::string program;      ///< Its path; empty: there is none.
  std::string version;      ///< "3.11.2"
  std::string torch;        ///< Version of PyTorch; empty: not installed.
  std::string cuda;         ///< Toolkit that PyTorch was built for, "12.8"; empty: none.
  std::string trouble;      ///< Why it did not answer.
  bool is_managed = false;  ///< By the system, and no venv is active: its pip refuses to install (PEP 668).
};

struct Nvidia {
  bool has_devices = false;  ///< /dev/nvidia0 and the like.
  bool has_library = false;  ///< libnvidia-ml.so.1 can be opened.
  std::string driver;        ///< "570.133.20"; empty: not known.
  int cuda = 0;              ///< The newest CUDA that the driver runs, 12080 for 12.8; 0: not known.
};

struct Node {
  std::string name;
  std::string version;
  std::string state;
  std::string reason;
};

struct Cluster {
  std::string address;
  std::string trouble;  ///< Why it does not answer; empty: it does.
  std::string version;
  std::optional<double> clock_ahead_s;  ///< Of the coordinator's clock, against this machine's.
  double round_trip_s = 0;              ///< So uncertain is that.
  std::vector<Node> nodes;
};

struct Facts {
  std::string version;  ///< Of this sgd-launch.
  std::string account;
  bool is_root = false;
  int cores = 0;
  std::optional<Limit> files;          ///< ulimit -n
  std::optional<Limit> locked_bytes;   ///< ulimit -l
  std::optional<Limit> processes;      ///< ulimit -u
  std::optional<int> group_processes;  ///< pids.max of our control group; nothing: unlimited.
  std::optional<Limit> core_bytes;     ///< ulimit -c
  std::optional<Disk> shared_memory;   ///< /dev/shm
  std::vector<Disk> disks;
  bool has_cgroup2 = false;
  bool can_make_cgroup = false;
  std::string cgroup;  ///< Our own group's folder.
  std::string core_pattern;
  std::optional<process::SystemTrouble> system_trouble;  ///< What the kernel, or a container's filter, refuses.
  std::string huge_pages;                                ///< "always", "madvise", "never"
  std::optional<int> overcommit;                         ///< vm.overcommit_memory
  std::optional<int> panic_on_oom;                       ///< vm.panic_on_oom
  std::optional<int> oom_score_adjust;                   ///< Of this process, which its children get.
  Python python;
  std::string worker;          ///< Path of sgd-worker.
  std::string worker_trouble;  ///< Empty: it can be started.
  Nvidia nvidia;
  std::vector<Certificate> certificates;
  std::optional<Cluster> cluster;
  std::int64_t now_s = 0;  ///< Unix time, when all this was read.
};

}  // namespace sgd::doctor
