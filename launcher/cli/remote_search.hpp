#pragma once
// The search program of an experiment on a cluster. It runs here, beside the command that has submitted the experiment,
// under the account of whoever did: a coordinator starts no program of a job.
//
//   events that are followed ──> KeptSearch ──lines──> requests ──> coordinator ──> events
//
// One program is heard at a time: who goes on with the experiment names itself to the coordinator (`name`), and whoever
// made its trials before is told that it is heard no more, and ends its program.
//
// A line counts when an event says so: until then it is sent again after each lost connection, and now and then. The
// coordinator passes over what it has taken already, so a trial that the program gives twice is found here.

#include <functional>
#include <map>
#include <set>
#include <string>

#include "launcher/cli/kept_search.hpp"
#include "launcher/net/timer.hpp"

namespace sgd::cli {

class RemoteSearch {
 public:
  static constexpr Duration kAgain = std::chrono::seconds(5);

  struct Handlers {
    /// Sends a request, if there is a connection; `what` lacks its id and the run.
    std::function<void(const nlohmann::ordered_json& what)> ask;
    std::function<void(const std::string& line, bool is_trouble)> narrate;
  };

  /// `io` must outlive it.
  RemoteSearch(boost::asio::io_context& io, tune::ExperimentSpec spec, std::string name, Handlers handlers);

  /// `run` is the experiment's id, `past` its events so far. Where this folder cannot be written to nobody reads what
  /// the program says of itself.
  void start(const std::string& run, const std::vector<nlohmann::ordered_json>& past);
  void on_event(const nlohmann::ordered_json& event);
  void resend();
  /// What was said is refused, and would be again. `kind`: as the coordinator says.
  void on_refused(const std::string& kind);
  void end(std::function<void()> done);

 private:
  void take(const std::string& line);
  void fail(const std::string& why);
  void send(const std::string& key, nlohmann::ordered_json what);
  void wait();

  boost::asio::io_context& io_;
  tune::ExperimentSpec spec_;
  Handlers handlers_;
  std::string name_;
  net::Timer timer_;
  std::map<std::string, nlohmann::ordered_json> unconfirmed_;  ///< By what confirms them: "trial 7", "kill 7", ...
  std::set<tune::TrialId> given_;
  std::unique_ptr<KeptSearch> search_;
};

}  // namespace sgd::cli
