#pragma once
// The launcher of the first machine of several: waits until enough of them are there, and stays for a moment when the
// run has ended.
//
//   coordinator starts -- listens --> nodes connect -- enough, or all --> the run -- ended --> the others leave
//                     └- its port is taken, and nobody has said who is first: this is another one

#include <map>
#include <optional>
#include <string>

#include "launcher/cli/node_launcher.hpp"

namespace sgd::cli {

/// Why a run with `here` workers on each node is not what the launchers were asked for: `slots` of the nodes, by name.
/// Fewer are no harm where the run begins with what there is. Empty: it is.
[[nodiscard]] std::string uneven_nodes(const std::map<std::string, int>& slots, int here, bool is_elastic);

class FirstNode {
 public:
  /// `launcher` has begun as the first one.
  explicit FirstNode(NodeLauncher& launcher) : launcher_(launcher) {}

  enum class Gathered { kEnough, kIsAnother, kEnded };
  /// kEnded: exit_code() says how.
  [[nodiscard]] Gathered gather();
  [[nodiscard]] int exit_code() const { return exit_code_; }
  /// The others ask how the run has ended before they go.
  void linger();

 private:
  [[nodiscard]] Gathered end(int exit_code);
  [[nodiscard]] bool gives_way(const std::string& why) const;
  [[nodiscard]] std::optional<Gathered> look_for_nodes(ClusterLine& line);
  [[nodiscard]] std::string missing(const std::map<std::string, int>& there) const;
  [[nodiscard]] std::string refused_twin();

  NodeLauncher& launcher_;
  std::optional<TimePoint> last_call_;  ///< It has enough, and waits so long for more.
  bool is_serving_ = false;             ///< Its coordinator has the port.
  int exit_code_ = 0;
};

}  // namespace sgd::cli
