#include "launcher/cli/kept_search.hpp"

#include <filesystem>
#include <utility>

#include <fmt/format.h>
#include <boost/asio/post.hpp>

#include "common/json/lenient.hpp"

namespace sgd::cli {

using Json = nlohmann::ordered_json;

KeptSearch::KeptSearch(boost::asio::io_context& io, tune::ExperimentSpec spec, std::string log, Handlers handlers)
    : io_(io), spec_(std::move(spec)), log_(std::move(log)), handlers_(std::move(handlers)) {}

Status KeptSearch::start(const std::vector<Json>& past) {
  for (const Json& event : past) note(event);
  return begin();
}

void KeptSearch::on_event(const Json& event) {
  if (program_ && is_foreign(event)) {
    program_.reset();
    waiting_ = fmt::format("trial {} is of another search program", read_or(event, "trial", tune::TrialId{0}));
  }
  note(event);
  if (program_) program_->on_event(event);
  begin_again_when_heard();
}

/// A trial begins that the program has not given, or with other values than it has given.
bool KeptSearch::is_foreign(const Json& event) const {
  if (read_or(event, "event", "") != "trial_started") return false;
  const auto said = said_.find(read_or(event, "trial", tune::TrialId{-1}));
  return said == said_.end() || said->second != nlohmann::json(member(event, "parameters"));
}

void KeptSearch::note(const Json& event) {
  const std::string what = read_or(event, "event", "");
  if (what == "run_finished" || what == "search_failed" || what == "search_ended") is_over_ = true;
  if (what == "trial_started") said_.erase(read_or(event, "trial", tune::TrialId{-1}));
  if (what == "experiment_resumed") is_over_ = false;
  if (SearchScript::is_about(event)) past_.push_back(dump_text(event));
}

Status KeptSearch::begin() {
  SearchProgram::Handlers handlers;
  handlers.on_line = [this](const std::string& line) {
    kills_ = 0;
    if (const auto trial = tune::trial_given_in(line))
      said_.insert_or_assign(*trial, member(nlohmann::json::parse(line, nullptr, false, true), "parameters"));
    handlers_.on_line(line);
  };
  // Later: it is the program that tells so.
  handlers.on_killed = [this](const std::string& why) { boost::asio::post(io_, [this, why] { on_killed(why); }); };
  handlers.on_failed = [this](const std::string& why) { handlers_.on_failed(why); };
  program_ = std::make_unique<SearchProgram>(io_, spec_, std::move(handlers));
  std::vector<Json> past;
  for (const std::string& event : past_) past.push_back(Json::parse(event));
  return program_->start(log_, past);
}

void KeptSearch::on_killed(const std::string& why) {
  if (is_over_) return;
  if (++kills_ > kKillsMax)
    return handlers_.on_failed(fmt::format("{}, {} times without output; its standard error is in {}", why, kills_,
                                           std::filesystem::path(log_).filename().string()));
  program_.reset();
  waiting_ = why;
  begin_again_when_heard();
}

/// What the one before has given counts: else the next one would give it once more.
void KeptSearch::begin_again_when_heard() {
  if (waiting_.empty() || !said_.empty() || is_over_) return;
  handlers_.on_restart(fmt::format("{}: another one goes on from there", std::exchange(waiting_, {})));
  if (const Status started = begin(); !started) handlers_.on_failed(started.error().message);
}

void KeptSearch::end(std::function<void()> done) {
  is_over_ = true;
  if (!program_) return done();
  program_->end(std::move(done));
}

}  // namespace sgd::cli
