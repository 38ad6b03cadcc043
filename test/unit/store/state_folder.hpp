#pragma once
// A new folder for a coordinator's state and its runs, gone with its guard.

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "common/json/nlohmann.hpp"

namespace sgd::test {

class StateFolder {
 public:
  StateFolder() {
    char name[] = "/tmp/sgd-store-XXXXXX";
    path_ = ::mkdtemp(name);
  }
  ~StateFolder() { std::filesystem::remove_all(path_); }
  StateFolder(const StateFolder&) = delete;
  StateFolder& operator=(const StateFolder&) = delete;

  [[nodiscard]] std::string state() const { return path_ + "/state"; }
  [[nodiscard]] std::string file(const std::string& name) const { return path_ + "/state/" + name; }
  [[nodiscard]] std::string run(const std::string& id) const { return path_ + "/runs/" + id; }

 private:
  std::string path_;
};

inline std::vector<nlohmann::ordered_json> lines_of(const std::string& path) {
  std::vector<nlohmann::ordered_json> lines;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) lines.push_back(nlohmann::ordered_json::parse(line));
  return lines;
}

}  // namespace sgd::test
