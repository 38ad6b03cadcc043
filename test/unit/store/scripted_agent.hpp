#pragma once
// A node whose ranks play a script, over any AgentLink: it keeps its facts until they are acknowledged, tells
// everything again when it is connected anew, and obeys what it is told, as an agent does. No process is started.
//
// A generation's script, for each rank: started, ready, first step, reports of all epochs, exit 0. What was reported by
// an earlier generation is reported again, as after a resume from the beginning. A command starts and exits.

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "common/base/time.hpp"
#include "launcher/net/agent_link.hpp"

namespace sgd::test {

struct Script {
  int epochs = 2;
  int batches = 3;        ///< Reports in the middle of an epoch; one more ends its training, and one its validation.
  int killed_after = -1;  ///< Facts of the first generation's rank 0 before it dies of signal 9; -1: it does not.
  Duration pace = std::chrono::milliseconds(1);  ///< Between two facts of a node.
  std::size_t window = 8;  ///< Facts of a node that may wait for their acknowledgement: a slow disk slows it down.

  [[nodiscard]] int lines() const { return epochs * (batches + 2); }  ///< Of metrics.jsonl in the end.
};

class ScriptedAgent {
 public:
  using ScriptOf = std::function<Script(const RunId& run)>;
  ScriptedAgent(boost::asio::io_context& io, std::unique_ptr<net::AgentLink> link, NodeId node, int slots,
                Incarnation incarnation, ScriptOf script_of);

  void start();
  void stop() { timer_.cancel(); }
  [[nodiscard]] std::size_t unacknowledged() const { return outbox_.size(); }
  [[nodiscard]] std::int64_t acknowledged() const { return acknowledged_; }

 private:
  struct Held {
    Generation started = 0;
    Generation cleared = 0;
    Generation newest = 0;
    GenerationUid started_uid = 0;
    std::deque<cluster::FactBody> script;
  };
  [[nodiscard]] cluster::NodeState state() const;
  void tell_all();
  void on_message(const cluster::ToAgent& message);
  void on_desired(const cluster::DesiredRun& desired);
  [[nodiscard]] std::deque<cluster::FactBody> script_of(const cluster::DesiredRun& desired) const;
  void add_fact(const RunId& run, Generation generation, GenerationUid uid, cluster::FactBody body);
  void tick();

  std::unique_ptr<net::AgentLink> link_;
  NodeId node_;
  int slots_;
  Incarnation incarnation_;
  ScriptOf script_of_;
  boost::asio::steady_timer timer_;
  std::map<RunId, Held> runs_;
  std::deque<cluster::Fact> outbox_;
  std::int64_t sequence_ = 0;
  std::int64_t acknowledged_ = 0;
  int ticks_ = 0;
};

}  // namespace sgd::test
