#pragma once
// What a rank comes to a collective for. All ranks must come for the same: one that has left its loop while another
// averages gradients would else get numbers that are none of its own. Whatever moves the bytes compares calls where the
// ranks meet anyway, and each rank throws CollectiveMismatch, with the words that are made here.

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

namespace sgd::worker {

enum class Operation : std::uint32_t {
  kAllReduce = 1,  ///< `first`, `second`: the first gradient, and how many.
  kAgree,
  kBroadcast,  ///< `first`, `second`: the rank that has the bytes, and how many.
  kAllGather,  ///< Sizes may differ.
  kBarrier,
  kTell,  ///< Nothing but to tell of a mismatch that was found elsewhere.
};

struct Call {
  Operation operation = Operation::kBarrier;
  std::uint64_t first = 0;
  std::uint64_t second = 0;

  friend bool operator==(const Call&, const Call&) = default;
};

/// As the interface names it, for example "all_reduce".
[[nodiscard]] const char* name_of(Operation operation);

inline constexpr int kFingerprintBits = 48;
/// A number that differs (all but surely) between different calls, below 2^kFingerprintBits.
[[nodiscard]] constexpr std::uint64_t fingerprint(const Call& call) {
  std::uint64_t word = 0;
  for (const std::uint64_t part : {static_cast<std::uint64_t>(call.operation), call.first, call.second}) {
    word = (word + part) * 0x9e37'79b9'7f4a'7c15;
    word = (word ^ (word >> 32)) * 0xd6e8'feb8'6659'fd93;
    word ^= word >> 29;
  }
  return word >> (64 - kFingerprintBits);
}

/// Who came for what.
struct Caller {
  Call call;
  std::vector<int> ranks;
};
/// Names operations and ranks, and what to do about it. `callers` do not all have the same call.
[[nodiscard]] std::string mismatch_text(const std::vector<Caller>& callers);

}  // namespace sgd::worker
