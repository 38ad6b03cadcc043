#include <filesystem>

#include "common/data/idx.hpp"
#include "common/job/load.hpp"

namespace sgd::job {

void check_data(const JobSpec& job, const std::string& source, Diagnostics& diagnostics) {
  if (!job.training || job.training->dataset["type"] != "idx") return;
  const JobSpec::Place& place = job.dataset_place;
  const std::string path = job.training->dataset["path"];
  for (const data::IdxSplit split : {data::IdxSplit::kTrain, data::IdxSplit::kValidate}) {
    const Result<data::IdxFiles> files = data::find_idx(path, split);
    if (files.ok()) continue;
    diagnostics.error(place.source.empty() ? source : place.source, place.line, place.column, files.error().message);
    std::error_code error;
    if (!std::filesystem::is_directory(path, error)) return;  // One missing folder is one error.
  }
}

}  // namespace sgd::job
