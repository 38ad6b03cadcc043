#include "launcher/callbacks/run_callbacks.hpp"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "common/json/lenient.hpp"
#include "launcher/callbacks/csv_file.hpp"
#include "launcher/callbacks/event_file.hpp"
#include "launcher/callbacks/feed.hpp"
#include "launcher/callbacks/results_file.hpp"

namespace sgd::callbacks {

std::unique_ptr<Sink> make_sink(const nlohmann::json& callback, const RunId& run, const std::string& run_dir,
                                const nlohmann::json& resolved_job) {
  const std::string type = read_or(callback, "type", "");
  const std::string folder = read_or(callback, "folder", run_dir);
  if (type == "json") return std::make_unique<ResultsFile>(folder + "/" + read_or(callback, "file", ""), callback);
  if (type == "csv") return std::make_unique<CsvFile>(folder + "/" + read_or(callback, "file", ""), callback);
  if (type != "tensorboard") return nullptr;
  // The run's folder may be moved and resumed there under another name; elsewhere other runs may write, too.
  const bool is_in_run = !callback.contains("folder");
  return std::make_unique<EventFile>(is_in_run ? run_dir + "/tensorboard" : folder, is_in_run ? "sgd-launch" : run,
                                     callback, resolved_job);
}

struct RunCallbacks::Feeds {
  std::vector<Feed> feeds;
  std::vector<std::string> warnings;
  std::optional<TimePoint> due;

  void advance() {
    due.reset();
    for (Feed& feed : feeds) {
      feed.advance(kTurn / static_cast<int>(feeds.size()), false);
      if (feed.due()) due = due ? std::min(*due, *feed.due()) : *feed.due();
      collect(feed);
    }
  }
  void end(bool succeeded) {
    due.reset();
    for (Feed& feed : feeds) {
      feed.end(succeeded);
      collect(feed);
    }
  }
  void collect(Feed& feed) {
    for (std::string& warning : feed.take_warnings()) warnings.push_back(std::move(warning));
  }
};

RunCallbacks::RunCallbacks(boost::asio::io_context& io, storage::FileThread& files, const RunId& run,
                           const std::string& run_dir, const job::JobSpec& job, Warn warn)
    : feeds_(std::make_shared<Feeds>()), files_(files), warn_(std::move(warn)), timer_(io), limit_(io) {
  for (const nlohmann::json& callback : job.callbacks)
    if (auto sink = make_sink(callback, run, run_dir, *job.resolved))
      feeds_->feeds.emplace_back("callback " + read_or(callback, "type", ""), std::move(sink),
                                 run_dir + "/metrics.jsonl");
}

RunCallbacks::~RunCallbacks() {
  *is_here_ = false;
}

bool RunCallbacks::has_files(const job::JobSpec& job) {
  return std::any_of(job.callbacks.begin(), job.callbacks.end(), [](const nlohmann::json& callback) {
    const std::string type = read_or(callback, "type", "");
    return type == "json" || type == "csv" || type == "tensorboard";
  });
}

void RunCallbacks::on_grown() {
  if (is_ending_) return;
  has_grown_ = true;
  if (!is_working_) work();
}

void RunCallbacks::end(bool succeeded, std::function<void()> done) {
  is_ending_ = true;
  succeeded_ = succeeded;
  done_ = std::move(done);
  timer_.cancel();
  limit_.expires_after(kEndLimit);
  limit_.async_wait([this, is_here = is_here_](const boost::system::error_code& error) {
    if (error || !*is_here || !done_) return;
    warn_(fmt::format("callbacks: the disk has not taken everything for {}; what is missing is in metrics.jsonl",
                      format_duration(kEndLimit)));
    finish();
  });
  if (!is_working_) work();
}

void RunCallbacks::work() {
  is_working_ = true;
  has_grown_ = false;
  auto one_turn = [feeds = feeds_, is_last = is_ending_, succeeded = succeeded_] {
    is_last ? feeds->end(succeeded) : feeds->advance();
  };
  files_.run(std::move(one_turn), [this, is_last = is_ending_, is_here = is_here_] {
    if (!*is_here) return;
    is_working_ = false;
    for (const std::string& warning : std::exchange(feeds_->warnings, {})) warn_(warning);
    if (is_last) return finish();
    on_worked();
  });
}

/// It may be gone afterwards.
void RunCallbacks::finish() {
  limit_.cancel();
  if (const auto done = std::exchange(done_, nullptr)) done();
}

void RunCallbacks::on_worked() {
  if (is_ending_ || has_grown_) return work();
  if (!feeds_->due) return;
  timer_.expires_at(*feeds_->due);
  timer_.async_wait([this, is_here = is_here_](const boost::system::error_code& error) {
    if (!error && *is_here && !is_working_ && !is_ending_) work();
  });
}

}  // namespace sgd::callbacks
