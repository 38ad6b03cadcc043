#pragma once
// One agent of a simulated cluster: the agent's own machine and the agent's own link over TLS, as AgentShell puts them
// together, with a keeper and workers that are only said to exist. Ranks "start" at once, may give one value to an
// exchange, and "run" until they are told to end, so that what a coordinator spends on a node is real and what a node
// spends on ranks is nothing.
//
//   coordinator <══ TLS ══> AgentLink ── events ──> core::Agent ── commands ──> AgentLink | played keeper

#include <map>
#include <memory>
#include <optional>
#include <set>

#include <boost/asio/io_context.hpp>

#include "launcher/core/agent.hpp"
#include "launcher/net/tcp_link.hpp"
#include "launcher/net/wakeup_timer.hpp"

namespace sgd::bench {

/// Of all agents of one process together.
struct Counts {
  int connected = 0;     ///< Now.
  long connections = 0;  ///< Made.
  long lost = 0;         ///< Connections that had been made, and ended.
  long failures = 0;     ///< Attempts that came to nothing.
  long beats = 0;        ///< Heartbeats sent.
  long ranks_started = 0;
  long ranks_ended = 0;
  long values = 0;                      ///< Of exchanges, that ranks have got.
  std::map<std::string, long> reasons;  ///< Of failures and losses.
};

class SimulatedAgent {
 public:
  /// `io`, `buffer` and `counts` must outlive it. `value_bytes`: of what each rank gives to an exchange when it starts;
  /// 0: nothing.
  SimulatedAgent(boost::asio::io_context& io, net::ReadBuffer& buffer, const net::Address& coordinator,
                 core::AgentFacts facts, std::shared_ptr<const net::TlsContext> tls, Counts& counts,
                 std::size_t value_bytes = 0);

  void start();
  /// False: it has none.
  bool kill_ranks();

 private:
  /// What a run's keeper would have running.
  struct Played {
    Generation generation = 0;
    std::map<Rank, int> pids;
  };

  void on_event(const core::AgentEvent& event);
  void carry_out(core::AgentCommand command);
  void play(const RunId& run, const keeper::ToKeeper& order);
  void end_ranks(const RunId& run, Played& played, int signal);
  void later(core::AgentEvent event);
  void exchange(const RunId& run, const keeper::Spawn& spawn);
  void say(const RunId& run, keeper::FromKeeper message);

  boost::asio::io_context& io_;
  Counts& counts_;
  core::Agent core_;
  std::unique_ptr<net::AgentLink> link_;
  net::WakeupTimer timer_;
  std::map<RunId, Played> runs_;
  std::size_t value_bytes_;
  int last_pid_ = 0;
  bool is_connected_ = false;
};

}  // namespace sgd::bench
