#pragma once
// A search program for as long as its experiment lasts: one that a signal has ended is started again, and told all that
// the one before was told. So is one that has trials of another program beside it: what it believes of them is wrong.

#include <functional>
#include <map>
#include <memory>
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
  [[nodiscard]] bool is_foreign(const nlohmann::ordered_json& event) const;
  void on_killed(const std::string& why);
  void begin_again_when_heard();

  boost::asio::io_context& io_;
  tune::ExperimentSpec spec_;
  std::string log_;
  Handlers handlers_;
  std::vector<std::string> past_;  ///< Events that a program is told of, as text.
  int kills_ = 0;                  ///< Since it has said something.
  /// Trials that it has given, and that no event has told of yet, with their values.
  std::map<tune::TrialId, nlohmann::json> said_;
  std::string waiting_;  ///< Why another one is to be started, as soon as there are none of those; or empty.
  bool is_over_ = false;
  std::unique_ptr<SearchProgram> program_;
};

}  // namespace sgd::cli
