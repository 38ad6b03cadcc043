#include "launcher/callbacks/after_save.hpp"

#include <filesystem>
#include <fstream>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <boost/asio/post.hpp>

#include "common/json/lenient.hpp"
#include "launcher/callbacks/after_save_guard.hpp"

namespace sgd::callbacks {
namespace {

using Json = nlohmann::ordered_json;

SavedCheckpoint saved_of(const Json& event) {
  return {read_or(event, "path", ""), read_or(event, "step", std::int64_t{0}), read_or(event, "epoch", 0)};
}

}  // namespace

std::vector<SavedCheckpoint> pending_checkpoints(const std::string& run_dir) {
  std::vector<SavedCheckpoint> saved;
  std::set<std::string> had;
  std::ifstream file(run_dir + "/events.jsonl");
  for (std::string line; std::getline(file, line);) {
    const Json event = Json::parse(line, nullptr, false);
    const std::string name = read_or(event, "event", "");
    if (name == "checkpoint_saved") saved.push_back(saved_of(event));
    if (name == "after_save") had.insert(read_or(event, "path", ""));
  }
  std::error_code error;
  std::erase_if(saved, [&](const SavedCheckpoint& one) {
    return had.contains(one.path) || one.path.empty() || !std::filesystem::exists(run_dir + "/" + one.path, error);
  });
  return saved;
}

AfterSave::AfterSave(boost::asio::io_context& io, job::AfterSave rule, std::string program, Handlers handlers)
    : io_(io), rule_(std::move(rule)), program_(std::move(program)), handlers_(std::move(handlers)) {}

AfterSave::~AfterSave() {
  *is_here_ = false;
}

void AfterSave::begin(const RunId& run, const std::string& run_dir) {
  run_ = run;
  run_dir_ = run_dir;
  for (SavedCheckpoint& saved : pending_checkpoints(run_dir)) add(std::move(saved));
}

void AfterSave::on_event(const Json& event) {
  if (read_or(event, "event", "") == "checkpoint_saved") add(saved_of(event));
}

void AfterSave::add(SavedCheckpoint saved) {
  if (is_given_up_) return;
  const std::optional<SavedCheckpoint> left_out = queue_.add(std::move(saved));
  handlers_.spare(queue_.paths());
  // Not within the call: what is told here is written where this was heard from.
  later([this, left_out] {
    if (left_out)
      notify(*left_out, "left_out",
             fmt::format("{} others wait for their turn: it takes longer than the time between two",
                         SaveQueue::kWaitingMax));
    start_next();
  });
}

void AfterSave::start_next() {
  if (is_given_up_) return;
  if (const auto saved = queue_.begin()) return start(*saved);
  if (!queue_.is_empty()) return;
  if (const auto done = std::exchange(done_, nullptr)) done();
}

void AfterSave::start(const SavedCheckpoint& saved) {
  report_.clear();
  guard_ = std::make_unique<ExecProcess>(io_, rule_.timeout, [this](const std::string& text) { report_ = text; });
  const Status started = guard_->start(
      program_, run_dir_, {kAfterSave, run_, saved.path, std::to_string(saved.step), std::to_string(saved.epoch)});
  if (!started) return later([this, why = started.error().message] { finish(failed_report(why)); });
  guard_->end([this] { later([this] { finish(report_); }); });
}

/// `text`: the guard's, of how its program has ended.
void AfterSave::finish(const std::string& text) {
  if (is_given_up_) return;
  guard_.reset();
  const auto saved = queue_.end();
  handlers_.spare(queue_.paths());
  const Json report = Json::parse(text, nullptr, false);
  const std::string state = read_or(report, "state", "failed");
  if (saved) notify(*saved, state.c_str(), state == "done" ? "" : read_or(report, "message", "its guard was killed"));
  start_next();
}

void AfterSave::notify(const SavedCheckpoint& saved, const char* state, const std::string& message) {
  Json event = {
      {"event", "after_save"}, {"path", saved.path}, {"step", saved.step}, {"epoch", saved.epoch}, {"state", state}};
  if (!message.empty()) event["message"] = message;
  handlers_.record(std::move(event));
  if (!message.empty())
    handlers_.warn(fmt::format("checkpoint.after_save of {}: {}; the run goes on without it", saved.path, message));
}

void AfterSave::end(std::function<void()> done) {
  if (is_given_up_ || queue_.is_empty()) return done();
  done_ = std::move(done);
}

void AfterSave::give_up() {
  if (std::exchange(is_given_up_, true)) return;
  if (guard_) guard_->give_up();
  const std::size_t waiting = queue_.drop().size() + (queue_.end() ? 1 : 0);
  handlers_.spare({});
  if (waiting > 0)
    handlers_.warn(fmt::format("checkpoint.after_save: {} checkpoint{} had no turn; resume makes up for {}", waiting,
                               waiting == 1 ? "" : "s", waiting == 1 ? "it" : "them"));
  if (const auto done = std::exchange(done_, nullptr)) done();
}

void AfterSave::later(std::function<void()> work) {
  boost::asio::post(io_, [work = std::move(work), is_here = is_here_] {
    if (*is_here) work();
  });
}

}  // namespace sgd::callbacks
