#pragma once
// The shell of core::Agent: one thread, one event loop. Facts become events, commands become
// calls, one timer is armed at the machine's next wake-up.
//
// Shutdown: when the machine has forgotten its last run, nothing that this node started is left
// and stop() closes the sockets; the event loop then runs out of work.
//
// With a Continuity each event that matters is in the journal before its commands are carried out. A shell that
// is given the journal of an earlier life takes its events anew (agent_takeover.cpp): commands reach only the
// books of keepers and links, which then connect again, each side sending what the other lacks.

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include <boost/asio/io_context.hpp>

#include "common/base/result.hpp"
#include "launcher/agent/agent_journal.hpp"
#include "launcher/agent/keeper_process.hpp"
#include "launcher/agent/run_accounts.hpp"
#include "launcher/agent/spool.hpp"
#include "launcher/agent/worker_server.hpp"
#include "launcher/core/agent.hpp"
#include "launcher/net/agent_link.hpp"
#include "launcher/net/wakeup_timer.hpp"

namespace sgd::agent {

struct AgentObserver {
  std::function<void(Output)> on_output;          ///< Answer with acknowledge_output().
  std::function<void(std::string)> on_warning;    ///< One line, for people.
  std::function<void(const RunId&)> on_run_gone;  ///< Nothing of it is left on this node.
};

class AgentShell {
 public:
  /// Of an agent whose next life takes its runs over.
  struct Continuity {
    std::string journal_path;
    std::string runtime_dir;  ///< For the keepers' sockets.
    std::string mark;     ///< NAME=value in the environment of all that is started here, without the keeper's number.
    Duration wait{};      ///< How long keepers and ranks wait for the next life.
    JournalHeader first;  ///< Where the machine begins; the facts are in it.
    std::optional<PastJournal> past;  ///< Of the life before.
    core::agent_event::Resumed now;   ///< What is said after it.
    AccountRule accounts = {};        ///< In whose name runs are started.
  };

  /// `program` is this program's own file, for keepers. Without a `spool` this node sees the coordinator's folders.
  AgentShell(boost::asio::io_context& io, core::AgentFacts facts, std::string program,
             std::unique_ptr<net::AgentLink> link, AgentObserver observer, std::unique_ptr<Spool> spool = nullptr);
  AgentShell(boost::asio::io_context& io, Continuity continuity, std::string program,
             std::unique_ptr<net::AgentLink> link, AgentObserver observer, std::unique_ptr<Spool> spool);
  ~AgentShell();

  /// Opens the workers' socket and tells the coordinator what this node has.
  [[nodiscard]] Status start();
  /// Room for workers from now on.
  void set_slots(int slots);
  /// The process is to end: ranks save and go, nothing new comes. is_idle() says when.
  void leave();
  void acknowledge_output(const RunId& run, std::size_t bytes);
  void stop();
  /// The process ends now, whatever runs here: keepers end it, and nobody takes anything over.
  void end_everything();
  /// No keeper of any run is here.
  [[nodiscard]] bool is_idle() const { return keepers_.empty(); }

 private:
  void on_event(const core::AgentEvent& event);
  [[nodiscard]] std::optional<core::AgentEvent> localized(const core::AgentEvent& event);
  [[nodiscard]] Spool::Owner folder_owner(const RunId& run) const;
  void write_down(TimePoint now, const core::AgentEvent& event);
  void begin_journal();
  void link_to_coordinator();
  void carry_out(core::AgentCommand command);
  void start_keeper(const RunId& run);
  void clear_strays(const RunId& run);
  void clear_marked_strays(const RunId& run);
  void fetch_checkpoint(const core::agent_command::FetchCheckpoint& fetch);
  void forget_run(const RunId& run);
  void on_keeper_message(const RunId& run, keeper::FromKeeper message);
  [[nodiscard]] std::unique_ptr<KeeperProcess> make_keeper(const RunId& run);

  // agent_takeover.cpp
  [[nodiscard]] Status replay();
  void replay_event(const core::AgentEvent& event);
  void replay_command(core::AgentCommand command);
  void take_over();
  void listen_when_settled();

  boost::asio::io_context& io_;
  std::string program_;
  std::string link_path_;
  core::Agent core_;
  std::unique_ptr<net::AgentLink> link_;
  std::unique_ptr<Spool> spool_;
  RunAccounts accounts_;
  AgentObserver observer_;
  WorkerServer workers_;
  std::map<RunId, std::unique_ptr<KeeperProcess>> keepers_;
  net::WakeupTimer timer_;

  std::optional<Continuity> continuity_;
  std::optional<AgentJournal> journal_;
  core::JournalSieve sieve_;
  std::uint64_t keepers_made_ = 0;
  std::map<RunId, KeeperProcess::Place> dead_keepers_;  ///< Whose strays may be to be cleared.
  std::set<RunId> strays_;                              ///< Of a replay: to be cleared, and not said to be.
  std::set<std::pair<RunId, std::string>> fetches_;     ///< Asked for and not answered: of a replay, to be asked again.
  bool is_listening_ = false;
};

}  // namespace sgd::agent
