#pragma once
// The runs' files on a node that shares no disk with the coordinator: a folder for each run with the layout
// of a run directory, `<state folder>/runs/<run>/`, in which keepers and workers write as they would in the
// run directory. What lies there is brought to the coordinator, and goes when everything is acknowledged;
// checkpoints that this node lacks are fetched into it.
//
//   AgentShell ── localize(), for_coordinator() ──> paths of this node <──> paths of the coordinator
//              ── look(), end(), fetch() ──> FileSender, FileFetcher ── FileLink ══ the coordinator's
//              FileService
//
// Folders of an earlier life of the agent are brought and removed like those of runs that have ended. What is
// refused for good, for example since nobody knows the run any more, stays for a while (Setup::keep_refused)
// and then goes; so does a folder of an earlier life that cannot be made ready.

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "common/messages/cluster.hpp"
#include "common/messages/keeper.hpp"
#include "launcher/agent/file_fetcher.hpp"
#include "launcher/agent/file_link.hpp"
#include "launcher/agent/file_sender.hpp"
#include "launcher/net/timer.hpp"
#include "launcher/shipping/file_store.hpp"
#include "launcher/storage/file_owner.hpp"
#include "launcher/storage/file_thread.hpp"

namespace sgd::agent {

class Spool {
 public:
  struct Setup {
    std::string state_dir;  ///< Absolute; created when it is missing.
    net::Address coordinator;
    NodeId node;  ///< [A-Za-z0-9._-].
    Incarnation incarnation = 0;
    Duration keep_refused = std::chrono::hours(24);  ///< By the timer below, while an agent runs here.
    Duration revisit = std::chrono::hours(1);        ///< Refused folders are tried again, or removed.
    bool has_other_owners = false;                   ///< They must get to their folders.
    storage::Quota quota;                            ///< Of what is fetched.
    shipping::FileStore::Limits files;               ///< Of what jobs bring.
    SenderTimes times;
    std::shared_ptr<const net::TlsContext> tls;  ///< The node's identity; null: plain text.
  };

  /// `io` must outlive it.
  Spool(boost::asio::io_context& io, Setup setup, core::Random random);
  ~Spool();

  /// Errors: the folder cannot be made, the node's name cannot travel.
  [[nodiscard]] Status start(std::function<void(std::string)> on_warning);
  /// This agent is not taken at the moment: its files wait so long.
  void rest(Duration time) { link_.rest(time); }
  void stop();

  /// The same with paths of this node; its folder is made when the run is to be started here, unless it is another
  /// user's: then open() makes it.
  [[nodiscard]] cluster::DesiredRun localize(cluster::DesiredRun desired);
  /// Run directories of the coordinator by run, for the next life;
  [[nodiscard]] const std::map<RunId, std::string>& remotes() const { return remotes_; }
  /// and in that life. Folders of `runs` that are here are in use.
  void restore(const std::map<RunId, std::string>& remotes, const std::vector<RunId>& runs);
  /// Makes the run's folder, which is `owner`'s (nothing: ours), unless it is here. One of ours that is here, as of an
  /// agent that ended before it gave it away, is given to `owner`.
  [[nodiscard]] Status open(const RunId& run, const std::optional<storage::FileOwner>& owner);
  /// Whose folder it is, where that is not ours. Error: there are other users here, and it is none's of them.
  [[nodiscard]] Result<std::optional<storage::FileOwner>> owner_of(const RunId& run) const;
  /// The same with paths of the coordinator.
  [[nodiscard]] cluster::FromAgent for_coordinator(cluster::FromAgent message);
  /// Files of which each node has its own get a name that no other node's has.
  void name_logs(const RunId& run, keeper::ToKeeper& message) const;

  /// The run has written something.
  void look(const RunId& run) { sender_.look(run); }
  /// Nothing of the run is left here but its files.
  void end(const RunId& run);
  /// Files of some run are on their way, or may be taken yet: not those that were refused, which lie here for long.
  [[nodiscard]] bool is_sending() const { return link_.is_open() && !sender_.is_empty(); }
  /// `path` is a checkpoint's folder in the run's folder here. Never answered inside.
  void fetch(const RunId& run, const std::string& path, FileFetcher::Handlers handlers);
  /// What the run's job brings is here, in folders of `owner` (nothing: ours), where the job that localize() has made
  /// looks for it; then `done`, never inside. Not after end().
  void bring_files(const RunId& run, const std::optional<storage::FileOwner>& owner, std::function<void(Status)> done);

  [[nodiscard]] std::string folder_of(const RunId& run) const { return runs_dir_ + "/" + run; }
  /// Of the files that its job brings: with their whole paths.
  [[nodiscard]] std::string tree_of(const RunId& run) const { return trees_dir_ + "/" + run; }

 private:
  struct RunFolder {
    std::shared_ptr<storage::RunFiles> files;
    std::uint32_t life = 0;  ///< Of the folder: names of two lives of it are never the same.
    bool is_live = false;
  };

  [[nodiscard]] Status let_owners_pass() const;
  [[nodiscard]] std::string mark_of(const RunId& run) const;
  void on_message(transfer::ToNode message, std::string bytes);
  [[nodiscard]] FileFetcher& fetcher_of(const std::string& path);
  [[nodiscard]] Status make_folder(const RunId& run, const std::optional<storage::FileOwner>& owner);
  enum class ScanReason {
    kStart,  ///< Of an agent.
    kTimer,  ///< Setup::revisit is over.
  };
  void scan_folders(ScanReason why);
  void scan_folder(const RunId& run, ScanReason why);
  void remember(const RunId& run, const std::string& remote);
  void remove(const RunId& run);
  void remove_bytes(const std::string& folder);
  [[nodiscard]] std::string gone_name(const std::string& folder);
  void remove_tree_of(const RunId& run);
  void remove_old_trees();
  void keep_for_later(const RunId& run, const std::string& reason);

  boost::asio::io_context& io_;
  Setup setup_;
  std::string runs_dir_;
  std::string trees_dir_;
  std::function<void(std::string)> on_warning_;
  std::map<RunId, RunFolder> folders_;
  std::map<RunId, std::string> remotes_;  ///< Run directories of the coordinator; facts may be told long after.
  std::deque<RunId> remembered_;          ///< Of remotes_, the oldest first.
  std::uint32_t folders_made_ = 0;
  net::Timer revisit_timer_;
  FileLink link_;
  storage::FileThread sending_;
  storage::FileThread fetching_;
  storage::FileThread bringing_;
  storage::FileThread removing_;  ///< As long as a run has left it to do: nobody waits for it.
  FileSender sender_;
  FileFetcher fetcher_;  ///< Of checkpoints, which others wait for that have run already;
  FileFetcher bringer_;  ///< and of what jobs bring.
  std::shared_ptr<shipping::FileStore> store_;
};

}  // namespace sgd::agent
