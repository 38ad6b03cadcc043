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

struct SgdGlooApi {
  std::uint32_t version;  ///< kGlooAbiVersion.

  /// A group that is not connected; null on failure. `bind_address` is numeric or a host name of this node.
  SgdGlooGroup* (*create)(int rank, int size, const char* bind_address, std::int64_t timeout_ms, SgdGlooError* error);
  /// What the other ranks need to reach this one: printable text, valid until destroy().
  const char* (*address)(SgdGlooGroup* group);
  /// Connects to all others; `addresses` has every rank's text, in rank order.
  int (*connect)(SgdGlooGroup* group, const char* const* addresses, SgdGlooError* error);

  /// Sums in place; the result has equal bits on every rank.
  int (*all_reduce_sum)(SgdGlooGroup* group, float* values, std::size_t count, SgdGlooError* error);
  int (*broadcast)(SgdGlooGroup* group, void* bytes, std::size_t size, int root, SgdGlooError* error);
  /// `out` takes sizes[0] + sizes[1] + ... bytes; sizes[rank] is the size of `bytes`.
  int (*all_gather)(SgdGlooGroup* group, const void* bytes, const std::size_t* sizes, void* out, SgdGlooError* error);
  int (*barrier)(SgdGlooGroup* group, SgdGlooError* error);

  /// Closes every connection: calls in progress and later ones fail, here and at the peers.
  void (*abort)(SgdGlooGroup* group);
  void (*destroy)(SgdGlooGroup* group);
};

}  // extern "C"

namespace sgd::worker {
inline constexpr std::uint32_t kGlooAbiVersion = 1;
inline constexpr const char* kGlooModuleFile = "sgd-gloo.so";
inline constexpr const char* kGlooEntryPoint = "sgd_gloo_api";  ///< const SgdGlooApi* sgd_gloo_api(void).
}  // namespace sgd::worker
