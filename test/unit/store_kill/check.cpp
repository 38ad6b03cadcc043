#include "check.hpp"

#include <filesystem>
#include <set>

#include <fmt/format.h>

#include "../store/state_folder.hpp"
#include "launcher/storage/database.hpp"

namespace sgd::test {
namespace {

namespace fs = std::filesystem;

int number_of(const std::string& run) {
  return std::stoi(run.substr(4, 4));
}

class RunCheck {
 public:
  RunCheck(const std::string& folder, std::string id, std::vector<std::string>& found)
      : folder_(folder + "/runs/" + id), id_(std::move(id)), script_(script_of(id_)), found_(found) {}

  void check() {
    check_metrics();
    check_events();
    const auto summary = nlohmann::json::parse(std::ifstream(folder_ + "/summary.json"), nullptr, false);
    expect(summary.is_object() && summary.value("state", "") == "succeeded",
           "its summary does not say that it succeeded");
  }

 private:
  [[nodiscard]] bool is_training() const { return number_of(id_) % 4 != 3; }

  void check_metrics() {
    const auto lines = lines_of(folder_ + "/metrics.jsonl");
    expect(static_cast<int>(lines.size()) == (is_training() ? script_.lines() : 0),
           fmt::format("{} lines of metrics", lines.size()));
    for (std::size_t index = 0; index < lines.size(); ++index)
      expect(lines[index].at("_training_iteration") == index + 1,
             fmt::format("line {} of metrics is {}", index + 1, lines[index].dump()));
  }
  void check_events() {
    std::map<std::string, int> count;
    std::set<std::string> once;
    std::string last;
    for (const auto& event : lines_of(folder_ + "/events.jsonl")) {
      last = event.at("event");
      ++count[last];
      if (last == "coordinator_restarted") continue;
      std::string key = last;
      for (const char* part : {"generation", "rank", "epoch"})
        if (event.contains(part)) key += fmt::format(" {} {}", part, event.at(part).dump());
      expect(once.insert(key).second, "twice: " + key);
    }
    const int generations = is_training() && script_.killed_after >= 0 ? 2 : 1;
    const auto wanted = [&](const char* name, int number) {
      expect(count[name] == number, fmt::format("{} times {}", count[name], name));
    };
    wanted("run_started", 1);
    wanted("run_finished", 1);
    expect(last == "run_finished", "after its end comes " + last);
    wanted("failure", generations - 1);
    wanted("epoch_finished", is_training() ? script_.epochs : 0);
    for (int rank = 0; rank < 2; ++rank)
      for (const char* name : {"worker_started", "worker_exited"})
        expect(once.contains(fmt::format("{} generation {} rank {}", name, generations, rank)),
               fmt::format("without {} of rank {}", name, rank));
  }
  void expect(bool is_so, const std::string& what) {
    if (!is_so) found_.push_back(id_ + ": " + what);
  }

  std::string folder_;
  std::string id_;
  Script script_;
  std::vector<std::string>& found_;
};

}  // namespace

Script script_of(const std::string& run) {
  const int number = number_of(run);
  Script script;
  script.epochs = 2 + number % 2;
  script.batches = 10;
  script.killed_after = number % 4 == 1 ? 5 + number % 17 : -1;
  return script;
}

std::vector<std::string> findings(const std::string& folder, const std::map<int, std::string>& runs) {
  std::vector<std::string> found;
  std::set<std::string> known;
  for (const auto& [number, id] : runs) {
    RunCheck(folder, id, found).check();
    known.insert(id);
  }
  // A kill before the commit leaves a folder that nobody was told of.
  for (const auto& entry : fs::directory_iterator(folder + "/runs")) {
    const std::string name = entry.path().filename().string();
    if (name != "latest" && !known.contains(name) && !lines_of(entry.path().string() + "/events.jsonl").empty())
      found.push_back(name + ": it ran, and nobody was told of it");
  }
  auto database = storage::Database::open(folder + "/state/coordinator.db");
  const auto whole = database ? database.value()->ask("PRAGMA integrity_check") : Result<std::string>(database.error());
  if (!whole || whole.value() != "ok")
    found.push_back("integrity_check: " + (whole ? whole.value() : whole.error().message));
  return found;
}

}  // namespace sgd::test
