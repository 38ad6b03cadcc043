#pragma once
// When the files of a run that is over are whole: every node that had ranks of it has sent everything, or cannot. A
// node that is gone, and one that takes too long, is not waited for; what it still sends later is taken all the same.

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>

#include <boost/asio/io_context.hpp>

#include "common/base/ids.hpp"
#include "common/base/time.hpp"
#include "common/json/nlohmann.hpp"
#include "launcher/net/timer.hpp"

namespace sgd::coordinator {

class FileCompletion {
 public:
  /// From the end of a run until its files count as whole.
  static constexpr Duration kLimit = std::chrono::seconds(10);

  struct Handlers {
    std::function<bool(const NodeId& node)> is_connected;
    /// `is_whole`: nothing is on its way that its nodes, as far as they are here, have of it.
    std::function<void(const RunId& run, bool is_whole)> on_settled;
    /// That have had ranks of it.
    std::function<std::set<NodeId>(const RunId& run)> nodes_of;
  };

  /// `io` must outlive it.
  FileCompletion(boost::asio::io_context& io, Handlers handlers);

  /// A line of the run's events.jsonl.
  void on_event(const RunId& run, const nlohmann::ordered_json& event);
  void on_all_sent(const RunId& run, const NodeId& node);
  /// The run is over.
  void on_over(const RunId& run);

 private:
  struct Waiting {
    std::set<NodeId> nodes;
    std::unique_ptr<net::Timer> timer;
    TimePoint deadline;
  };
  void look(const RunId& run);

  boost::asio::io_context& io_;
  Handlers handlers_;
  std::map<RunId, std::set<NodeId>> sent_;  ///< Since the node's last rank was started.
  std::map<RunId, Waiting> waiting_;
};

}  // namespace sgd::coordinator
