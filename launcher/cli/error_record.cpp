#include "launcher/cli/error_record.hpp"

#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <fstream>

#include <fmt/format.h>

#include "common/json/nlohmann.hpp"
#include "launcher/core/peer_loss.hpp"

namespace sgd::cli {

std::string error_record(const core::RunOutcome& outcome, double failed_at_s) {
  nlohmann::ordered_json said = {{"message", outcome.error}};
  std::string stack;
  double at_s = failed_at_s;
  if (outcome.cause && !outcome.cause->error.empty()) {
    const RankError& error = outcome.cause->error;
    said["message"] = core::whole_words(error);
    stack = "Traceback (most recent call last):\n";
    for (const std::string& line : error.frames) stack += line + "\n";
    stack += core::whole_words(error) + "\n";
    if (error.at_s > 0) at_s = error.at_s;
  }
  said["extraInfo"] = {{"py_callstack", stack},
                       {"timestamp", fmt::format("{}", static_cast<std::int64_t>(std::floor(at_s)))}};
  said["errorCode"] = outcome.cause ? (outcome.cause->signal != 0 ? -outcome.cause->signal : outcome.cause->exit_code)
                                    : outcome.exit_code;
  const nlohmann::ordered_json record = {{"message", std::move(said)}};
  return record.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

Status write_error_record(const std::string& path, const core::RunOutcome& outcome, double failed_at_s) {
  const std::string fresh = fmt::format("{}.{}", path, ::getpid());
  const auto refused = [&path] {
    return Error{"cannot write TORCHELASTIC_ERROR_FILE " + path + " for the launcher around this one"};
  };
  {
    std::ofstream file(fresh, std::ios::binary | std::ios::trunc);
    file << error_record(outcome, failed_at_s);
    file.close();
    if (!file) return refused();
  }
  if (std::rename(fresh.c_str(), path.c_str()) == 0) return {};
  (void)::unlink(fresh.c_str());
  return refused();
}

}  // namespace sgd::cli
