// The sinks of callbacks: what stands in their files at any moment, and that none loses or doubles a report over the
// lives of who writes them.

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <fmt/format.h>
#include <catch2/catch.hpp>

#include "launcher/callbacks/csv_file.hpp"
#include "launcher/callbacks/event_file.hpp"
#include "launcher/callbacks/feed.hpp"
#include "launcher/callbacks/protobuf.hpp"
#include "launcher/callbacks/results_file.hpp"
#include "test/unit/common/temporary_folder.hpp"

namespace sgd::callbacks {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

std::string content_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

Report numbered_report(int number) {
  return {{"phase", number % 2 == 1 ? "train" : "validate"},
          {"loss", 1.0 / number},
          {"_timestamp", 1'700'000'000 + number},
          {"_training_iteration", number}};
}

/// Whole records of an event file, and what is behind them.
std::pair<std::vector<std::string>, std::size_t> records_of(const std::string& bytes) {
  std::vector<std::string> records;
  std::string_view rest = bytes;
  while (const auto record = first_record(rest)) {
    records.emplace_back(*record);
    rest.remove_prefix(record->size() + kRecordFrameBytes);
  }
  return {records, rest.size()};
}

/// A run's metrics.jsonl that grows.
class Reports {
 public:
  explicit Reports(const std::string& path) : path_(path), file_(path) {}
  void add(const Report& report) { file_ << report.dump() << "\n" << std::flush; }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
  std::ofstream file_;
};

std::string event_file_in(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().string());
  REQUIRE(names.size() == 1);
  return names.front();
}

}  // namespace

TEST_CASE("callbacks: names and patterns") {
  CHECK(matches_pattern("train_loss", "train_loss"));
  CHECK(matches_pattern("train_loss", "*"));
  CHECK(matches_pattern("train_loss", "*_loss"));
  CHECK(matches_pattern("train_loss", "t*l*s"));
  CHECK(matches_pattern("aab", "*ab"));
  CHECK(matches_pattern("", "**"));
  CHECK_FALSE(matches_pattern("train_loss", "loss"));
  CHECK_FALSE(matches_pattern("train_loss", "train"));
  CHECK_FALSE(matches_pattern("train_loss", "*_losses"));
  CHECK_FALSE(matches_pattern("", "a"));
}

TEST_CASE("callbacks: a filter keeps what is named and what tells reports apart") {
  const Report report = Report::parse(
      R"({"phase": "train", "epoch": 1, "loss": 0.5, "hello": {"world": 1, "moon": {"x": 2}}, "_pid": 7, "accuracy": 1})");
  CHECK(NameFilter(json::parse(R"({"metrics": ["loss"]})")).of(report).dump() ==
        R"({"phase":"train","epoch":1,"loss":0.5,"_pid":7})");
  CHECK(NameFilter(json::parse(R"({"metrics": ["hello/*"]})")).of(report).dump() ==
        R"({"phase":"train","epoch":1,"hello":{"world":1,"moon":{"x":2}},"_pid":7})");
  CHECK(NameFilter(json::object()).of(report) == report);
  std::string names;
  for (const auto& [name, value] : flat_values(report)) names += name + "=" + value->dump() + " ";
  CHECK(names == "phase=\"train\" epoch=1 loss=0.5 hello/world=1 hello/moon/x=2 _pid=7 accuracy=1 ");
}

TEST_CASE("callbacks: results of the chosen workers") {
  const Report report = Report::parse(R"({"phase": "train", "workers": [{"loss": 1}, {"loss": 2}, {"loss": 3}]})");
  const auto losses = [&report](const json& workers) {
    std::string all;
    for (const Report& one : worker_results(report, workers)) {
      CHECK(one["phase"] == "train");
      CHECK_FALSE(one.contains("workers"));
      all += one["loss"].dump();
    }
    return all;
  };
  CHECK(losses(0) == "1");
  CHECK(losses("all") == "123");
  CHECK(losses(json::array({0, 2})) == "13");
  CHECK(losses(9).empty());
  CHECK(single_result(report).dump() == R"({"phase":"train","loss":1})");
  const Report reduced = Report::parse(R"({"loss": 2, "workers": [{"loss": 1, "_pid": 7}, {"loss": 3, "_pid": 8}]})");
  CHECK(single_result(reduced).dump() == R"({"loss":2,"_pid":7})");
  CHECK(single_result(numbered_report(1)) == numbered_report(1));
  CHECK(worker_results(numbered_report(1), 0) == Report::array({numbered_report(1)}));
  CHECK(worker_results({{"workers", 4}}, "all") == Report::array({Report{{"workers", 4}}}));
}

TEST_CASE("callbacks: lines of a file that grows") {
  const test::TemporaryFolder folder;
  LineSource source(folder.path("lines"));
  CHECK(source.next().value().empty());
  std::ofstream file(folder.path("lines"));
  file << "one\ntw" << std::flush;
  CHECK(source.next().value() == std::vector<std::string>{"one"});
  CHECK(source.next().value().empty());
  file << "o\n\nfour\n" << std::flush;
  CHECK(source.next().value() == std::vector<std::string>{"two", "", "four"});
  CHECK(source.passed() == 4);
  source.seek(3);
  CHECK(source.next().value() == std::vector<std::string>{"four"});
  source.seek(6);
  CHECK(source.next().value().empty());
  file << "five\nsix\nseven\neight\n" << std::flush;
  CHECK(source.next().value() == std::vector<std::string>{"seven", "eight"});
  source.seek(1);
  CHECK(source.left().value() == 7);
  // Lines that no piece holds.
  file << std::string(3 * LineSource::kPieceBytes, 'x') << "\nend\n" << std::flush;
  source.seek(8);
  CHECK(source.next().value().front().size() == 3 * LineSource::kPieceBytes);
}

TEST_CASE("results.json: a whole array at any moment") {
  const test::TemporaryFolder folder;
  const std::string path = folder.path("new/results.json");
  ResultsFile sink(path, json::object());
  REQUIRE(sink.begin().value() == 0);
  REQUIRE(sink.flush().ok());
  CHECK(content_of(path) == "[]\n");
  for (int number = 1; number <= 3; ++number) {
    REQUIRE(sink.add(numbered_report(number)).value() == Taken::kYes);
    REQUIRE(sink.flush().ok());
    const Report results = Report::parse(content_of(path));
    REQUIRE(results.size() == static_cast<std::size_t>(number));
    CHECK(results.back() == Report::array({numbered_report(number)}));
  }
  REQUIRE(sink.flush().ok());
  CHECK_FALSE(fs::exists(path + ".tmp"));
  // Another life makes it anew; until it is whole the old one stays.
  ResultsFile next(path, json::object());
  REQUIRE(next.begin().value() == 0);
  std::string large(ResultsFile::kHeldBytesMax, 'x');
  REQUIRE(next.add({{"text", large}}).ok());
  CHECK(fs::exists(path + ".tmp"));
  CHECK(Report::parse(content_of(path)).size() == 3);
  REQUIRE(next.flush().ok());
  CHECK(Report::parse(content_of(path)).size() == 1);
}

TEST_CASE("progress.csv: rows are whole, a new metric is a new column") {
  const test::TemporaryFolder folder;
  const std::string path = folder.path("progress.csv");
  Reports reports(folder.path("metrics.jsonl"));
  Feed feed("callback csv", std::make_unique<CsvFile>(path, json::object()), reports.path());
  reports.add({{"phase", "train"}, {"loss", 0.5}, {"note", "a,\"b\"\nc"}});
  feed.advance(std::chrono::seconds(1), true);
  CHECK(content_of(path) == "phase,loss,note\ntrain,0.5,\"a,\"\"b\"\"\nc\"\n");
  reports.add({{"phase", "validate"}, {"a", {{"b", nullptr}, {"c", true}}}, {"list", {1, 2}}});
  feed.advance(std::chrono::seconds(1), true);
  CHECK(content_of(path) ==
        "phase,loss,note,a/b,a/c,list\ntrain,0.5,\"a,\"\"b\"\"\nc\",,,\nvalidate,,,,true,\"[1,2]\"\n");
  reports.add({{"phase", "train"}, {"loss", 0.25}});
  feed.advance(std::chrono::seconds(1), true);
  CHECK(content_of(path).ends_with("\ntrain,0.25,,,,\n"));
  CHECK(feed.take_warnings().empty());
}

TEST_CASE("progress.csv: ever new metrics make no file of any width") {
  const test::TemporaryFolder folder;
  CsvFile sink(folder.path("wide.csv"), json::object());
  REQUIRE(sink.begin().ok());
  Report wide = Report::object();
  for (std::size_t index = 0; index < CsvFile::kColumnsMax + 5; ++index) wide["m" + std::to_string(index)] = index;
  REQUIRE(sink.add(wide).value() == Taken::kAgain);
  REQUIRE(sink.begin().ok());
  REQUIRE(sink.add(wide).value() == Taken::kYes);
  REQUIRE(sink.flush().ok());
  const std::string text = content_of(folder.path("wide.csv"));
  CHECK(static_cast<std::size_t>(std::count(text.begin(), text.end(), ',')) == 2 * (CsvFile::kColumnsMax - 1));
  CHECK(sink.left_out() == "there are more than 1024 metrics; the first ones have columns");
  // Rows beyond kHeldRowsBytesMax do not wait in memory.
  CsvFile large(folder.path("large.csv"), json::object());
  REQUIRE(large.begin().ok());
  const Report row = {{"text", std::string(CsvFile::kHeldRowsBytesMax, 'x')}};
  REQUIRE(large.add(row).value() == Taken::kAgain);
  REQUIRE(large.begin().ok());
  REQUIRE(large.add(row).value() == Taken::kYes);
  CHECK(fs::file_size(folder.path("large.csv.tmp")) > CsvFile::kHeldRowsBytesMax);
}

TEST_CASE("tensorboard: records are framed as TFRecord says") {
  const std::string record = framed_record("abc");
  // As TensorBoard's own RecordWriter writes it.
  REQUIRE(record == std::string("\x03\0\0\0\0\0\0\0\xb0\x99\x49\x0e"
                                "abc"
                                "\x6e\x57\xf1\x21",
                                19));
  CHECK(first_record(record) == "abc");
  CHECK(first_record(record + "more") == "abc");
  for (std::size_t cut = 0; cut < record.size(); ++cut) CHECK_FALSE(first_record(record.substr(0, cut)));
  for (std::size_t at = 0; at < record.size(); ++at) {
    std::string damaged = record;
    damaged[at] = static_cast<char>(damaged[at] ^ 1);
    CHECK_FALSE(first_record(damaged));
  }
  CHECK(first_record(framed_record("")) == "");
}

TEST_CASE("tensorboard: an event for each report") {
  const NameFilter all(json::object());
  const Report report = Report::parse(
      R"({"phase": "train", "loss": 0.5, "hello": {"world": 2}, "list": [1, 2, 3], "text": "x", "mixed": [1, "a"],
          "empty": [], "nan": null, "large": 1e39, "least": -1e39, "_pid": 3, "_timestamp": 1700000000, "_training_iteration": 4})");
  const auto tags_of = [&report](const NameFilter& filter, const EventOptions& options) {
    const std::string event = report_event(report, filter, options);
    CHECK(is_report_event(event));
    std::string tags;
    std::string_view summary = find_field(event, 5).value();
    while (!summary.empty()) {
      const std::string_view value = find_field(summary, 1).value();
      tags += std::string(find_field(value, 1).value()) + (find_field(value, 5) ? "[] " : " ");
      summary = std::string_view(value.data() + value.size(), static_cast<std::size_t>(summary.data() + summary.size() -
                                                                                       value.data() - value.size()));
    }
    return tags;
  };
  CHECK(tags_of(all, {}) == "train/loss train/hello/world train/list[] ");
  CHECK(tags_of(all, {.prefix = "ray/sgd/"}) == "ray/sgd/loss ray/sgd/hello/world ray/sgd/list[] ");
  CHECK(tags_of(NameFilter(json::parse(R"({"metrics": ["l*"]})")), {}) == "train/loss train/list[] ");
  CHECK(tags_of(NameFilter(json::parse(R"({"metrics": ["none"]})")), {}).empty());
  CHECK_FALSE(is_report_event(version_event(1)));
  CHECK_FALSE(is_report_event(hparams_event({{"num_workers", 2}}, 1)));
  CHECK(is_hparams_event(hparams_event({{"num_workers", 2}}, 1)));
  CHECK(is_hparams_event(session_end_event(true, 2)));
  CHECK_FALSE(is_hparams_event("no message"));
}

TEST_CASE("tensorboard: a file goes on behind its whole records") {
  const test::TemporaryFolder folder;
  Reports reports(folder.path("metrics.jsonl"));
  const auto feed_all = [&](const std::string& tag) {
    Feed feed("callback tensorboard",
              std::make_unique<EventFile>(folder.path("tb"), tag, json::object(), json{{"num_workers", 2}}),
              reports.path());
    feed.advance(std::chrono::seconds(1), true);
    CHECK(feed.take_warnings().empty());
  };
  for (int number = 1; number <= 5; ++number) reports.add(numbered_report(number));
  feed_all("run");
  const std::string path = event_file_in(folder.path("tb"));
  const std::string five = content_of(path);
  REQUIRE(records_of(five).first.size() == 7);  // The version, and the hparams.
  CHECK(records_of(five).second == 0);
  for (int number = 6; number <= 8; ++number) reports.add(numbered_report(number));
  // Whatever a kill has left of the file: the same is in it in the end.
  feed_all("run");
  const std::string eight = content_of(path);
  REQUIRE(records_of(eight).first.size() == 10);
  CHECK(eight.starts_with(five));
  for (std::size_t cut = records_of(five).first[0].size() + kRecordFrameBytes; cut < eight.size(); cut += 7) {
    fs::resize_file(path, cut);
    feed_all("run");
    const auto [records, rest] = records_of(content_of(path));
    CHECK(rest == 0);
    std::vector<std::string> of_reports;
    for (const std::string& record : records)
      if (is_report_event(record)) of_reports.push_back(record);
    REQUIRE(of_reports.size() == 8);
    for (int number = 1; number <= 8; ++number)
      CHECK(of_reports[static_cast<std::size_t>(number - 1)] ==
            report_event(numbered_report(number), NameFilter(json::object()), {}));
  }
  // Another run's file in the same folder is not touched.
  feed_all("other");
  CHECK(std::distance(fs::directory_iterator(folder.path("tb")), fs::directory_iterator()) == 2);
  // Of many reports not all wait in memory: see EventFile::kHeldBytesMax.
  EventFile large(folder.path("large"), "run", json::object(), json::object());
  REQUIRE(large.begin().value() == 0);
  Report much = {{"list", Report::array()}};
  for (int index = 0; index < 64; ++index) much["list"].push_back(index);
  while (fs::file_size(event_file_in(folder.path("large"))) == 0) REQUIRE(large.add(much).ok());
}

TEST_CASE("callbacks: what cannot be written is said once, tried again, and whole in the end") {
  const test::TemporaryFolder folder;
  Reports reports(folder.path("metrics.jsonl"));
  const std::string blocked = folder.path("blocked");
  folder.write("blocked", "a file where a folder is wanted");
  Feed feed("callback json", std::make_unique<ResultsFile>(blocked + "/results.json", json::object()), reports.path());
  reports.add(numbered_report(1));
  feed.advance(std::chrono::seconds(1), false);
  auto warnings = feed.take_warnings();
  REQUIRE(warnings.size() == 1);
  CHECK(warnings.front().starts_with("callback json: cannot create " + blocked));
  CHECK(warnings.front().ends_with("; it is tried again, and the run goes on"));
  REQUIRE(feed.due());
  reports.add(numbered_report(2));
  feed.advance(std::chrono::seconds(1), true);
  CHECK(feed.take_warnings().empty());
  fs::remove(blocked);
  feed.advance(std::chrono::seconds(1), true);
  warnings = feed.take_warnings();
  REQUIRE(warnings.size() == 1);
  CHECK(warnings.front() == "callback json: writes again, and nothing is missing");
  CHECK(Report::parse(content_of(blocked + "/results.json")).size() == 2);
  feed.end(true);
  CHECK(feed.take_warnings().empty());
}

TEST_CASE("callbacks: at the end it is told what is missing") {
  const test::TemporaryFolder folder;
  Reports reports(folder.path("metrics.jsonl"));
  for (int number = 1; number <= 3; ++number) reports.add(numbered_report(number));
  folder.write("blocked", "");
  const std::string path = folder.path("blocked/progress.csv");
  Feed feed("callback csv", std::make_unique<CsvFile>(path, json::object()), reports.path());
  feed.end(true);
  const auto warnings = feed.take_warnings();
  REQUIRE(warnings.size() == 2);
  CHECK(warnings.front().find("tried again") == std::string::npos);
  CHECK(warnings.back() ==
        "callback csv: not all of the run's 3 reports are in " + path + "; they are in the run's metrics.jsonl");
}

}  // namespace sgd::callbacks
