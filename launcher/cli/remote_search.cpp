#include "launcher/cli/remote_search.hpp"

#include <unistd.h>

#include <utility>

#include <fmt/format.h>

#include "common/json/lenient.hpp"

namespace sgd::cli {

using Json = nlohmann::ordered_json;

RemoteSearch::RemoteSearch(boost::asio::io_context& io, tune::ExperimentSpec spec, std::string name, Handlers handlers)
    : io_(io), spec_(std::move(spec)), handlers_(std::move(handlers)), name_(std::move(name)), timer_(io) {}

void RemoteSearch::start(const std::string& run, const std::vector<Json>& past) {
  const bool may_write = ::access(".", W_OK) == 0;
  const std::string log = may_write ? run + ".search.log" : "/dev/null";
  KeptSearch::Handlers handlers;
  handlers.on_line = [this](const std::string& line) { take(line); };
  handlers.on_failed = [this](const std::string& why) { fail(why); };
  handlers.on_restart = [this](const std::string& what) { handlers_.narrate(what, true); };
  search_ = std::make_unique<KeptSearch>(io_, spec_, log, std::move(handlers));
  handlers_.narrate(fmt::format("{} makes the trials, on this machine: this command has to stay until the end, or "
                                "another one goes on (sgd-launch tune --resume {}). {}",
                                spec_.search.command.front(), run,
                                may_write ? "Its standard error is in " + log
                                          : "Its standard error is lost: this folder cannot be written to"),
                    false);
  if (const Status started = search_->start(past); !started) fail(started.error().message);
  wait();
}

void RemoteSearch::take(const std::string& line) {
  if (const auto trial = tune::trial_given_in(line); trial && !given_.insert(*trial).second)
    return fail(fmt::format("the search program gave trial {} twice", *trial));
  const Json said = Json::parse(line, nullptr, false);
  const std::string type = read_or(said, "type", "");
  send(fmt::format("{} {}", type, read_or(said, "trial", std::int64_t{-1})), {{"line", line}});
}

void RemoteSearch::fail(const std::string& why) {
  send("failure", {{"why", why}});
}

void RemoteSearch::send(const std::string& key, Json what) {
  what["searcher"] = name_;
  handlers_.ask(what);
  unconfirmed_[key] = std::move(what);
}

void RemoteSearch::on_event(const Json& event) {
  const std::string what = read_or(event, "event", "");
  const std::int64_t trial = read_or(event, "trial", std::int64_t{-1});
  if (what == "trial_started") unconfirmed_.erase(fmt::format("trial {}", trial));
  if (what == "trial_stopping" || what == "trial_ended") unconfirmed_.erase(fmt::format("kill {}", trial));
  if (what == "search_failed") unconfirmed_.clear();
  if (search_) search_->on_event(event);
}

void RemoteSearch::on_refused(const std::string& kind) {
  unconfirmed_.clear();
  if (kind != "taken" || !search_) return;
  timer_.cancel();
  search_->end([] {});
}

void RemoteSearch::resend() {
  for (const auto& [key, what] : unconfirmed_) handlers_.ask(what);
}

void RemoteSearch::wait() {
  timer_.after(kAgain, [this] {
    resend();
    wait();
  });
}

void RemoteSearch::end(std::function<void()> done) {
  timer_.cancel();
  unconfirmed_.clear();
  if (!search_) return done();
  search_->end(std::move(done));
}

}  // namespace sgd::cli
