#pragma once
// The program that makes an experiment's trials, beside its launcher: a process of ours that reads and writes JSON
// lines (tune/search_protocol.hpp). What it is told is made of the experiment's events, so that a program that begins
// anew is told all that one before was told. What it says of itself (stderr) is in search.log.
//
//   events ──> on_event() ──lines──> queue ──stdin──> program ──stdout──> lines ──> Handlers
//
// It has no deadline here: the experiment's machine has. A program that does not read is one that does not answer.

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

#include "launcher/net/timer.hpp"
#include "launcher/tune/experiment_spec.hpp"
#include "launcher/tune/scheduler.hpp"
#include "launcher/tune/search_protocol.hpp"

namespace sgd::cli {

/// Lines for the program, of events in their order. The end of a trial that is stopped with its experiment is kept
/// back: a program that takes an end for final could not take what the trial says when it goes on.
class SearchScript {
 public:
  explicit SearchScript(const tune::ExperimentSpec& spec) : spec_(spec) {}
  /// What a program is told of the next event as it happens; empty: nothing.
  [[nodiscard]] std::string lines_of(const nlohmann::ordered_json& event);
  /// All that a program which begins now is told, with `past`: the events so far. Before lines_of().
  [[nodiscard]] std::string beginning(const std::vector<nlohmann::ordered_json>& past);
  /// One that changes what is told.
  [[nodiscard]] static bool is_about(const nlohmann::ordered_json& event);

 private:
  [[nodiscard]] std::string ends_before(const nlohmann::ordered_json& event);
  [[nodiscard]] std::string line_of(const nlohmann::ordered_json& event);

  const tune::ExperimentSpec& spec_;
  std::set<tune::TrialId> interrupted_;        ///< That are being stopped with the experiment.
  std::map<tune::TrialId, std::string> kept_;  ///< Ends of such trials.
  bool is_over_ = false;                       ///< The experiment is.
  bool is_resuming_ = false;                   ///< It goes on, and says with which trials.
};

class SearchProgram {
 public:
  /// Lines that it has not read, together; but those of its beginning.
  static constexpr std::size_t kUnreadBytesMax = 16 << 20;
  /// After "bye"; then it is killed. And after the end of its standard output; then it is given up.
  static constexpr Duration kEndLimit = std::chrono::seconds(2);

  struct Handlers {
    std::function<void(const std::string& line)> on_line;
    /// Once: it has ended, or cannot be spoken to any more.
    std::function<void(const std::string& why)> on_failed;
    /// In place of that where a signal has ended it, which says nothing of the program itself: another one can go on.
    std::function<void(const std::string& why)> on_killed;
  };

  SearchProgram(boost::asio::io_context& io, tune::ExperimentSpec spec, Handlers handlers);
  ~SearchProgram();
  SearchProgram(const SearchProgram&) = delete;
  SearchProgram& operator=(const SearchProgram&) = delete;

  /// `log`: the path of its stderr. Then it is told of `past`.
  [[nodiscard]] Status start(const std::string& log, const std::vector<nlohmann::ordered_json>& past);
  void on_event(const nlohmann::ordered_json& event);
  /// The experiment is over. `done` when it has ended, too.
  void end(std::function<void()> done);

 private:
  void write(const std::string& lines);
  void flush();
  void read();
  void on_closed();
  void take(std::string_view bytes);
  void wait_for_end();
  void on_ended();
  void fail(const std::string& why);

  tune::ExperimentSpec spec_;
  SearchScript script_;
  Handlers handlers_;
  tune::SearchLines lines_;
  std::string log_;
  boost::asio::posix::stream_descriptor in_;   ///< Its stdin.
  boost::asio::posix::stream_descriptor out_;  ///< Its stdout.
  boost::asio::posix::stream_descriptor pidfd_;
  net::Timer limit_;
  std::string unread_;
  std::string chunk_ = std::string(64 << 10, '\0');
  bool is_writing_ = false;
  bool has_ended_ = true;
  bool is_over_ = false;  ///< Nothing that it says or does matters any more.
  std::function<void()> done_;
  std::shared_ptr<bool> is_here_ = std::make_shared<bool>(true);
};

}  // namespace sgd::cli
