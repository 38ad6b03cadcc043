// Domains, what is drawn of them, and the list of trials.

#include <cmath>
#include <set>

#include <catch2/catch.hpp>

#include "launcher/tune/trial_list.hpp"

namespace sgd::tune {
namespace {

using Json = nlohmann::json;

Domain domain_of(const Json& given) {
  Diagnostics diagnostics;
  auto domain = parse_domain(given, "p", {}, diagnostics);
  for (const Diagnostic& item : diagnostics.items) FAIL_CHECK(item.text());
  REQUIRE(domain.has_value());
  return *domain;
}

Parameters parameters_of(const Json& given) {
  Parameters parameters;
  for (const auto& [path, domain] : given.items()) parameters.domains[path] = domain_of(domain);
  return parameters;
}

}  // namespace

TEST_CASE("domain: all that is drawn lies in it, and is written back as it was") {
  struct Row {
    Json given;
    double low;
    double high;
    std::optional<std::uint64_t> count;
    const char* words;
  };
  const Row rows[] = {
      {{{"uniform", {-1, 1}}}, -1, 1, {}, "a number from -1.0 to 1.0"},
      {{{"loguniform", {1e-4, 0.1}}}, 1e-4, 0.1, {}, "a number from 0.0001 to 0.1"},
      {{{"quniform", {0, 0.5, 0.1}}}, 0, 0.5, 6, "a multiple of 0.1 from 0.0 to 0.5"},
      {{{"qloguniform", {0.01, 1, 0.01}}}, 0.01, 1, 100, "a multiple of 0.01 from 0.01 to 1.0"},
      {{{"randint", {1, 10}}}, 1, 9, 9, "a whole number from 1 to 9"},
      {{{"qrandint", {16, 128, 16}}}, 16, 128, 8, "a whole multiple of 16 from 16 to 128"},
      {{{"normal", {5, 0.5}}}, 3, 7, {}, "a number"},
      {{{"choice", {1, 2, 4}}}, 1, 4, 3, "1, 2 or 4"},
      {{{"grid", {1, 2, 4}}}, 1, 4, 3, "1, 2 or 4"},
  };
  for (const Row& row : rows) {
    INFO(row.given.dump());
    const Domain domain = domain_of(row.given);
    CHECK(domain.count() == row.count);
    CHECK(domain.in_words() == row.words);
    CHECK(domain_of(domain.to_json()).to_json() == domain.to_json());
    double least = 1e9;
    double most = -1e9;
    for (std::uint64_t i = 0; i < 2000; ++i) {
      KeyedRandom chance(1, "draw", i);
      const Json value = domain.draw(chance);
      CHECK(domain.contains(value));
      CHECK(value.is_number_integer() ==
            (domain.is_whole() || row.given.contains("choice") || row.given.contains("grid")));
      least = std::min(least, value.get<double>());
      most = std::max(most, value.get<double>());
    }
    CHECK(least >= row.low);
    CHECK(most <= row.high);
    CHECK(least <= row.low + (row.high - row.low) / 4);
    CHECK(most >= row.high - (row.high - row.low) / 4);
    if (!row.count) continue;
    CHECK(domain.value_at(0).get<double>() == row.low);
    CHECK(domain.value_at(*row.count - 1).get<double>() == row.high);
  }
}

TEST_CASE("domain: draws are even, in the logarithm where that is asked") {
  const auto share_below = [](const Json& given, double bound) {
    const Domain domain = domain_of(given);
    int below = 0;
    for (std::uint64_t i = 0; i < 4000; ++i) {
      KeyedRandom chance(2, "draw", i);
      if (domain.draw(chance).get<double>() < bound) ++below;
    }
    return below / 4000.0;
  };
  CHECK(share_below({{"uniform", {0, 10}}}, 2.5) == Approx(0.25).margin(0.03));
  CHECK(share_below({{"loguniform", {1e-4, 1}}}, 1e-2) == Approx(0.5).margin(0.03));
  CHECK(share_below({{"quniform", {0, 1, 0.25}}}, 0.1) == Approx(0.2).margin(0.03));  // Ends are as likely as others.
  CHECK(share_below({{"randint", {0, 4}}}, 1) == Approx(0.25).margin(0.03));
  CHECK(share_below({{"normal", {3, 2}}}, 1) == Approx(0.1587).margin(0.02));
}

TEST_CASE("domain: multiples are written as people write them") {
  const Domain tenths = domain_of({{"quniform", {0, 1, 0.1}}});
  for (std::uint64_t i = 0; i <= 10; ++i)
    CHECK(tenths.value_at(i).dump().size() == 3);  // 0.3, not 0.30000000000000004.
  CHECK(domain_of({{"quniform", {0, 3, 1.5}}}).value_at(1) == 1.5);
  CHECK(domain_of({{"quniform", {-0.2, 0.1, 0.1}}}).count() == 4);
}

TEST_CASE("domain: what lies in it") {
  struct Row {
    Json domain;
    Json value;
    bool is_in;
  };
  const Row rows[] = {
      {{{"uniform", {0, 1}}}, 0.5, true},
      {{{"uniform", {0, 1}}}, 1, true},
      {{{"uniform", {0, 1}}}, 1.01, false},
      {{{"uniform", {0, 1}}}, "0.5", false},
      {{{"uniform", {0, 1}}}, nullptr, false},
      {{{"quniform", {0, 1, 0.1}}}, 0.3, true},
      {{{"quniform", {0, 1, 0.1}}}, 0.30000000000000004, true},
      {{{"quniform", {0, 1, 0.1}}}, 0.35, false},
      {{{"quniform", {0, 1, 0.1}}}, 1.1, false},
      {{{"randint", {0, 4}}}, 3, true},
      {{{"randint", {0, 4}}}, 4, false},
      {{{"randint", {0, 4}}}, 3.0, false},
      {{{"qrandint", {0, 4, 2}}}, 3, false},
      {{{"choice", {"a", true}}}, true, true},
      {{{"choice", {"a", true}}}, "b", false},
      {{{"normal", {0, 1}}}, 1e9, true},
      {{{"normal", {0, 1}}}, "x", false},
  };
  for (const Row& row : rows) {
    INFO(row.domain.dump() << " " << row.value.dump());
    CHECK(domain_of(row.domain).contains(row.value) == row.is_in);
  }
}

TEST_CASE("trials: every grid point as often as there are samples, the last parameter first") {
  const Parameters parameters = parameters_of(
      {{"a", {{"grid", {1, 2}}}}, {"b", {{"grid", {"x", "y", "z"}}}}, {"lr", {{"loguniform", {1e-4, 0.1}}}}});
  CHECK(points(parameters, ListKind::kRandom) == 6);
  CHECK(points(parameters, ListKind::kGrid) == std::nullopt);
  const TrialList list(parameters, ListKind::kRandom, 2, 5);
  REQUIRE(list.size() == 12);
  std::string order;
  std::set<Json> rates;
  for (TrialId i = 0; i < list.size(); ++i) {
    const Trial trial = list.at(i);
    CHECK(trial.id == i);
    order += trial.values.at("a").dump() + trial.values.at("b").get<std::string>() + " ";
    rates.insert(trial.values.at("lr"));
    CHECK(parameters.misfit(trial.values).empty());
  }
  CHECK(order == "1x 1y 1z 2x 2y 2z 1x 1y 1z 2x 2y 2z ");
  CHECK(rates.size() == 12);
}

TEST_CASE("trials: one follows from its number alone, and from the seed") {
  const Json given{{"lr", {{"loguniform", {1e-4, 0.1}}}}, {"width", {{"randint", {1, 100}}}}};
  const TrialList list(parameters_of(given), ListKind::kRandom, 10'000, 5);
  const TrialList more(parameters_of(given), ListKind::kRandom, 20'000, 5);
  const TrialList other(parameters_of(given), ListKind::kRandom, 10'000, 6);
  CHECK(list.at(9'999).values == more.at(9'999).values);
  CHECK(list.at(9'999).values != other.at(9'999).values);
  CHECK(list.at(9'999).values != list.at(9'998).values);
  // A parameter's values do not change with another one beside it.
  Json with = given;
  with["dropout"] = {{"uniform", {0, 0.5}}};
  CHECK(TrialList(parameters_of(with), ListKind::kRandom, 10, 5).at(7).values.at("lr") == list.at(7).values.at("lr"));
  // What others have reproduced with a seed stays what it was.
  CHECK(list.at(0).values.at("width") == 88);
  CHECK(list.at(1).values.at("width") == 15);
}

TEST_CASE("trials: the search \"grid\" walks all values of all parameters") {
  const Parameters parameters =
      parameters_of({{"a", {{"choice", {1, 2}}}}, {"b", {{"randint", {0, 3}}}}, {"c", {{"quniform", {0, 1, 0.5}}}}});
  CHECK(points(parameters, ListKind::kRandom) == 1);
  REQUIRE(points(parameters, ListKind::kGrid) == 18);
  const TrialList list(parameters, ListKind::kGrid, 1, 0);
  std::set<Json> seen;
  for (TrialId i = 0; i < list.size(); ++i) seen.insert(list.at(i).values);
  CHECK(seen.size() == 18);
  Parameters many;
  for (int i = 0; i < 7; ++i) many.domains["p" + std::to_string(i)] = domain_of({{"randint", {0, 1000}}});
  CHECK(points(many, ListKind::kGrid) == std::nullopt);  // 10^21.
}

TEST_CASE("trials: values that a program gave are looked at") {
  const Parameters parameters = parameters_of({{"a", {{"choice", {1, 2}}}}, {"b", {{"randint", {0, 3}}}}});
  CHECK(parameters.misfit({{"a", 1}, {"b", 2}}).empty());
  CHECK(parameters.misfit({{"a", 1}}) == "parameter \"b\" is missing");
  CHECK(parameters.misfit({{"a", 3}, {"b", 2}}) == "parameter \"a\" must be 1 or 2, got 3");
  CHECK(parameters.misfit({{"a", 1}, {"b", 2}, {"c", 2}}) == "parameter \"c\" is not one of the experiment's");
  CHECK(parameters.misfit(Json::array()) == "parameters must be an object, got an array");
}

TEST_CASE("trials: as overrides of a job; a command's own names are no paths of it") {
  const Json command{{"command", {"true"}}};
  const Json training{{"training", Json::object()}};
  CHECK(is_own_name("lr", command));
  CHECK_FALSE(is_own_name("lr", training));
  CHECK_FALSE(is_own_name("num_workers", command));
  CHECK_FALSE(is_own_name("per_worker.cpus", command));
  CHECK_FALSE(is_own_name("2nd", command));
  const job::Overrides overrides = overrides_of({7, {{"lr", 0.5}, {"num_workers", 2}, {"workdir", "x"}}}, command);
  REQUIRE(overrides.sets.size() == 2);
  CHECK(overrides.sets[0].path == "num_workers");
  CHECK(overrides.sets[0].value == "2");
  CHECK(overrides.sets[0].source == "trial 7: num_workers");
  CHECK(overrides.sets[1].value == "\"x\"");
}

}  // namespace sgd::tune
