// RunService: what an experiment's search program says, which runs beside the client that has submitted it.

#include <fmt/format.h>

#include "common/json/lenient.hpp"
#include "common/json/words.hpp"
#include "launcher/coordinator/run_service.hpp"
#include "launcher/tune/search_protocol.hpp"

namespace sgd::coordinator {
namespace {

constexpr std::size_t kWhyBytesMax = 4 << 10;

}  // namespace

/// A line may come again after a lost connection: a trial that is there is not given twice by it.
Json RunService::search(const Requester& who, const nlohmann::json& request) {
  const auto run = find(read_or(request, "run", ""));
  if (!run) return refused("run", run.error().message);
  const RunId& id = run.value().id;
  if (const std::string forbidden = refusal_of_change(who, id, run.value().owner); !forbidden.empty()) {
    audit_.add(who, "search", {{"run", id}}, forbidden);
    return refused("forbidden", forbidden);
  }
  const std::string line = read_or(request, "line", "");
  const std::string why = read_or(request, "why", "");
  if (line.empty() == why.empty() || line.size() > tune::kSearchLineBytesMax || why.size() > kWhyBytesMax)
    return refused("value", fmt::format("\"line\", of at most {} bytes, or \"why\", of at most {}, is needed",
                                        tune::kSearchLineBytesMax, kWhyBytesMax));
  if (!json::is_utf8(line) || !json::is_utf8(why)) return refused("value", "what is said is no UTF-8");
  if (shell_.is_held()) return refused("later", "the coordinator cannot write its state at the moment");
  const core::Experiment* experiment = shell_.experiment(id);
  if (experiment == nullptr || !experiment->definition().job.tune.contains("search"))
    return refused("state", fmt::format("no program makes trials of {}", id));
  const auto trial = tune::trial_given_in(line);
  const bool is_known = trial && experiment->has_trial(*trial);
  if (experiment->hears_search() && !is_known) {
    if (why.empty())
      shell_.search_said(id, line);
    else
      shell_.search_failed(id, why);
  }
  return {{"ok", true}, {"run", id}};
}

}  // namespace sgd::coordinator
