#pragma once
// What becomes of a fact that an agent tells, and how often: a fact is taken once, in its turn, about the live
// generation, from the node whose rank it is about. Everything else changes nothing.

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace sgd::core {

enum class FactVerdict {
  kTaken,
  kRepeated,          ///< Taken before: acknowledged again.
  kEarly,             ///< One before it has not come yet.
  kOtherIncarnation,  ///< Of an agent that was there before, or never.
  kUnknownRun,
  kNotOfRun,         ///< The run is over, or has no rank on that node.
  kOtherGeneration,  ///< Late, or invented.
  kOtherNode,        ///< About a rank of another node.
  kImplausible,      ///< What it claims cannot be (claims.hpp).
};
inline constexpr std::array<std::pair<FactVerdict, const char*>, 9> kFactVerdictNames{{
    {FactVerdict::kTaken, "taken"},
    {FactVerdict::kRepeated, "repeated"},
    {FactVerdict::kEarly, "early"},
    {FactVerdict::kOtherIncarnation, "other_incarnation"},
    {FactVerdict::kUnknownRun, "unknown_run"},
    {FactVerdict::kNotOfRun, "not_of_run"},
    {FactVerdict::kOtherGeneration, "other_generation"},
    {FactVerdict::kOtherNode, "other_node"},
    {FactVerdict::kImplausible, "implausible"},
}};

class FactCounts {
 public:
  void add(FactVerdict verdict) { ++counts_[static_cast<std::size_t>(verdict)]; }
  [[nodiscard]] std::uint64_t of(FactVerdict verdict) const { return counts_[static_cast<std::size_t>(verdict)]; }

 private:
  std::array<std::uint64_t, kFactVerdictNames.size()> counts_{};
};

}  // namespace sgd::core
