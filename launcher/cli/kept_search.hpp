#pragma once
// A search program for as long as its experiment lasts: one that a signal has ended is started again, and told all that
// the one before was told.

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "launcher/cli/search_program.hpp"

namespace sgd::cli {

class KeptSearch {
 public:
  /// One that is killed so often, and says nothing in between, is not started again.
  static constexpr int kKillsMax = 3;

  struct Handlers {
    std::function<void(const std::string& line)> on_line;
    std::function<void(const std::string& why)> on_failed;    ///< Once, and not out of start().
    std::function<void(const std::string& what)> on_restart;  ///< For people.
  };

  /// `log`: the path of its stderr. `io` must outlive it.
  KeptSearch(boost::asio::io_context& io, tune::ExperimentSpec spec, std::string log, Handlers handlers);

  /// `past`: the experiment's events so far.
  [[nodiscard]] Status start(const std::vector<nlohmann::ordered_json>& past);
  /// Of the experiment, one after another.
  void on_event(const nlohmann::ordered_json& event);
  /// The experiment is over. `done` when the program has ended, too.
  void end(std::function<void()> done);

 private:
  void note(const nlohmann::ordered_json& event);
  [[nodiscard]] Status begin();
  void restart(const std::string& why);

  boost::asio::io_context& io_;
  tune::ExperimentSpec spec_;
  std::string log_;
  Handlers handlers_;
  std::vector<std::string> past_;  ///< Events that a program is told of, as text.
  int kills_ = 0;                  ///< Since it has said something.
  std::set<tune::TrialId> said_;   ///< Trials that it has given, and that no event has told of yet.
  std::string waiting_;            ///< Why another one is to be started, as soon as there are none of those; or empty.
  bool is_over_ = false;
  std::unique_ptr<SearchProgram> program_;
};

}  // namespace sgd::cli
