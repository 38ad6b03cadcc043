#pragma once
// The border between the worker and the Gloo module: plain C functions in a table, so that no
// C++ symbol, type or exception of Gloo crosses it. The module exports one name, kGlooEntryPoint.
//
// Functions that return int give 0, or -1 with a text in `error` (always terminated). After a
// failure only abort() and destroy() may be called. Members of a group are called by one thread
// at a time, except abort(), which may come from any other thread until destroy().

#include <cstddef>
#include <cstdint>

extern "C" {

/// One group of ranks; owned by the module.
struct SgdGlooGroup;

/// Where a failing function leaves its text.
struct SgdGlooError {
  char text[512];
};

/// What a rank says to all others at the beginning of an operation.
struct SgdGlooHeader {
  std::uint32_t operation;  ///< With `first` and `second` what it came for: equal on all ranks, or nothing is done.
  std::uint32_t control;
  std::uint64_t first;
  std::uint64_t second;
  std::uint64_t bytes;  ///< Of its message, where sizes may differ.
  char note[480];       ///< Always terminated; it travels only if it is not empty.
};

struct SgdGlooApi {
  std::uint32_t version;  ///< kGlooAbiVersion.

  /// A group that is not connected; null on failure. `bind_address` is numeric or a host name of this node.
  SgdGlooGroup* (*create)(int rank, int size, const char* bind_address, std::int64_t timeout_ms, SgdGlooError* error);
  /// What the other ranks need to reach this one: printable text, valid until destroy().
  const char* (*address)(SgdGlooGroup* group);
  /// Connects to all others; `addresses` has every rank's text, in rank order.
  int (*connect)(SgdGlooGroup* group, const char* const* addresses, SgdGlooError* error);

  /// `all` takes every rank's header, in rank order. Returns when every rank has called it, or all_reduce_sum().
  int (*exchange_headers)(SgdGlooGroup* group, const SgdGlooHeader* own, SgdGlooHeader* all, SgdGlooError* error);
  /// meet(), and if all came for the same, sums in place in rank order: equal bits on every rank, whatever the count.
  /// `finite` becomes 1 if all sums are, on every rank, else 0.
  int (*all_reduce_sum)(SgdGlooGroup* group, const SgdGlooHeader* own, SgdGlooHeader* all, float* values,
                        std::size_t count, int* finite, SgdGlooError* error);
  /// These two after a meet() in which all came for it.
  int (*broadcast)(SgdGlooGroup* group, void* bytes, std::size_t size, int root, SgdGlooError* error);
  /// `out` takes sizes[0] + sizes[1] + ... bytes; sizes[rank] is the size of `bytes`.
  int (*all_gather)(SgdGlooGroup* group, const void* bytes, const std::size_t* sizes, void* out, SgdGlooError* error);

  /// Closes every connection: calls in progress and later ones fail, here and at the peers.
  void (*abort)(SgdGlooGroup* group);
  void (*destroy)(SgdGlooGroup* group);
};

}  // extern "C"

namespace sgd::worker {
inline constexpr std::uint32_t kGlooAbiVersion = 2;
inline constexpr const char* kGlooModuleFile = "sgd-gloo.so";
inline constexpr const char* kGlooEntryPoint = "sgd_gloo_api";  ///< const SgdGlooApi* sgd_gloo_api(void).
}  // namespace sgd::worker
