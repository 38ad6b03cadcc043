// What `sgd-worker --list` says, of the schema and of what plug-ins add to it.

#include <catch2/catch.hpp>

#include <algorithm>

#include "common/job/job_schema.hpp"
#include "common/job/type_list.hpp"

namespace sgd::job {
namespace {

std::vector<std::string> names_of(const json::Schema& schema, const std::string& kind) {
  std::vector<std::string> names;
  const auto types = list_types(schema, kind);
  REQUIRE(types.has_value());
  for (const ListedType& type : *types) names.push_back(type.name);
  return names;
}

bool has(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

const ListedType& type_in(const std::vector<ListedType>& types, const std::string& name) {
  const auto found =
      std::find_if(types.begin(), types.end(), [&](const ListedType& type) { return type.name == name; });
  REQUIRE(found != types.end());
  return *found;
}

}  // namespace

TEST_CASE("type list: every kind has its types, each once and by name") {
  const json::Schema& schema = job_schema();
  CHECK(listed_kinds() == std::vector<std::string>{"datasets", "functions", "losses", "metrics", "models", "operators",
                                                   "optimizers", "schedulers"});
  for (const std::string& kind : listed_kinds()) {
    INFO(kind);
    const std::vector<std::string> names = names_of(schema, kind);
    CHECK(names.empty() == (kind == "functions"));  // All of those are users' own.
    CHECK(std::is_sorted(names.begin(), names.end()));
    CHECK(std::adjacent_find(names.begin(), names.end()) == names.end());
  }
  CHECK(has(names_of(schema, "models"), "mlp"));
  CHECK(has(names_of(schema, "datasets"), "csv"));
  CHECK(has(names_of(schema, "optimizers"), "adamw"));
  CHECK(has(names_of(schema, "schedulers"), "one_cycle"));
  CHECK(has(names_of(schema, "losses"), "cross_entropy"));
  CHECK(has(names_of(schema, "metrics"), "top_k"));
  CHECK(has(names_of(schema, "operators"), "supervised"));
  CHECK_FALSE(list_types(schema, "modles").has_value());
}

TEST_CASE("type list: keys with values, defaults and what must be given") {
  const auto optimizers = *list_types(job_schema(), "optimizers");
  const ListedType& adam = type_in(optimizers, "adam");
  CHECK(adam.description == "As torch.optim.Adam.");
  const auto& keys = adam.keys;
  const auto lr = std::find_if(keys.begin(), keys.end(), [](const ListedKey& key) { return key.name == "lr"; });
  REQUIRE(lr != keys.end());
  CHECK_FALSE(lr->fallback.is_null());
  CHECK_FALSE(lr->is_required);
  CHECK(std::any_of(keys.begin(), keys.end(), [](const ListedKey& key) { return key.name == "groups"; }));
  const auto metrics = *list_types(job_schema(), "metrics");
  CHECK(as_text({type_in(metrics, "top_k")}) ==
        "top_k: Share of targets whose class is among the k largest outputs.\n"
        "  ignore_index  integer from -2147483648 to 2147483647  -100          Targets of this value are left out.\n"
        "  k             integer from 1 to 16777216              5             How many outputs count.\n"
        "  on            \"validation\", \"train\" or \"both\"         \"validation\"  Of which batches: those of "
        "validation, of training, or of both.\n");
}

TEST_CASE("type list: what plug-ins register stands beside the built-in types, in JSON too") {
  const nlohmann::json registered = {
      {"model", {{"wide", {{"width", {{"type", "integer"}, {"minimum", 1}, {"default", 64}}}}}}}};
  const json::Schema schema = job_schema_with(registered);
  CHECK(has(names_of(schema, "models"), "mlp"));
  const auto models = as_json(*list_types(schema, "models"));
  const auto wide = std::find_if(models.begin(), models.end(), [](const auto& one) { return one["name"] == "wide"; });
  REQUIRE(wide != models.end());
  const nlohmann::json key = {
      {"name", "width"}, {"values", "integer from 1"}, {"default", 64}, {"required", false}, {"description", ""}};
  CHECK(nlohmann::json((*wide)["keys"].back()) == key);
  CHECK((*wide)["keys"].size() == 3);  // And what every model takes: init, weights.
}

}  // namespace sgd::job
