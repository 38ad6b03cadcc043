#pragma once
// The launcher of each machine but the first one: its agent takes part, and it waits for the end of the run, whose exit
// code is its own.
//
//   first machine unknown -- answers --> joined -- a run is there --> follows it -- ended --> leaves
//            ^  │                        │ ^                          │
//            └--┘                        │ └--- node 0 is a new one --┘
//     its run has ended                  └-- gone for kHeadLostLimit, or this agent is refused --> ends
//
// The agent is started when it joins, so a run that needs this machine begins later: one that is over by then is of
// launchers before, and its first machine is about to go.

#include <optional>
#include <string>

#include "common/job/spec.hpp"
#include "launcher/cli/node_launcher.hpp"
#include "launcher/cli/own_output.hpp"

namespace sgd::cli {

class OtherNode {
 public:
  /// `launcher` has begun, not as the first one.
  OtherNode(NodeLauncher& launcher, const job::JobSpec& job) : launcher_(launcher), job_(job) {}

  /// The exit code.
  [[nodiscard]] int take_part();

 private:
  using Json = nlohmann::ordered_json;

  [[nodiscard]] int follow(ClusterLine& line);
  void show_rest(ClusterLine& line, Console& console, OwnOutput& output);
  void print_ending() const;
  [[nodiscard]] int refused(const rendezvous::DaemonChildren::Refusal& refusal) const;
  [[nodiscard]] std::optional<int> follow_run(ClusterLine& line);
  [[nodiscard]] std::optional<int> look_for_run(const Json& answer);
  void wait_for_run(const std::string& what);
  [[nodiscard]] std::optional<int> on_lost(const std::string& why);
  [[nodiscard]] std::optional<int> on_signal(ClusterLine& line, int signal);
  void pass_signal(ClusterLine& line, int signal);
  [[nodiscard]] int leave(ClusterLine& line, int signal);

  NodeLauncher& launcher_;
  const job::JobSpec& job_;
  std::string run_;  ///< Once there is one.
  bool was_there_ = false;
  bool has_joined_ = false;
  std::string stranger_;  ///< Why who answered there was not trusted; kept, since it may give up before us.
  TimePoint lost_at_{};   ///< Since when the first machine does not answer; none: it does.
  int signals_ = 0;
  bool is_settled_ = false;  ///< The ranks here have ended as they were to.
  std::string ending_;       ///< What is said at last.
  bool has_succeeded_ = false;
};

}  // namespace sgd::cli
