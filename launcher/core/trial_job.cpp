#include "launcher/core/trial_job.hpp"

#include <utility>

#include "common/job/overrides.hpp"
#include "common/json/lenient.hpp"
#include "common/json/reader.hpp"

namespace sgd::core {
namespace {

/// `text` with each {name} of a parameter replaced; other braces are the command's own.
std::string filled(const std::string& text, const tune::Values& values) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t open = text.find('{', at);
    const std::size_t close = open == std::string::npos ? open : text.find('}', open);
    if (close == std::string::npos) return out + text.substr(at);
    const auto value = values.find(text.substr(open + 1, close - open - 1));
    const std::size_t end = value == values.end() ? open + 1 : close + 1;
    out += text.substr(at, (value == values.end() ? end : open) - at);
    if (value != values.end()) out += word_of(*value);
    at = end;
  }
  return out;
}

void fill_command(nlohmann::json& job, const tune::Values& values) {
  nlohmann::json& command = job["command"];
  if (command.is_array())
    for (nlohmann::json& word : command)
      if (word.is_string()) word = filled(word.get<std::string>(), values);
  nlohmann::json& environment = job["env"];
  if (environment.is_null()) environment = nlohmann::json::object();
  for (nlohmann::json& value : environment)
    if (value.is_string()) value = filled(value.get<std::string>(), values);
  for (const auto& [name, value] : values.items()) environment[tune::variable_of(name)] = word_of(value);
}

/// What it prints counts where it reports nothing: many programs know of no launcher.
void take_last_line(nlohmann::json& job) {
  nlohmann::json& report = job["report"];
  if (report.is_null()) report = nlohmann::json::object();
  if (report.is_object() && !report.contains("last_line")) report["last_line"] = true;
}

/// The state of its best epoch stays, beside the newest: it is what the experiment is for.
void keep_best(nlohmann::json& job, const tune::ExperimentSpec& spec) {
  nlohmann::json& checkpoint = job["checkpoint"];
  if (checkpoint.is_null()) checkpoint = nlohmann::json::object();
  if (!checkpoint.is_object() || read_or(checkpoint, "every", "") == "never") return;
  nlohmann::json& keep = checkpoint["keep"];
  if (keep.is_null()) keep = nlohmann::json::object();
  if (keep.is_number()) keep = nlohmann::json{{"latest", keep}};
  if (!keep.is_object() || keep.contains("best")) return;
  keep["best"] = {{"metric", spec.metric}, {"mode", spec.mode == tune::Mode::kMax ? "max" : "min"}, {"n", 1}};
}

}  // namespace

std::string word_of(const nlohmann::json& value) {
  return value.is_string() ? value.get<std::string>() : dump_text(value);
}

job::LoadResult trial_job(const TrialBase& base, const tune::ExperimentSpec& spec, const tune::Trial& trial,
                          const std::string& origin) {
  nlohmann::json job = base.given;
  job.erase("tune");
  if (job.contains("training")) keep_best(job, spec);
  if (!origin.empty()) job["resume_from"] = origin;
  job::Overrides overrides = tune::overrides_of(trial, job);
  if (job.contains("command")) {
    // Its values first: a command and an environment that are tried have {name}, too.
    json::Document changed{job, {}};
    Diagnostics found;
    job::apply_overrides(overrides, changed, found);
    if (found.has_errors()) return job::load_given(job, base.folder, overrides);
    overrides.sets.clear();
    job = std::move(changed.value);
    fill_command(job, trial.values);
    take_last_line(job);
  }
  return job::load_given(job, base.folder, overrides);
}

}  // namespace sgd::core
