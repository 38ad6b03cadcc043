#pragma once
// The end of what a dead keeper has left, in passes between which the event loop goes on: a process that a disk holds
// dies when the disk lets it, and its node must not be silent until then.
//
//   a control group: the kernel knows who is in it · our child: its orphans have become ours, beside the children that
//   we have started ourselves (process/own_children.hpp), which are spared · a mark: who bears it, or is of its session

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include <boost/asio/io_context.hpp>

#include "launcher/agent/keeper_process.hpp"
#include "launcher/net/timer.hpp"
#include "launcher/process/cgroup_leaf.hpp"
#include "launcher/process/process_tree.hpp"
#include "launcher/process/strays.hpp"

namespace sgd::agent {

struct DeadKeeper {
  KeeperProcess::ReattachOptions reattach;
  bool was_our_child = false;
  int pid = 0;
  std::optional<process::CgroupLeaf> leaf = {};
};

class StrayClearing {
 public:
  /// Then what is left is told, and the run goes on.
  static constexpr Duration kLimit = std::chrono::seconds(6);
  static constexpr Duration kPassInterval = std::chrono::milliseconds(10);

  struct Handlers {
    /// Children that others have started and that are ours now.
    std::function<std::set<pid_t>()> spared;
    /// Last; error: who is left. `killed`: of those that bore the mark.
    std::function<void(const Status& cleared, int killed)> on_done;
  };

  StrayClearing(boost::asio::io_context& io, DeadKeeper dead, Handlers handlers);
  void start();
  Duration limit = kLimit;
  [[nodiscard]] const DeadKeeper& dead() const { return dead_; }

 private:
  void arm(Duration wait);
  void pass();
  /// Who is left, in words; empty: nobody was found.
  [[nodiscard]] std::string look();
  [[nodiscard]] std::string look_for_orphans();
  void end(const Status& cleared);

  DeadKeeper dead_;
  Handlers handlers_;
  net::Timer timer_;
  process::TreeKiller orphans_;
  process::StrayKiller strays_;
  int empty_passes_ = 0;
  TimePoint deadline_{};
};

}  // namespace sgd::agent
