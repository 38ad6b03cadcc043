// RunService: what clients say to experiments: that one is to go on, and the words of its search program, which runs
// beside the client that has submitted it, or that goes on with it.

#include <fmt/format.h>

#include "common/json/json_file.hpp"
#include "common/json/lenient.hpp"
#include "common/json/words.hpp"
#include "launcher/coordinator/run_service.hpp"
#include "launcher/tune/search_protocol.hpp"

namespace sgd::coordinator {
namespace {

constexpr std::size_t kWhyBytesMax = 4 << 10;
constexpr std::size_t kSearcherBytesMax = 64;

}  // namespace

/// In its own folder, unlike a run that goes on: its trials are there. One that has not ended gets the samples that it
/// lacks, another search program, or somebody who looks on.
void RunService::resume_experiment(const Requester& who, const RunRow& row, const nlohmann::json& request,
                                   const ClientService::Reply& reply) {
  const RunId& id = row.id;
  const auto samples = read_or(request, "samples", std::int64_t{0});
  const std::string searcher = read_or(request, "searcher", "");
  const auto refuse = [this, &who, &id, &reply](const char* kind, const std::string& why) {
    audit_.add(who, "resume", {{"run", id}}, why);
    reply(refused(kind, why));
  };
  if (const std::string forbidden = refusal_of_change(who, "resume it", id, row.owner); !forbidden.empty())
    return refuse("forbidden", forbidden);
  if (samples < 0 || searcher.size() > kSearcherBytesMax)
    return refuse("value", fmt::format("\"samples\" is a number from 0, \"searcher\" a name of at most {} bytes",
                                       kSearcherBytesMax));
  const core::Experiment* experiment = shell_.experiment(id);
  if (experiment == nullptr)
    return refuse("state", fmt::format("{} is no experiment that the coordinator remembers: submit its job again", id));
  if (experiment->definition().may_be_root && !may_be_root(who))
    return refuse("forbidden", fmt::format("{} may run as root: only root or an admin makes it go on", id));
  if (shell_.is_held()) return refuse("later", "the coordinator cannot write its state at the moment: try again later");
  const bool has_ended = experiment->finished();
  // Its end is still being written, or its folder taken away.
  if (has_ended && (!is_settled(id) || retention_.is_going(id)))
    return refuse("later", fmt::format("{} is just ending, or being removed: try again later", id));
  const std::string full = has_ended ? refusal_of_one_more(who, "resume", row.owner, experiment->definition().job) : "";
  if (!full.empty()) return reply(refused("quota", full));
  if (has_ended || samples > 0 || experiment->has_failed_search())
    if (const Status resumed = shell_.resume_experiment(id, samples); !resumed)
      return refuse("job", resumed.error().message);
  if (!searcher.empty()) searchers_[id] = searcher;
  audit_.add(who, "resume", {{"run", id}}, "");
  const Json answer = {{"ok", true},
                       {"run", id},
                       {"samples", member(member(*experiment->definition().job.resolved, "tune"), "samples")}};
  // Whoever hears this relies on it, also when the coordinator is killed right behind it.
  shell_.when_committed([reply, answer] { reply(answer); });
}

/// What best.json of an experiment says; the trial's job is in it.
void RunService::best(const Requester& who, const nlohmann::json& request, const ClientService::Reply& reply) {
  const auto run = find(read_or(request, "run", ""));
  if (!run) return reply(refused("run", run.error().message));
  note_read(who, "read_job", run.value().id, run.value().owner);
  const auto read = [id = run.value().id, path = run.value().run_dir + "/best.json"]() -> Result<Json> {
    Json best = json::read_ordered_file(path);
    const std::string folder = read_or(best, "folder", "");
    if (const auto job = best.find("job"); best.is_object() && job != best.end() && !folder.empty())
      name_origin(*job, id + "." + folder.substr(folder.rfind('/') + 1), folder);
    return best;
  };
  files_.ask_within(kDiskLimit, read, [id = run.value().id, reply](const Result<Json>& best) {
    if (!best) return reply(refused("state", best.error().message));
    if (!best.value().is_object())
      return reply(refused("none", fmt::format("no trial of {} has ended with a value yet", id)));
    reply(Json{{"ok", true}, {"run", id}, {"best", best.value()}});
  });
}

/// A line may come again after a lost connection: a trial that is there is not given twice by it. One program is heard
/// at a time: what another one believes of trials that it has not given would be wrong.
Json RunService::search(const Requester& who, const nlohmann::json& request) {
  const auto run = find(read_or(request, "run", ""));
  if (!run) return refused("run", run.error().message);
  const RunId& id = run.value().id;
  if (const std::string forbidden = refusal_of_change(who, "search in it", id, run.value().owner); !forbidden.empty()) {
    audit_.add(who, "search", {{"run", id}}, forbidden);
    return refused("forbidden", forbidden);
  }
  const std::string line = read_or(request, "line", "");
  const std::string why = read_or(request, "why", "");
  const std::string searcher = read_or(request, "searcher", "");
  if (line.empty() == why.empty() || line.size() > tune::kSearchLineBytesMax || why.size() > kWhyBytesMax ||
      searcher.size() > kSearcherBytesMax)
    return refused("value", fmt::format("\"line\", of at most {} bytes, or \"why\", of at most {}, is needed, and "
                                        "\"searcher\" is at most {}",
                                        tune::kSearchLineBytesMax, kWhyBytesMax, kSearcherBytesMax));
  if (!json::is_utf8(line) || !json::is_utf8(why)) return refused("value", "what is said is no UTF-8");
  if (shell_.is_held()) return refused("later", "the coordinator cannot write its state at the moment");
  const core::Experiment* experiment = shell_.experiment(id);
  if (experiment == nullptr || !experiment->definition().job.tune.contains("search"))
    return refused("state", fmt::format("no program makes trials of {}", id));
  if (searchers_.try_emplace(id, searcher).first->second != searcher)
    return refused("taken", fmt::format("the search program of another command makes the trials of {} now", id));
  const auto trial = tune::trial_given_in(line);
  const bool is_known = trial && experiment->has_trial(*trial);
  if (experiment->takes_search_lines() && !is_known) {
    if (why.empty())
      shell_.search_said(id, line);
    else
      shell_.search_failed(id, why);
  }
  return {{"ok", true}, {"run", id}};
}

}  // namespace sgd::coordinator
