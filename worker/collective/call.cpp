#include "worker/collective/call.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "common/base/assert.hpp"

namespace sgd::worker {
namespace {

constexpr std::size_t kNamedRanks = 16;

/// With `detailed`, what tells two calls of one operation apart.
std::string words_of(const Call& call, bool detailed) {
  const std::string name = name_of(call.operation);
  switch (call.operation) {
    case Operation::kAllReduce:
      if (!detailed) return name + " (average of gradients)";
      return fmt::format("{} (average of {} gradients from {})", name, call.second, call.first);
    case Operation::kAgree:
      return name + " (end of a batch or of the loop)";
    case Operation::kBroadcast:
      if (!detailed) return name;
      return fmt::format("{} ({} bytes from rank {})", name, call.second, call.first);
    case Operation::kAllGather:
    case Operation::kBarrier:
    case Operation::kTell:
      return name;
  }
  SGD_ASSERT(false);
  return {};
}

std::string words_of(std::vector<int> ranks) {
  std::sort(ranks.begin(), ranks.end());
  std::string text;
  for (std::size_t i = 0; i < std::min(ranks.size(), kNamedRanks); ++i)
    text += fmt::format("{}{}", text.empty() ? "rank " : ", ", ranks[i]);
  if (ranks.size() > kNamedRanks) text += fmt::format(" and {} more", ranks.size() - kNamedRanks);
  return text;
}

/// Equal calls together, in the order of their lowest ranks.
std::vector<Caller> grouped(const std::vector<Caller>& callers) {
  std::vector<Caller> groups;
  for (const Caller& caller : callers) {
    const auto same = [&caller](const Caller& group) { return group.call == caller.call; };
    const auto found = std::find_if(groups.begin(), groups.end(), same);
    if (found == groups.end())
      groups.push_back(caller);
    else
      found->ranks.insert(found->ranks.end(), caller.ranks.begin(), caller.ranks.end());
  }
  const auto lowest = [](const Caller& group) { return *std::min_element(group.ranks.begin(), group.ranks.end()); };
  std::sort(groups.begin(), groups.end(), [&](const Caller& a, const Caller& b) { return lowest(a) < lowest(b); });
  return groups;
}

}  // namespace

const char* name_of(Operation operation) {
  switch (operation) {
    case Operation::kAllReduce:
      return "all_reduce";
    case Operation::kAgree:
      return "agree";
    case Operation::kBroadcast:
      return "broadcast";
    case Operation::kAllGather:
      return "all_gather";
    case Operation::kBarrier:
      return "barrier";
    case Operation::kTell:
      return "tell";
  }
  return "?";  // A number from another process.
}

std::string mismatch_text(const std::vector<Caller>& callers) {
  const std::vector<Caller> groups = grouped(callers);
  std::string text;
  for (const Caller& group : groups) {
    const auto alike = [&group](const Caller& other) { return other.call.operation == group.call.operation; };
    const bool detailed = std::count_if(groups.begin(), groups.end(), alike) > 1;
    text += fmt::format("{}{} to {}", text.empty() ? "" : ", ", words_of(group.ranks), words_of(group.call, detailed));
  }
  return "the ranks came to different collectives: " + text +
         ". Every rank must do the same number of batches and updates, in the same order";
}

}  // namespace sgd::worker
