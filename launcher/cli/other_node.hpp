#pragma once
// The launcher of each machine but the first one: its agent takes part, and it waits for the end of the run, whose exit
// code is its own.
//
//   first machine unknown -- answers --> joined -- a run is there --> follows it -- ended --> leaves
//                                          └-- gone for kHeadLostLimit, or this agent is refused --> ends

#include <optional>
#include <string>

#include "launcher/cli/node_launcher.hpp"

namespace sgd::cli {

class OtherNode {
 public:
  /// `launcher` has begun, not as the first one.
  explicit OtherNode(NodeLauncher& launcher) : launcher_(launcher) {}

  /// The exit code.
  [[nodiscard]] int take_part();

 private:
  using Json = nlohmann::ordered_json;

  [[nodiscard]] int refused(const rendezvous::DaemonChildren::Refusal& refusal) const;
  [[nodiscard]] std::optional<int> follow_run(ClusterLine& line);
  void look_for_run(const Json& answer);
  [[nodiscard]] std::optional<int> on_lost(const std::string& why);
  [[nodiscard]] std::optional<int> on_signal(ClusterLine& line, int signal);
  void pass_signal(ClusterLine& line, int signal);
  [[nodiscard]] int leave(ClusterLine& line, int signal);

  NodeLauncher& launcher_;
  std::string run_;  ///< Once there is one.
  bool was_there_ = false;
  TimePoint lost_at_{};  ///< Since when the first machine does not answer; none: it does.
  int signals_ = 0;
};

}  // namespace sgd::cli
