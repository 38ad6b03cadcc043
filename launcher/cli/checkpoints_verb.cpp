// `sgd-launch checkpoints [RUN]`: what a run, living or ended, has saved, and whether it is whole.

#include <fmt/format.h>

#include "common/exit_codes.hpp"
#include "launcher/cli/narrator.hpp"
#include "launcher/cli/run_naming.hpp"
#include "launcher/cli/verbs.hpp"
#include "launcher/storage/checkpoint_list.hpp"

namespace sgd::cli {
namespace {
using Json = nlohmann::ordered_json;

std::string age_text(const Json& age) {
  if (!age.is_number()) return "-";
  const double seconds = age.get<double>();
  if (seconds < 100) return fmt::format("{:.0f}s", seconds);
  if (seconds < 100 * 60) return fmt::format("{:.0f}m", seconds / 60);
  if (seconds < 48 * 3600) return fmt::format("{:.0f}h", seconds / 3600);
  return fmt::format("{:.0f}d", seconds / 86400);
}

std::string bytes_text(double bytes) {
  return bytes < 1000 ? fmt::format("{:.0f}", bytes) : short_number(bytes);
}

std::string count_text(const Json& count) {
  return count.is_null() ? "-" : count.dump();
}

void print_table(const std::string& run_dir, const Json& checkpoints) {
  fmt::print("folder     {}\n", run_dir);
  if (checkpoints.empty()) return fmt::print("no checkpoints\n");
  fmt::print("{:<40} {:>10} {:>6} {:>10} {:>10} {:>8} {:>5}  {}\n", "checkpoint", "step", "epoch", "generation",
             "world size", "bytes", "age", "state");
  for (const Json& one : checkpoints)
    fmt::print("{:<40} {:>10} {:>6} {:>10} {:>10} {:>8} {:>5}  {}\n", one.at("path").get<std::string>(),
               count_text(one.at("step")), count_text(one.at("epoch")), count_text(one.at("generation")),
               count_text(one.at("world_size")), bytes_text(one.at("bytes").get<double>()), age_text(one.at("age_s")),
               one.at("whole").get<bool>() ? "whole" : one.at("damage").get<std::string>());
}

/// An error's code is the exit code.
Result<Json> list(const NamedRun& run, bool quick) {
  if (!run.cluster) {
    auto all =
        storage::describe_checkpoints(run.directory, quick ? checkpoint::Proof::kSizes : checkpoint::Proof::kChecksums);
    return all ? std::move(all) : Error{all.error().message, exit_code::kFailed};
  }
  const auto answer = ask(run, {{"request", "checkpoints"}});
  if (!answer) return Error{answer.error().message, exit_code::kUnreachable};
  if (!answer.value()->value("ok", false)) return Error{answer.value()->value("error", ""), exit_code::kNotFound};
  return answer.value()->at("checkpoints");
}

}  // namespace

int checkpoints_verb(const std::vector<std::string>& arguments) {
  bool as_json = false;
  bool quick = false;
  const NamedRun run = name_run({"checkpoints",
                                 "[--quick] [--json] [RUN]",
                                 "sgd-launch checkpoints",
                                 {flag({"--quick"}, "compare sizes only, not checksums (as on a cluster)", quick),
                                  flag({"--json"}, "one JSON object", as_json)},
                                 {}},
                                arguments);
  if (!run.is_named) return run.exit_code;
  const Result<Json> listed = list(run, quick);
  if (!listed) return refuse(listed.error().code, listed.error().message);
  const Json& all = listed.value();
  if (as_json) {
    fmt::print("{}\n", all.dump(2, ' ', false, Json::error_handler_t::replace));
  } else {
    print_table(all.at("run_dir"), all.at("checkpoints"));
  }
  return exit_code::kSucceeded;
}

}  // namespace sgd::cli
