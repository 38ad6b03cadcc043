// The schema as a document: every key is explained, and what it says holds for itself.

#include <catch2/catch.hpp>

#include "common/job/job_schema.hpp"
#include "common/job/load.hpp"
#include "common/json/pattern.hpp"

namespace sgd::json {
namespace {

/// Calls `visit(path, node)` for every described key.
template <class Visit>
void for_each_key(const Schema& schema, const nlohmann::json& unresolved, const std::string& path, Visit visit) {
  const nlohmann::json& node = schema.resolve(unresolved);
  if (node.contains("oneOf")) {
    for (const auto& variant : node["oneOf"]) for_each_key(schema, variant, path, visit);
  }
  if (!node.contains("properties")) return;
  for (const auto& [key, child] : node["properties"].items()) {
    visit(joined(path, key), child);
    for_each_key(schema, child, joined(path, key), visit);
  }
}

const nlohmann::json& described(const Schema& schema, const nlohmann::json& node, const char* word) {
  return node.contains(word) ? node : schema.resolve(node);
}

}  // namespace

TEST_CASE("schema: every key has a title, a description and, once built, examples or members") {
  const Schema& schema = job::job_schema();
  int keys = 0;
  for_each_key(schema, schema.root(), "", [&](const std::string& path, const nlohmann::json& node) {
    INFO(path);
    ++keys;
    CHECK(described(schema, node, "title").contains("title"));
    CHECK(described(schema, node, "description").contains("description"));
    const nlohmann::json& rules = schema.resolve(node);
    if (rules.contains("x-not-supported-yet") || rules.contains("const") || rules.contains("properties")) return;
    CHECK(described(schema, node, "examples").contains("examples"));
  });
  CHECK(keys > 80);
}

TEST_CASE("schema: defaults and examples obey their own rules") {
  const Schema& schema = job::job_schema();
  for_each_key(schema, schema.root(), "", [&](const std::string& path, const nlohmann::json& node) {
    INFO(path);
    if (path == "training.function") return;  // Only plug-ins have any.
    nlohmann::json values = nlohmann::json::array();
    const nlohmann::json& with_default = described(schema, node, "default");
    if (with_default.contains("default")) values.push_back(with_default["default"]);
    const nlohmann::json& with_examples = described(schema, node, "examples");
    if (with_examples.contains("examples")) {
      for (const auto& example : with_examples["examples"]) values.push_back(example);
    }
    // The key alone in an object of its own, with this node's rules.
    nlohmann::json wrapper{{"type", "object"}, {"properties", {{"key", node}}}};
    wrapper["definitions"] = schema.root()["definitions"];
    const Schema alone(wrapper);
    for (const auto& value : values) {
      Document document;
      document.value = {{"key", value}};
      Diagnostics diagnostics;
      (void)alone.check(document, "schema", diagnostics);
      for (const Diagnostic& item : diagnostics.items) FAIL_CHECK(item.text());
    }
  });
}

TEST_CASE("schema: aliases lead to keys that exist") {
  const Schema& schema = job::job_schema();
  for (const auto& [alias, path] : schema.root()["x-aliases"].items()) {
    INFO(alias);
    CHECK_FALSE(schema.nodes_at(path.get<std::string>(), nlohmann::json::object()).empty());
    CHECK_FALSE(schema.root()["properties"].contains(alias));
  }
}

TEST_CASE("schema: which paths take text as it is typed") {
  const Schema& schema = job::job_schema();
  const nlohmann::json job{{"training", {{"model", {{"type", "mlp"}}}}}};
  for (const char* path : {"name", "stop.grace", "training.optimizer.type", "training.dataset.path"}) {
    INFO(path);
    CHECK(schema.wants_string(path, job));
  }
  for (const char* path :
       {"num_workers", "recovery.max_failures", "checkpoint.every", "training.model", "command", "training.loss",
        "training.model.init", "training.model.hidden", "unknown", "training.unknown.deep"}) {
    INFO(path);
    CHECK_FALSE(schema.wants_string(path, job));
  }
}

TEST_CASE("schema: a pattern is looked for in text of any length") {
  const auto faults = [](const std::string& redirects) {
    Document job;
    job.value = {{"command", nlohmann::json::array({"true"})}, {"process", {{"redirects", redirects}}}};
    Diagnostics wrong;
    (void)job::job_schema().check(job, "job.json", wrong);
    return wrong.items.size();
  };
  std::string pairs = "0:3";
  while (pairs.size() < 65'000) pairs += ",12:1";
  CHECK(faults(pairs) == 0);
  CHECK(faults(pairs + ",") == 1);
  CHECK(faults(std::string(65'000, '3')) == 1);
}

TEST_CASE("schema: patterns mean what they say") {
  const json::Pattern name("^[A-Za-z0-9][A-Za-z0-9._-]*$");
  for (const char* good : {"a", "9", "a-b_c.d", "A.-"}) CHECK(name.is_in(good));
  for (const char* bad : {"", "-a", ".", "a b", "a\n", "\na", "\xc3\xbc"}) CHECK_FALSE(name.is_in(bad));
  const json::Pattern size("^[0-9]+(\\.[0-9]+)?(B|kB|MiB)$");
  for (const char* good : {"1B", "1.5MiB", "007kB"}) CHECK(size.is_in(good));
  for (const char* bad : {"B", "1,5MiB", "1.MiB", "1MiBs", " 1B"}) CHECK_FALSE(size.is_in(bad));
}

}  // namespace sgd::json
