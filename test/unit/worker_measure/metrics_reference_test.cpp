// Every metric against what NumPy made of the same samples (data/make_metrics_reference.py).
#include <catch2/catch.hpp>

#include <cmath>
#include <fstream>

#include "sgd/metrics.hpp"

namespace sgd {
namespace {

using Json = nlohmann::json;

Json metrics_reference() {
  std::ifstream file(SGD_SOURCE_DIR "/test/unit/worker_measure/data/metrics_reference.json");
  return Json::parse(file);
}

at::Tensor rows_of(const Json& rows) {
  std::vector<double> numbers;
  for (const Json& row : rows)
    for (const Json& number : row) numbers.push_back(number);
  return at::tensor(numbers, at::kDouble).view({static_cast<std::int64_t>(rows.size()), -1});
}

void check_equal(const Json& ours, const Json& theirs) {
  if (theirs.is_array()) {
    REQUIRE(ours.size() == theirs.size());
    for (std::size_t at = 0; at < theirs.size(); ++at) check_equal(ours[at], theirs[at]);
  } else if (theirs.is_null()) {
    CHECK(std::isnan(ours.get<double>()));
  } else {
    CHECK(ours.get<double>() == Approx(theirs.get<double>()).epsilon(1e-12));
  }
}

/// Every value that one metric gives.
void check_metric(const Json& settings, const at::Tensor& output, const at::Tensor& target, const Json& expected) {
  const auto metric = make_metric(settings);
  metric->add(output, target);
  const Json values = Json(metric->values());
  CHECK_FALSE(values.empty());
  for (const auto& [name, value] : values.items()) {
    INFO(name);
    REQUIRE(expected.contains(name));
    check_equal(value, expected.at(name));
  }
}

}  // namespace

TEST_CASE("metrics of classes: NumPy agrees") {
  const Json reference = metrics_reference();
  for (const Json& one : reference.at("classes")) {
    const at::Tensor output = rows_of(one.at("output"));
    const at::Tensor target = at::tensor(one.at("target").get<std::vector<std::int64_t>>(), at::kLong);
    std::vector<Json> all = {{{"type", "accuracy"}}, {{"type", "confusion_matrix"}}, {{"type", "perplexity"}}};
    for (const int k : {1, 2, 4})
      if (k <= output.size(1)) all.push_back({{"type", "top_k"}, {"k", k}});
    for (const char* average : {"macro", "micro", "per_class"}) {
      for (const char* type : {"precision", "recall"}) all.push_back({{"type", type}, {"average", average}});
      for (const double beta : {1.0, 2.0, 0.5})
        all.push_back({{"type", "f_beta"}, {"beta", beta}, {"average", average}});
    }
    for (Json& settings : all) {
      settings["ignore_index"] = reference.at("ignored");
      check_metric(settings, output, target, one.at("values"));
    }
  }
}

TEST_CASE("metrics of numbers: NumPy agrees") {
  const Json reference = metrics_reference();
  for (const Json& one : reference.at("numbers"))
    for (const char* type : {"mae", "mse", "r2"})
      check_metric({{"type", type}}, rows_of(one.at("output")), rows_of(one.at("target")), one.at("values"));
}

}  // namespace sgd
