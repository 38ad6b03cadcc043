#pragma once
// The shell of core::Agent: one thread, one event loop. Facts become events, commands become
// calls, one timer is armed at the machine's next wake-up.
//
// Shutdown: when the machine has forgotten its last run, nothing that this node started is left
// and stop() closes the sockets; the event loop then runs out of work.
//
// With Persistence each event that matters is in the journal before its commands are carried out. A shell that
// is given the journal of an earlier life begins with the state in it, and takes its events anew (agent_takeover.cpp):
// commands reach only what the shell keeps of keepers and links, which then connect again, each side sending what the
// other lacks.

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
#include "launcher/agent/reserved_ports.hpp"
#include "launcher/agent/run_accounts.hpp"
#include "launcher/agent/spool.hpp"
#include "launcher/agent/stray_clearing.hpp"
#include "launcher/agent/worker_server.hpp"
#include "launcher/core/agent.hpp"
#include "launcher/net/agent_link.hpp"
#include "launcher/net/timer.hpp"
#include "launcher/net/wakeup_timer.hpp"

namespace sgd::agent {

struct AgentObserver {
  std::function<void(Output)> on_output;        ///< Answer with acknowledge_output().
  std::function<void(std::string)> on_warning;  ///< One line, for people.
  /// It has ended here. `is_known`: it is known that no process of it is left.
  std::function<void(const RunId&, bool is_known)> on_run_gone;
  std::function<void(std::string reason)> on_refused = {};  ///< By the coordinator, which is asked again.
  /// One line, for who looks after this node: the coordinator is told of it, and tells the run's owner.
  std::function<void(std::string)> on_told = {};
  /// Where other nodes are told to reach this one, as a new connection shows; with Persistence::takes_address.
  std::function<void(const std::string& address)> on_address = {};
};

class AgentShell {
 public:
  /// Of an agent whose next life takes its runs over.
  struct Persistence {
    std::string journal_path;
    std::string sockets;  ///< Beginning of the paths of the sockets of keepers and ranks.
    std::string mark;     ///< NAME=value in the environment of all that is started here, without the keeper's number.
    Duration wait{};      ///< How long keepers and ranks wait for the next life.
    JournalHeader header;
    core::AgentFacts facts;           ///< Those of the life before, if there was one.
    core::SecretKey token_key{};      ///< Of a first life.
    std::optional<PastJournal> past;  ///< Of the life before.
    core::agent_event::Resumed now;   ///< What is said after it.
    AccountRule accounts = {};        ///< In whose name runs are started.
    std::size_t rewrite_bytes = AgentJournal::kRewriteBytes;
    bool passes_environment = false;  ///< To jobs: ours. Else that of a fixed list.
    bool takes_address = false;       ///< Other nodes reach this one where its connection to the coordinator begins.
  };

  /// `program` is this program's own file, for keepers; `sockets` is the beginning of the paths of the
  /// sockets of ranks. Without a `spool` this node sees the coordinator's folders.
  AgentShell(boost::asio::io_context& io, core::AgentFacts facts, std::string sockets, std::string program,
             std::unique_ptr<net::AgentLink> link, AgentObserver observer);
  AgentShell(boost::asio::io_context& io, Persistence persistence, std::string program,
             std::unique_ptr<net::AgentLink> link, AgentObserver observer, std::unique_ptr<Spool> spool);
  ~AgentShell();

  /// Tells the coordinator what this node has.
  [[nodiscard]] Status start();
  /// Room for workers from now on.
  void set_slots(int slots);
  /// The process is to end: ranks save and go, nothing new comes. is_idle() says when.
  void leave();
  void acknowledge_output(const RunId& run, std::size_t bytes);
  /// What ranks may read that are given the launcher's standard input; not with Persistence.
  void give_input(process::UniqueFd input) { input_ = std::move(input); }
  /// Where a warm server of this user listens: keepers that it holds ready are used; not with Persistence.
  void use_spares(std::string socket) { spares_ = std::move(socket); }
  /// To all ranks of the run that are here.
  void pass_signal(const RunId& run, int signal);
  void stop();
  /// The process ends now, whatever runs here: keepers end it, and nobody takes anything over.
  void end_everything();
  /// No keeper of any run is here, nor anything that one has left.
  [[nodiscard]] bool is_idle() const { return keepers_.empty() && clearings_.empty(); }
  /// Of what runs have written here, some is still brought to the coordinator.
  [[nodiscard]] bool is_sending() const { return spool_ && spool_->is_sending(); }

 private:
  void on_event(const core::AgentEvent& event);
  [[nodiscard]] std::optional<core::AgentEvent> localized(const core::AgentEvent& event);
  void link_to_coordinator();
  [[nodiscard]] std::string address_by_link() const;
  void answer(const cluster::AccountAsk& ask);
  void carry_out(core::AgentCommand command);
  void start_keeper(const core::agent_command::StartKeeper& start);
  void bring_files(const core::agent_command::StartKeeper& start,
                   const Result<std::optional<process::Account>>& account);
  void give_up_start(const core::AgentEvent& event);
  void begin_keeper(const core::agent_command::StartKeeper& start,
                    const Result<std::optional<process::Account>>& account);
  void ask_for_spare(const core::agent_command::StartKeeper& start);
  void start_own_keeper(const RunId& run, const std::optional<process::Account>& account);
  [[nodiscard]] bool wait_for_room(const RunId& run, const Error& lacking, std::function<void()> again);
  void fail_keeper(const RunId& run, const Error& error);
  [[nodiscard]] Status prepare_for(const RunId& run, const std::optional<process::Account>& account);
  [[nodiscard]] Status listen(const RunId& run, const std::optional<storage::FileOwner>& owner);
  void clear_strays(const RunId& run);
  void on_strays_cleared(const RunId& run, const Status& cleared, int killed);
  void record_dead_keeper(const RunId& run, const KeeperProcess& keeper);
  void fetch_checkpoint(const core::agent_command::FetchCheckpoint& fetch);
  void forget_run(const RunId& run);
  void reserve_port(const core::agent_command::ReservePort& wanted);
  void on_keeper_message(const RunId& run, keeper::FromKeeper message);
  void explain_port(const RunId& run, keeper::Exited& exited);
  [[nodiscard]] std::unique_ptr<KeeperProcess> make_keeper(const RunId& run);
  [[nodiscard]] std::unique_ptr<KeeperProcess> make_keeper(const RunId& run, std::uint64_t number);

  // agent_shell_journal.cpp
  void write_down(TimePoint now, const core::AgentEvent& event);
  [[nodiscard]] AgentShellState shell_state() const;
  [[nodiscard]] bool is_settled() const;
  [[nodiscard]] bool begin_journal();
  void rewrite_journal_soon();
  void note_journal_try(TimePoint now);
  void rewrite_journal();

  // agent_takeover.cpp
  [[nodiscard]] Status replay();
  void restore(const AgentShellState& shell_state);
  void replay_event(const core::AgentEvent& event);
  void replay_command(core::AgentCommand command);
  void take_over();
  [[nodiscard]] Result<std::optional<storage::FileOwner>> owner_of(const RunId& run) const;
  void listen_again(const RunId& run);

  boost::asio::io_context& io_;
  std::string program_;
  std::string sockets_;
  core::Agent core_;
  std::unique_ptr<net::AgentLink> link_;
  std::unique_ptr<Spool> spool_;
  RunAccounts accounts_;
  AgentObserver observer_;
  WorkerServer workers_;
  ReservedPorts ports_;
  std::map<RunId, std::unique_ptr<KeeperProcess>> keepers_;
  net::WakeupTimer timer_;

  std::optional<Persistence> persistence_;
  std::optional<AgentJournal> journal_;
  core::JournalFilter filter_;
  process::UniqueFd input_;
  std::string spares_;            ///< The warm server's socket; empty: there is none.
  bool is_rewriting_ = false;     ///< The journal, in a moment.
  TimePoint journal_tried_at_{};  ///< One that was given up is tried again.
  std::uint64_t keepers_made_ = 0;
  std::uint64_t keepers_at_try_ = 0;          ///< So many had been made at the last try.
  std::map<RunId, DeadKeeper> dead_keepers_;  ///< Whose strays may be to be cleared.
  std::map<RunId, std::unique_ptr<StrayClearing>> clearings_;
  std::set<RunId> unknown_strays_;                   ///< Of which some may be left that cannot be seen, for good.
  std::set<RunId> strays_;                           ///< Of a replay: to be cleared, and not said to be.
  std::set<std::pair<RunId, std::string>> fetches_;  ///< Asked for and not answered: of a replay, to be asked again.
  /// For another process or descriptor.
  struct NoRoom {
    TimePoint until{};
    std::unique_ptr<net::Timer> timer = {};
  };
  std::map<RunId, NoRoom> no_room_;          ///< Whose keepers, or whose accounts, were refused for want of it.
  std::set<RunId> bringing_;                 ///< Whose keepers wait for the files that their jobs bring.
  std::map<RunId, std::string> link_paths_;  ///< Of the runs' sockets for their ranks.
};

}  // namespace sgd::agent
