#include "launcher/core/report_reducer.hpp"

#include <catch2/catch.hpp>

using namespace sgd;
using core::ReportReducer;
using Json = nlohmann::json;

namespace {

link::ReportKey key(int epoch, const char* phase = "train", std::int64_t batch = 0) {
  return {epoch, phase, batch, 0};
}

}  // namespace

TEST_CASE("report: means of ranks that counted different numbers of samples are weighted by these") {
  const auto reduced = sgd::core::reduce_metrics(
      {{{"batch_count", 10}, {"num_samples", 30}, {"train_loss", 1.0}, {"last_train_loss", 1.0}},
       {{"batch_count", 10}, {"num_samples", 10}, {"train_loss", 2.0}, {"last_train_loss", 2.0}}});
  CHECK(reduced.at("num_samples") == 40);
  CHECK(reduced.at("batch_count") == 10);
  CHECK(reduced.at("train_loss") == 1.25);
  CHECK(reduced.at("last_train_loss") == 1.5);
}

TEST_CASE(
    "reduction: num_samples is summed, other numbers are the mean, by samples where ranks differ, that ignores NaN") {
  const auto reduced = core::reduce_metrics({
      Json{{"epoch", 1},
           {"num_samples", 10},
           {"train_loss", 1.0},
           {"nan_once", nullptr},
           {"text", "zero"},
           {"only_zero", 4}},
      Json{{"epoch", 1}, {"num_samples", 30}, {"train_loss", 2.0}, {"nan_once", 6.0}, {"text", "one"}, {"only_one", 5}},
  });
  CHECK(reduced.at("num_samples") == 40);
  CHECK(reduced.at("train_loss") == 1.75);
  CHECK(reduced.at("nan_once") == 6.0);
  CHECK(reduced.at("text") == "zero");
  CHECK(reduced.at("only_zero") == 4.0);
  CHECK_FALSE(reduced.contains("only_one"));
  CHECK(reduced.at("epoch").is_number_float());
}

TEST_CASE("reduction: a sum of whole numbers is exact, and one that is none any more is rounded and has its sign") {
  constexpr std::int64_t kLarge = 9'007'199'254'740'993;  // 2^53 + 1.
  const auto sum_of = [](const Json& left, const Json& right) {
    return core::reduce_metrics({Json{{"num_samples", left}}, Json{{"num_samples", right}}}).at("num_samples");
  };
  CHECK(sum_of(kLarge, 2) == kLarge + 2);
  const auto beyond = sum_of(std::int64_t{9'000'000'000'000'000'000}, std::int64_t{9'000'000'000'000'000'000});
  CHECK(beyond.get<double>() == 1.8e19);
  CHECK(sum_of(std::uint64_t{18'000'000'000'000'000'000U}, 1).get<double>() == 1.8e19);
}

TEST_CASE("reduction: what rank 0 lacks because it had no sample comes from the ranks that had some") {
  const Json none = {{"epoch", 3}, {"batch_count", 0}, {"num_samples", 0}};
  const auto reduced = core::reduce_metrics(
      {none, none, Json{{"epoch", 3}, {"batch_count", 2}, {"num_samples", 20}, {"val_loss", 0.5}, {"text", "two"}},
       Json{{"epoch", 3}, {"batch_count", 2}, {"num_samples", 60}, {"val_loss", 0.25}, {"text", "three"}}});
  CHECK(reduced.at("epoch") == 3);
  CHECK(reduced.at("num_samples") == 80);
  CHECK(reduced.at("val_loss") == 0.3125);
  CHECK(reduced.at("text") == "two");
  CHECK(core::reduce_metrics({none, none}).at("num_samples") == 0);
  CHECK_FALSE(core::reduce_metrics({none, none}).contains("val_loss"));
}

TEST_CASE("reduction: a rank without num_samples makes the sum NaN, all NaN stays NaN") {
  const auto reduced = core::reduce_metrics({Json{{"num_samples", 10}, {"loss", nullptr}}, Json{{"loss", nullptr}}});
  CHECK(reduced.at("num_samples").is_null());
  CHECK(reduced.at("loss").is_null());
}

TEST_CASE("reduction: an infinite number of one rank makes the mean infinite, which is null in a line") {
  const Json small = {{"num_samples", 10}, {"up", 0.5}, {"down", 0.5}, {"both", "-Infinity"}};
  const Json large = {{"num_samples", 30}, {"up", "Infinity"}, {"down", "-Infinity"}, {"both", "Infinity"}};
  for (const auto& per_rank : {std::vector{small, large}, std::vector{large, small}}) {
    const auto reduced = core::reduce_metrics(per_rank);
    for (const char* name : {"up", "down", "both"}) {
      INFO(name);
      CHECK(reduced.at(name).is_null());
    }
    CHECK(reduced.at("num_samples") == 40);
  }
  // A rank without a sample has no part in it.
  const auto without =
      core::reduce_metrics({Json{{"num_samples", 10}, {"loss", 0.5}}, Json{{"num_samples", 0}, {"loss", "Infinity"}}});
  CHECK(without.at("loss") == 0.5);
  ReportReducer reducer;
  reducer.reset(1);
  const auto line = reducer.add(0, key(1), Json{{"loss", "Infinity"}, {"text", "so"}});
  CHECK(line.value()->metrics.at("loss").is_null());
  CHECK(line.value()->per_rank.at(0) == Json{{"loss", nullptr}, {"text", "so"}});
}

TEST_CASE("reduction: RaySGD's keys come in its order, the others after them by name") {
  const auto reduced = core::reduce_metrics(
      {Json{{"aaa", 1}, {"val_accuracy", 1}, {"train_loss", 1}, {"num_samples", 1}, {"batch_count", 1}, {"epoch", 1}}});
  std::vector<std::string> keys;
  for (const auto& [name, value] : reduced.items()) keys.push_back(name);
  CHECK(keys == std::vector<std::string>{"epoch", "batch_count", "num_samples", "train_loss", "val_accuracy", "aaa"});
}

TEST_CASE("a line is made when the last rank has reported") {
  ReportReducer reducer;
  reducer.reset(2);
  CHECK_FALSE(reducer.add(0, key(1), Json{{"x", 1}}).value().has_value());
  CHECK_FALSE(reducer.add(0, key(1, "validate"), Json{{"x", 2}}).value().has_value());
  const auto line = reducer.add(1, key(1), Json{{"x", 3}});
  REQUIRE(line.value().has_value());
  CHECK(line.value()->metrics.at("x") == 2.0);
}

TEST_CASE("what an earlier life of the run has written is not written again") {
  ReportReducer reducer;
  reducer.set_written(key(2, "train"));
  reducer.reset(1);
  CHECK_FALSE(reducer.add(0, key(2, "train"), Json{{"x", 1}}).value().has_value());
  CHECK(reducer.add(0, key(2, "validate"), Json{{"x", 1}}).value().has_value());
}

TEST_CASE("after a restart a report that was written before is dropped and counted, a newer one is taken") {
  ReportReducer reducer;
  reducer.reset(1);
  REQUIRE(reducer.add(0, key(2), Json{{"x", 1}}).value().has_value());
  reducer.reset(1);
  CHECK_FALSE(reducer.add(0, key(2), Json{{"x", 1}}).value().has_value());
  CHECK(reducer.dropped() == 1);
  CHECK(reducer.add(0, key(2, "validate"), Json{{"x", 1}}).value().has_value());
}

TEST_CASE("ranks that report different keys are named") {
  ReportReducer reducer;
  reducer.reset(2);
  (void)reducer.add(0, key(1), Json::object());
  const auto line = reducer.add(1, key(2), Json::object());
  REQUIRE_FALSE(line.ok());
  CHECK(line.error().message ==
        "ranks report different keys: rank 0 epoch 1 train batch 0, rank 1 epoch 2 train batch 0");
}

TEST_CASE("a rank that runs far ahead is stopped by a limit") {
  ReportReducer reducer;
  reducer.reset(2);
  for (std::size_t index = 0; index < ReportReducer::kPendingMax; ++index)
    REQUIRE(reducer.add(0, key(1, "train", static_cast<std::int64_t>(index)), Json::object()).ok());
  CHECK_FALSE(reducer.add(0, key(2), Json::object()).ok());
}

TEST_CASE("what ranks have reported ahead of others has a limit together; limit kPendingBytesMax") {
  ReportReducer reducer;
  reducer.reset(2);
  const Json page = {{"text", std::string(60'000, 'x')}};
  std::int64_t taken = 0;
  auto last = reducer.add(0, key(1, "train", ++taken), page);
  while (last.ok() && taken < 4000) last = reducer.add(0, key(1, "train", ++taken), page);
  REQUIRE_FALSE(last.ok());
  CHECK(last.error().message ==
        "rank 0 is 278 reports ahead of the slowest rank, and all that wait for it take more than 16MiB");
  // The other one's take their place away.
  for (std::int64_t batch = 1; batch < taken; ++batch) REQUIRE(reducer.add(1, key(1, "train", batch), page).ok());
  CHECK(reducer.state().pending_bytes_ == 0);
  CHECK(reducer.add(0, key(1, "train", taken), page).ok());
  reducer.reset(2);
  CHECK(reducer.state().pending_bytes_ == 0);
}

TEST_CASE("reports that are no objects or of no rank are errors") {
  ReportReducer reducer;
  reducer.reset(1);
  CHECK_FALSE(reducer.add(0, key(1), Json(3)).ok());
  CHECK_FALSE(reducer.add(1, key(1), Json::object()).ok());
  CHECK_FALSE(reducer.add(-1, key(1), Json::object()).ok());
}
