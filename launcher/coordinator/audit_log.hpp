#pragma once
// Who has asked for what that changes something: `audit.jsonl` in the state folder, which only grows. One line an
// action:
//   {"time":S,"who":"eva","certificate":SERIAL,"peer":"10.0.0.2:41822","action":"stop","run":R,"refused":WHY}
// Submissions, stops, resumptions, orders to nodes, also those that are refused; who reads the logs or the job of a run
// that is not its own; tokens made and revoked, members that join and are revoked ("process P" is a verb on this
// machine). "who" is "anybody" in plain text over TCP (--insecure-loopback). "refused" stands only where it was; "uid"
// where the kernel has said who it is, over a Unix socket. Who has become a member is in `issued.jsonl` beside it.

#include <functional>
#include <optional>
#include <string>

#include "common/base/result.hpp"
#include "common/json/nlohmann.hpp"
#include "launcher/coordinator/requester.hpp"
#include "launcher/storage/line_file.hpp"

namespace sgd::coordinator {

class AuditLog {
 public:
  using Json = nlohmann::ordered_json;

  /// `on_trouble` is told when a line cannot be written: the action has happened all the same.
  explicit AuditLog(std::function<void(const std::string& message)> on_trouble) : on_trouble_(std::move(on_trouble)) {}

  /// Before add(). Creates the file if it is missing.
  [[nodiscard]] Status open(const std::string& state_dir);
  /// `about`: further keys, as the run.
  void add(const Requester& who, const std::string& action, const Json& about, const std::string& refused = {});

 private:
  std::function<void(const std::string& message)> on_trouble_;
  std::optional<storage::LineFile> file_;
};

}  // namespace sgd::coordinator
