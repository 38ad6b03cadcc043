#pragma once
// Keeps the runs' folders within what the operator allows: looks at those of runs that have ended, from time to time
// and when asked, beside the event loop, and removes what goes beyond, folder first, then row. A run whose folder
// cannot be removed stays, and is said.

#include <functional>
#include <map>
#include <set>
#include <string>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "launcher/coordinator/coordinator_shell.hpp"
#include "launcher/storage/file_thread.hpp"
#include "launcher/storage/retention.hpp"

namespace sgd::coordinator {

class RunRetention {
 public:
  static constexpr Duration kLook = std::chrono::minutes(10);
  static constexpr Duration kFirstLook = std::chrono::seconds(1);

  using Log = std::function<void(const std::string& line)>;
  /// Why it was not done; empty: it was.
  using Done = std::function<void(const std::string& why_not)>;

  /// All must outlive it. `is_over`: the run has ended, and nothing of it is still on its way here.
  RunRetention(boost::asio::io_context& io, CoordinatorShell& shell, storage::FileThread& files,
               std::function<bool(const RunId& run)> is_over, Log log);

  storage::Retention retention;

  void start();
  void stop() { timer_.cancel(); }
  /// Of a run that is over.
  void remove(const RunId& run, Done done);
  void pin(const RunId& run, bool pinned, Done done);
  /// As of the last look; runs that were not looked at yet are missing.
  [[nodiscard]] const std::map<RunId, storage::EndedRun>& known() const { return known_; }
  /// Of the folders of one owner's runs, as of the last look.
  [[nodiscard]] std::int64_t bytes_of(const std::string& owner) const;

 private:
  void look_later(Duration delay);
  void look();
  void on_looked(const std::vector<storage::EndedRun>& runs);
  void remove_folder(const storage::EndedRun& run, const Done& done);

  CoordinatorShell& shell_;
  storage::FileThread& files_;
  std::function<bool(const RunId& run)> is_over_;
  Log log_;
  boost::asio::steady_timer timer_;
  std::map<RunId, storage::EndedRun> known_;
  std::set<RunId> going_;  ///< Their folders are being removed.
};

}  // namespace sgd::coordinator
