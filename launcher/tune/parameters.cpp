#include "launcher/tune/parameters.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <vector>

#include <fmt/format.h>

#include "common/job/job_schema.hpp"
#include "common/job/overrides.hpp"
#include "common/json/words.hpp"

namespace sgd::tune {
namespace {

using Json = nlohmann::json;

/// Values of one domain that are tried before any trial is made; the others are when their trial is.
constexpr std::size_t kTriedValues = 16;

/// What is written as {name} in an argument, and is a variable's name.
bool is_plain_name(const std::string& name) {
  const auto fits = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  };
  return !name.empty() && (name.front() < '0' || name.front() > '9') && std::all_of(name.begin(), name.end(), fits);
}

std::vector<Json> tried_values(const Domain& domain) {
  if (domain.kind == DomainKind::kNormal) return {domain.low};
  const auto count = domain.count();
  if (!count) return {domain.low, domain.high};
  std::vector<Json> values;
  for (std::uint64_t i = 0; i < std::min<std::uint64_t>(*count, kTriedValues); ++i)
    values.push_back(domain.value_at(i));
  if (*count > kTriedValues) values.back() = domain.value_at(*count - 1);
  return values;
}

/// The first thing that the schema has against `value` at `path`; empty: nothing.
std::string misfit_of(const std::string& path, const Json& value, const json::Schema& schema,
                      const json::Document& job) {
  const job::Overrides set{{{path, value.dump(), "parameter"}}};
  json::Document changed = job;
  Diagnostics found;
  job::apply_overrides(set, changed, found);
  (void)schema.check(changed, "job", found);
  for (const Diagnostic& item : found.items)
    if (item.source == "parameter" && !item.warning) return item.message;
  return {};
}

/// What is looked at once, when the experiment is submitted, and what belongs to all of it.
constexpr std::array kSameForAll = {"tune",        "$schema",          "name",  "callbacks", "checkpoint.after_save",
                                    "resume_from", "run_dir",          "files", "plugins",   "worker",
                                    "priority",    "placement_timeout"};

/// Whether a value at `path` is a part of that at `other`, or holds it.
bool meets(const std::string& path, const std::string& other) {
  return path == other || path.starts_with(other + ".") || other.starts_with(path + ".");
}

void check_path(const std::string& path, const Domain& domain, const json::Schema& schema, const json::Document& job,
                const SourceLocation& location, Diagnostics& diagnostics) {
  for (const char* same : kSameForAll)
    if (meets(path, same))
      return location.error(diagnostics, fmt::format("{} is no parameter: all trials have the same {}",
                                                     json::quote(path), json::quote(same)));
  for (const Json& value : tried_values(domain)) {
    const std::string misfit = misfit_of(path, value, schema, job);
    if (misfit.empty()) continue;
    return location.error(diagnostics, fmt::format("parameter {}: {}", json::quote(path), misfit));
  }
}

/// A command would find one value of the two in its environment.
void check_variables(const Parameters& parameters, const SourceLocation& location, Diagnostics& diagnostics) {
  std::map<std::string, std::string> known;
  for (const auto& [path, domain] : parameters.domains) {
    const auto [other, is_new] = known.try_emplace(variable_of(path), path);
    if (!is_new)
      location.inside(path).error(diagnostics,
                                  fmt::format("parameters {} and {} would both be {}: rename one of them",
                                              json::quote(other->second), json::quote(path), other->first));
  }
}

}  // namespace

Json Parameters::to_json() const {
  Json out = Json::object();
  for (const auto& [path, domain] : domains) out[path] = domain.to_json();
  return out;
}

std::string Parameters::misfit(const Values& values) const {
  if (!values.is_object()) return fmt::format("parameters must be an object, got {}", json::shown(values));
  for (const auto& [path, domain] : domains) {
    const auto value = values.find(path);
    if (value == values.end()) return fmt::format("parameter {} is missing", json::quote(path));
    if (!domain.contains(*value))
      return fmt::format("parameter {} must be {}, got {}", json::quote(path), domain.in_words(), json::shown(*value));
  }
  for (const auto& [path, value] : values.items())
    if (!domains.contains(path)) return fmt::format("parameter {} is not one of the experiment's", json::quote(path));
  return {};
}

Parameters parse_parameters(const Json& given, const SourceLocation& location, Diagnostics& diagnostics) {
  Parameters parameters;
  if (!given.is_object() || given.size() > kParametersMax) return parameters;
  if (given.empty()) location.error(diagnostics, "\"tune.parameters\" must have at least one parameter");
  for (const auto& [path, domain] : given.items())
    if (auto parsed = parse_domain(domain, path, location.inside(path), diagnostics))
      parameters.domains.emplace(path, std::move(*parsed));
  return parameters;
}

std::string variable_of(const std::string& parameter) {
  std::string name = "SGD_PARAM_";
  for (const char c : parameter)
    name += std::isalnum(static_cast<unsigned char>(c)) != 0
                ? static_cast<char>(std::toupper(static_cast<unsigned char>(c)))
                : '_';
  return name;
}

bool is_own_name(const std::string& name, const Json& job) {
  return job.is_object() && job.contains("command") && is_plain_name(name) &&
         !job::job_schema().root()["properties"].contains(name);
}

void check_paths(const Parameters& parameters, const job::LoadResult& loaded, const job::Registered& registered,
                 const SourceLocation& location, Diagnostics& diagnostics) {
  json::Document job = loaded.given;
  if (!job.value.is_object()) return;
  job.value.erase("tune");
  std::optional<json::Schema> extended;
  if (!registered.is_null()) extended = job::job_schema_with(registered);
  const json::Schema& schema = extended ? *extended : job::job_schema();
  for (const auto& [path, domain] : parameters.domains)
    if (!is_own_name(path, job.value)) check_path(path, domain, schema, job, location.inside(path), diagnostics);
  if (job.value.contains("command")) check_variables(parameters, location, diagnostics);
}

job::Overrides overrides_of(const Trial& trial, const Json& job) {
  job::Overrides overrides;
  for (const auto& [path, value] : trial.values.items())
    if (!is_own_name(path, job))
      overrides.sets.push_back({path, value.dump(), fmt::format("trial {}: {}", trial.id, path)});
  return overrides;
}

}  // namespace sgd::tune
