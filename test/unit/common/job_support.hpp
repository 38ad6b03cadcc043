#pragma once
// Loads job texts and shows what came out, with the folder's name left out.

#include <string>
#include <utility>
#include <vector>

#include "common/job/load.hpp"
#include "temporary_folder.hpp"

namespace sgd::test {

/// A small valid training job with further keys at the top and in "training".
inline std::string training_job(const std::string& top = "", const std::string& training = "") {
  return "{" + top + (top.empty() ? "" : ", ") +
         R"("training": {"batch_size": 8, "loss": "mse", "model": {"type": "linear"}, "dataset": {"type": "linear"})" +
         (training.empty() ? "" : ", ") + training + "}}";
}

struct Loaded {
  job::LoadResult result;
  std::vector<std::string> lines;  ///< Diagnostics, with "job.json" for the file.
};

/// `sets` as on the command line: "training.epochs=3".
inline job::Overrides overrides(const std::vector<std::string>& sets) {
  job::Overrides out;
  for (const std::string& set : sets) {
    const std::size_t equals = set.find('=');
    out.sets.push_back({set.substr(0, equals), set.substr(equals + 1), "--set " + set.substr(0, equals)});
  }
  return out;
}

inline std::vector<std::string> lines_of(const Diagnostics& diagnostics, const std::string& folder) {
  std::vector<std::string> lines;
  for (const Diagnostic& item : diagnostics.items) {
    std::string line = item.text();
    for (std::size_t at; (at = line.find(folder)) != std::string::npos;) line.erase(at, folder.size());
    lines.push_back(line);
  }
  return lines;
}

inline Loaded load_text(const std::string& text, const std::vector<std::string>& sets = {}) {
  const TemporaryFolder folder;
  Loaded loaded{job::load_job_file(folder.write("job.json", text), overrides(sets)), {}};
  loaded.lines = lines_of(loaded.result.diagnostics, folder.path(""));
  return loaded;
}

}  // namespace sgd::test
