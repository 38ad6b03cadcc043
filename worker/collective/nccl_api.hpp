#pragma once
// NCCL's functions that a group of GPUs needs, as a table that is filled at run time: the library comes with LibTorch's
// CUDA part or with the system, and neither it nor its header is needed to build. Names, numbers and the layout of the
// settings are NCCL's (nccl.h), which keeps them for programs built for older versions.
//
// Which library: $SGD_NCCL_LIBRARY, else "libnccl.so.2" as the dynamic linker finds it; one that LibTorch's CUDA part
// has loaded is the same then.

#include <cstddef>
#include <string>

namespace sgd::worker {

inline constexpr const char* kNcclVariable = "SGD_NCCL_LIBRARY";
inline constexpr const char* kNcclLibrary = "libnccl.so.2";
inline constexpr int kNcclVersionMin = 21900;  ///< 2.19.0

namespace nccl {

enum Result : int {
  kSuccess = 0,
  kCudaError = 1,
  kSystemError = 2,
  kInternalError = 3,
  kInvalidArgument = 4,
  kInvalidUsage = 5,
  kRemoteError = 6,
  kInProgress = 7,
};
inline constexpr int kFloat32 = 7;
inline constexpr int kSum = 0;
inline constexpr int kUndefined = -2147483647 - 1;

/// Tells the ranks of a group from other groups' and where its first rank is met.
struct Id {
  char bytes[128];
};

/// ncclConfig_t of 2.18: a library takes that of any version up to its own.
struct Config {
  std::size_t size = sizeof(Config);
  unsigned magic = 0xcafe'beef;
  unsigned version = 21800;
  int blocking = 0;  ///< No call waits: what is not done yet is kInProgress.
  int cga_cluster_size = kUndefined;
  int min_ctas = kUndefined;
  int max_ctas = kUndefined;
  const char* net_name = nullptr;
  int split_share = kUndefined;
};

using Communicator = void*;

}  // namespace nccl

struct NcclApi {
  std::string path;  ///< As it was opened.
  int version = 0;   ///< 22809 for 2.28.9.

  int (*get_version)(int*) = nullptr;
  int (*get_unique_id)(nccl::Id*) = nullptr;
  int (*init)(nccl::Communicator*, int, nccl::Id, int, nccl::Config*) = nullptr;
  int (*async_error)(nccl::Communicator, int*) = nullptr;
  int (*abort)(nccl::Communicator) = nullptr;
  int (*all_reduce)(const void*, void*, std::size_t, int, int, nccl::Communicator, void*) = nullptr;
  const char* (*error_string)(int) = nullptr;
  const char* (*last_error)(nccl::Communicator) = nullptr;
};

/// As people write it, "2.28.9".
[[nodiscard]] std::string nccl_version_text(int version);

/// Takes back that every call shall wait (NCCL_COMM_BLOCKING=1), which counts more than a group's settings: an abort
/// could not end such a call. Best before other threads are there, since it changes the environment.
void keep_nccl_from_waiting();

/// Opens `library` and fills the table. Throws CollectiveSetupError, which names what is missing and what to do.
[[nodiscard]] NcclApi open_nccl(const std::string& library);

/// The library of this process, opened once and kept for ever. Throws likewise.
[[nodiscard]] const NcclApi& load_nccl();

}  // namespace sgd::worker
