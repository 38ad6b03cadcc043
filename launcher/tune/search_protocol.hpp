#pragma once
// What is said with a search program: one JSON object a line, both ways, UTF-8. The launcher counts the trials, so that
// a program cannot confuse them.
//
//   launcher -> program                                               program -> launcher
//   {"type":"hello","version":1,"metric":..,"mode":"min","seed":..,
//    "parameters":{path:domain},"trials":50}
//   {"type":"next","trials":[7,8]}           these are wanted {"type":"trial","trial":7,"parameters":{path:value}}
//   {"type":"report","trial":7,"iteration":3,"value":0.9}             {"type":"kill","trial":7}    stop it
//   {"type":"end","trial":7,"outcome":"completed","iteration":9,"value":0.9}
//   {"type":"bye"}                           the experiment is over   {"type":"no_more"}  no more trials than were
//   given
//
// A value that is no number is null. "value" of an end is that of its last report, and null without one. A trial that
// is stopped with its experiment has no end: it goes on when that does, and reports again. A program may answer when it
// likes: what it owes has a deadline, which is its caller's. A program that has died is started again and told
// everything once more, in the same order; its `next` has "given" then, the answers of that time:
//   {"type":"next","trials":[7,8],"given":{"7":{path:value},"8":{..}}}
// to which it must not answer. Lines of a program that are wrong are errors in words that name what it did; its caller
// ends it then.

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "common/base/result.hpp"
#include "launcher/tune/experiment_spec.hpp"
#include "launcher/tune/scheduler.hpp"

namespace sgd::tune {

inline constexpr int kSearchVersion = 1;
/// Longest line of a search program, without its newline.
inline constexpr std::size_t kSearchLineBytesMax = 64 << 10;

/// Why a trial is stopped that its program wants killed; in events, too, where no other stop is called that.
inline constexpr const char* kKillReason = "the search program wants it to end";

struct SearchReport {
  TrialId trial = 0;
  std::int64_t iteration = 0;
  double value = 0;
};
struct SearchEnd {
  TrialId trial = 0;
  Outcome outcome = Outcome::kCompleted;
  std::int64_t iteration = 0;  ///< 0: it has reported nothing.
  double value = 0;
};

/// Lines for the program, each with its newline.
[[nodiscard]] std::string hello_line(const ExperimentSpec& spec);
[[nodiscard]] std::string next_line(const std::vector<TrialId>& trials);
/// For a program that begins anew: `given` are the trials that an earlier one has answered with.
[[nodiscard]] std::string given_line(const std::vector<Trial>& given);
[[nodiscard]] std::string line_of(const SearchReport& report);
[[nodiscard]] std::string line_of(const SearchEnd& end);
[[nodiscard]] std::string bye_line();

struct KillTrial {
  TrialId trial = 0;
};
struct NoMoreTrials {};
/// A trial that is to be killed was given; it may have ended meanwhile.
using SearchAnswer = std::variant<Trial, KillTrial, NoMoreTrials>;

/// One side of the conversation: what was asked, and whether an answer fits. The caller tells it of everything that it
/// sends.
class SearchProtocol {
 public:
  /// `asked_end`: all that other programs were asked for are below it.
  explicit SearchProtocol(Parameters parameters, TrialId asked_end = 0)
      : parameters_(std::move(parameters)), asked_end_(asked_end) {}

  /// Trials that are wanted from now on; their ids are new. Not after no_more().
  void on_asked(const std::vector<TrialId>& trials);
  /// An earlier program gave it: it may be killed.
  void on_given(TrialId trial);
  void on_end(TrialId trial);
  /// One line, without its newline. An error names what the program did wrong: "the search program gave trial 9, which
  /// was not asked for".
  [[nodiscard]] Result<SearchAnswer> take(std::string_view line);

  /// Asked for, and not yet given; nothing is owed after no_more().
  [[nodiscard]] const std::set<TrialId>& owed() const { return owed_; }
  [[nodiscard]] bool no_more() const { return no_more_; }

 private:
  [[nodiscard]] Result<SearchAnswer> take_trial(const nlohmann::json& message);
  [[nodiscard]] Result<SearchAnswer> take_kill(const nlohmann::json& message);

  Parameters parameters_;
  std::set<TrialId> owed_;
  std::set<TrialId> never_given_;  ///< Owed when there were no more.
  std::set<TrialId> living_;       ///< Given, and not ended.
  TrialId asked_end_ = 0;          ///< All that were asked for are below it.
  bool no_more_ = false;
};

/// The trial that a line gives; nothing for any other line, whatever it is.
[[nodiscard]] std::optional<TrialId> trial_given_in(std::string_view line);

/// Bytes to lines. What a program says without ending its line has a limit.
class SearchLines {
 public:
  /// Complete lines, without newline and empty ones; an error when one is longer than kSearchLineBytesMax, after which
  /// nothing more is taken.
  [[nodiscard]] Result<std::vector<std::string>> take(std::string_view bytes);

 private:
  std::string begun_;
};

}  // namespace sgd::tune
