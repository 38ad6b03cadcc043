#pragma once
// One sink and the file of reports that it is fed from, on a thread of files. What cannot be written is said once,
// tried again after a while, and told with its number at the end; nothing waits in memory, since the reports are in
// their file.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/time.hpp"
#include "launcher/callbacks/line_source.hpp"
#include "launcher/callbacks/sink.hpp"

namespace sgd::callbacks {

class Feed {
 public:
  /// Of a sink that could not write; each time twice as long, up to kPauseMax.
  static constexpr Duration kPause = std::chrono::seconds(1);
  static constexpr Duration kPauseMax = std::chrono::seconds(30);
  /// A sink that takes its time to flush is asked so many times more rarely.
  static constexpr int kRest = 50;

  /// `name`: of the callback, for people: "callback csv".
  Feed(std::string name, std::unique_ptr<Sink> sink, std::string reports_path);

  /// Gives the sink what is there, for `budget` at most. `is_last`: what is given now is all, and written at once.
  void advance(Duration budget, bool is_last);
  /// When advance() has something to do again, though no report has come; nothing: it has not.
  [[nodiscard]] std::optional<TimePoint> due() const { return due_; }
  /// After the last advance().
  void end(bool succeeded);
  /// What is to be told since it was asked last.
  [[nodiscard]] std::vector<std::string> take_warnings();

 private:
  [[nodiscard]] Result<bool> give(TimePoint until, bool is_last);
  [[nodiscard]] Status flush(bool is_last);
  void on_error(const Error& error, bool is_last);
  void warn(const std::string& text) { warnings_.push_back(name_ + ": " + text); }

  std::string name_;
  std::unique_ptr<Sink> sink_;
  LineSource source_;
  bool has_begun_ = false;
  bool is_troubled_ = false;  ///< Said already.
  Duration pause_ = kPause;
  std::optional<TimePoint> due_;
  TimePoint flush_after_{};
  std::vector<std::string> warnings_;
};

}  // namespace sgd::callbacks
