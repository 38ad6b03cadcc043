#include "launcher/cli/remote_lines.hpp"

#include <algorithm>
#include <cstdlib>
#include <utility>
#include <vector>

#include "common/json/lenient.hpp"

namespace sgd::cli {

RemoteLines::RemoteLines(LineStyle style)
    : lines_(
          [&] {
            style.ranks = 1;
            style.host_of = [this](Rank rank) { return node_of(rank); };
            return std::move(style);
          }(),
          [this](Rank rank) { return local_rank(rank); }) {}

void RemoteLines::on_event(const nlohmann::ordered_json& event) {
  if (read_or(event, "event", "") != "worker_started") return;
  const auto generation = read_or(event, "generation", Generation{0});
  if (generation != std::exchange(generation_, generation)) nodes_.clear();
  nodes_[read_or(event, "rank", 0)] = read_or(event, "node", "");
}

std::string RemoteLines::shown(TimePoint now, double unix_s, const std::string& file, std::string_view lines) {
  keeper::OutputHead head;
  head.rank = rank_of_log(file);
  std::vector<RankText> texts;
  lines_.add(now, unix_s, head, lines, texts);
  lines_.flush(now, true, texts);  // Nobody comes back for what waits: parts of a log are acknowledged one by one.
  std::string text;
  for (const RankText& piece : texts) text += piece.text;
  return text;
}

std::string RemoteLines::node_of(Rank rank) const {
  const auto node = nodes_.find(rank);
  return node == nodes_.end() ? std::string() : node->second;
}

/// Ranks of a node are placed in order.
int RemoteLines::local_rank(Rank rank) const {
  const std::string node = node_of(rank);
  return static_cast<int>(
      std::count_if(nodes_.begin(), nodes_.lower_bound(rank), [&](const auto& other) { return other.second == node; }));
}

Rank rank_of_log(const std::string& file) {
  constexpr std::size_t kFront = sizeof "/rank-" - 1;
  return std::atoi(file.c_str() + std::min(file.rfind('/') + kFront, file.size()));
}

}  // namespace sgd::cli
