#include "worker/plugin/registered.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "common/job/job_schema.hpp"
#include "common/json/extension.hpp"

namespace sgd {
namespace worker {
namespace {

bool is_built_in(const std::string& kind, const std::string& name) {
  return job::job_schema().variant_for(job::types_of(job::job_schema(), kind), {{"type", name}}) != nullptr;
}

template <class Factory>
void add(const std::string& kind, std::map<std::string, Factory>& table, const std::string& name,
         const std::string& text, Factory factory) {
  RegisteredTypes& all = registered_types();
  const auto fault = [&](const std::string& what) {
    all.faults.push_back(fmt::format("the {} \"{}\": {}", kind, name, what));
  };
  if (name.empty()) return fault("it has no name");
  if (is_built_in(kind, name)) return fault("a built-in one has this name: take another");
  if (all.properties[kind].contains(name)) return fault("it is registered twice: take another name");
  nlohmann::json properties = nlohmann::json::parse(text.empty() ? "{}" : text, nullptr, false);
  if (properties.is_discarded()) return fault("its properties are no JSON");
  if (const std::string wrong = json::fault_of_properties(properties); !wrong.empty())
    return fault("its properties: " + wrong);
  all.properties[kind][name] = std::move(properties);
  table.emplace(name, std::move(factory));
}

}  // namespace

RegisteredTypes& registered_types() {
  static RegisteredTypes types;
  return types;
}

const nlohmann::json& registered_properties() {
  return registered_types().properties;
}

const std::vector<std::string>& registration_faults() {
  return registered_types().faults;
}

bool has_registered() {
  const nlohmann::json& all = registered_properties();
  return std::any_of(all.begin(), all.end(), [](const nlohmann::json& types) { return !types.empty(); });
}

bool has_registered_dataset(const std::string& name) {
  return registered_types().datasets.contains(name) || registered_types().streams.contains(name);
}

}  // namespace worker

Registration::Registration(const char* name, const char* properties, OperatorFactory factory) {
  worker::add("operator", worker::registered_types().operators, name, properties, std::move(factory));
}

Registration::Registration(const char* name, const char* properties, ModelFactory factory) {
  worker::add("model", worker::registered_types().models, name, properties, std::move(factory));
}

Registration::Registration(const char* name, const char* properties, TrainingFunction function) {
  worker::add("function", worker::registered_types().functions, name, properties, std::move(function));
}

Registration::Registration(const char* name, const char* properties, DatasetFactory factory) {
  worker::add("dataset", worker::registered_types().datasets, name, properties, std::move(factory));
}

Registration::Registration(const char* name, const char* properties, IterableFactory factory) {
  worker::add("dataset", worker::registered_types().streams, name, properties, std::move(factory));
}

Registration::Registration(const char* name, const char* properties, LossFactory factory) {
  worker::add("loss", worker::registered_types().losses, name, properties, std::move(factory));
}

}  // namespace sgd
