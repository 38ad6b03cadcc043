#pragma once
// What ranks of a run on a cluster say, as a run on this machine shows it: the job's prefix, the time at which a line
// has come, JSON. It comes from the ranks' logs, in which their two streams are one: stdout. Equal lines are not
// combined, since each rank's come when its node brings them.

#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "common/json/nlohmann.hpp"
#include "launcher/cli/rank_lines.hpp"

namespace sgd::cli {

class RemoteLines {
 public:
  explicit RemoteLines(LineStyle style);
  RemoteLines(const RemoteLines&) = delete;
  RemoteLines& operator=(const RemoteLines&) = delete;

  /// Which rank is on which node, events tell.
  void on_event(const nlohmann::ordered_json& event);
  /// Whole lines of a log, "logs/gen-0001/rank-0003.log", for our stdout. `now` and `unix_s`: as of RankLines.
  [[nodiscard]] std::string shown(TimePoint now, double unix_s, const std::string& file, std::string_view lines);

 private:
  [[nodiscard]] std::string node_of(Rank rank) const;
  [[nodiscard]] int local_rank(Rank rank) const;

  std::map<Rank, std::string> nodes_;  ///< Of the newest generation.
  Generation generation_ = 0;          ///< That one.
  RankLines lines_;
};

/// Whose log it is.
[[nodiscard]] Rank rank_of_log(const std::string& file);

}  // namespace sgd::cli
