#include "launcher/cli/local_callbacks.hpp"

#include <utility>

#include <fmt/format.h>
#include <boost/asio/post.hpp>

#include "common/json/lenient.hpp"
#include "launcher/cli/program_files.hpp"

namespace sgd::cli {
namespace {

/// A program that takes longer at the end is worth a line.
constexpr Duration kSilence = std::chrono::seconds(1);

}  // namespace

LocalCallbacks::LocalCallbacks(boost::asio::io_context& io, Console& console, const job::JobSpec& job, bool is_json)
    : io_(io), console_(console), job_(job), printer_(console, job, is_json), thread_(io), patience_(io) {}

void LocalCallbacks::warn(const std::string& message) {
  console_.complain("warning", message);
}

void LocalCallbacks::begin(const Run& run) {
  if (callbacks::RunCallbacks::has_files(job_))
    files_.emplace(io_, thread_, run.id, run.directory, job_, [this](const std::string& message) { warn(message); });
  for (std::size_t index = 0; index < job_.callbacks.size(); ++index) {
    const nlohmann::json& callback = job_.callbacks[index];
    if (read_or(callback, "type", "") != "exec") continue;
    const Duration timeout = parse_duration(read_or(callback, "timeout", "")).value_or(Duration{0});
    auto program =
        std::make_unique<callbacks::ExecProcess>(io_, timeout, [this](const std::string& message) { warn(message); });
    if (const Status started = program->start(own_program(), run.directory, {std::to_string(index), run.id}); !started)
      warn(fmt::format("callback exec: {}; the run goes on without it", started.error().message));
    programs_.push_back(std::move(program));
  }
  begin_after_save(run);
  wake();
}

void LocalCallbacks::begin_after_save(const Run& run) {
  if (!job_.checkpoint.after_save) return;
  callbacks::AfterSave::Handlers handlers;
  handlers.warn = [this](const std::string& message) { warn(message); };
  handlers.record = run.record;
  handlers.spare = run.spare;
  after_save_.emplace(io_, *job_.checkpoint.after_save, own_program(), std::move(handlers));
  after_save_->begin(run.id, run.directory);
}

void LocalCallbacks::wake() {
  if (files_) files_->on_grown();
  for (const auto& program : programs_) program->wake();
}

void LocalCallbacks::on_event(const nlohmann::ordered_json& event) {
  if (after_save_) after_save_->on_event(event);
  for (const auto& program : programs_) program->wake();
}

void LocalCallbacks::on_metrics(const nlohmann::ordered_json& metrics) {
  printer_.print(metrics);
  wake();
}

void LocalCallbacks::end(bool succeeded, std::function<void()> done) {
  done_ = std::move(done);
  unfinished_ = 1 + (files_ ? 1 : 0) + programs_.size() + (after_save_ ? 1 : 0);
  if (files_) files_->end(succeeded, [this] { on_one_done(); });
  for (const auto& program : programs_) program->end([this] { on_one_done(); });
  if (after_save_) after_save_->end([this] { on_one_done(); });
  if (!programs_.empty() || after_save_) print_waiting();
  on_one_done();
}

void LocalCallbacks::print_waiting() {
  patience_.after(kSilence, [this] {
    if (done_)
      console_.narrate(fmt::format("sgd-launch: the run has ended; waiting for {}, at most their timeout",
                                   programs_.empty() ? "what checkpoint.after_save runs" : "programs of callbacks"),
                       true);
  });
}

void LocalCallbacks::on_one_done() {
  if (--unfinished_ > 0 || !done_) return;
  patience_.cancel();
  printer_.end();
  boost::asio::post(io_, std::exchange(done_, nullptr));
}

void LocalCallbacks::give_up() {
  for (const auto& program : programs_) program->give_up();
  if (after_save_) after_save_->give_up();
  if (done_) boost::asio::post(io_, std::exchange(done_, nullptr));
}

}  // namespace sgd::cli
