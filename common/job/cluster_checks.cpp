#include "common/job/cluster_checks.hpp"

#include <fmt/format.h>

#include "common/job/cross_checks.hpp"
#include "common/json/lenient.hpp"
#include "common/json/words.hpp"

namespace sgd::job {

void check_for_cluster(LoadResult& loaded) {
  if (!loaded.job) return;
  const auto refuse = [&loaded](const std::string& path, const std::string& why) {
    const SourceLocation location = find_location(loaded.given.source_map, loaded.source, path);
    loaded.diagnostics.error(location.source, location.value.line, location.value.column,
                             fmt::format("{} {}", json::quote(path), why));
  };
  if (loaded.job->resume_from.find('/') != std::string::npos)
    refuse("resume_from",
           "is a path, which is for a run on this machine: a coordinator looks into its own runs alone. Name one of "
           "them (sgd-launch ps --all), or RUN:CHECKPOINT");
  if (loaded.job->checkpoint.after_save)
    refuse("checkpoint.after_save",
           "is for a run on this machine: a coordinator starts no program of a job. Leave it out, and where you are: "
           "sgd-launch checkpoints get RUN DIR");
  for (std::size_t i = 0; i < loaded.job->callbacks.size(); ++i) {
    const nlohmann::json& callback = loaded.job->callbacks[i];
    const std::string path = fmt::format("callbacks[{}]", i);
    if (callback["type"] == "exec")
      refuse(path + ".type",
             "\"exec\" is for a run on this machine: a coordinator starts no program of a job. Leave it out, and where "
             "you are: sgd-launch metrics -f RUN | PROGRAM");
    if (callback.contains("folder"))
      refuse(path + ".folder",
             "is for a run on this machine: a coordinator writes into the run's own folder alone. Leave it out");
  }
  if (loaded.diagnostics.has_errors()) loaded.job.reset();
}

}  // namespace sgd::job
