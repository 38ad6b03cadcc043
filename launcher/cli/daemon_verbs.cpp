// `sgd-launch coordinator` and `sgd-launch agent`: the long-running programs of a cluster.

#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <map>
#include <optional>
#include <string>

#include <fmt/format.h>

#include "common/base/bytes.hpp"
#include "common/exit_codes.hpp"
#include "common/json/words.hpp"
#include "launcher/agent/agent_daemon.hpp"
#include "launcher/cli/cluster_client.hpp"
#include "launcher/cli/plain_verb.hpp"
#include "launcher/cli/program_files.hpp"
#include "launcher/cli/run_naming.hpp"
#include "launcher/cli/state_places.hpp"
#include "launcher/cli/verbs.hpp"
#include "launcher/coordinator/coordinator_daemon.hpp"
#include "launcher/core/claims.hpp"
#include "launcher/process/daemon_log.hpp"
#include "launcher/process/file_limit.hpp"
#include "launcher/process/node_resources.hpp"
#include "launcher/process/system_calls.hpp"

namespace sgd::cli {
namespace {

Option address_value(std::vector<std::string> names, std::string help, std::optional<net::Address>& target,
                     std::string env = {}) {
  return {std::move(names), "ADDRESS", std::move(help), std::move(env), [&target](const std::string& text) {
            target = parse_address(text);
            return target ? std::string() : fmt::format("expected HOST:PORT or unix:PATH, got \"{}\"", text);
          }};
}

Option join_option(std::optional<net::Address>& target) {
  return {{"--join"},
          "ADDRESS",
          "the coordinator: HOST:PORT, unix:PATH; auto (default): the one on this machine",
          "SGD_ADDRESS",
          [&target](const std::string& text) {
            target = text == "auto" ? std::nullopt : parse_address(text);
            return text == "auto" || target ? std::string()
                                            : fmt::format("expected HOST:PORT, unix:PATH or auto, got \"{}\"", text);
          }};
}

/// Options of a daemon. Nothing: it goes on; else its exit code.
std::optional<int> parse_daemon(const std::string& name, const std::string& example, std::vector<Option> table,
                                const std::vector<std::string>& arguments, Diagnostics& diagnostics) {
  std::vector<std::string> words;
  return parse_plain_verb({name, "[options]", example, std::move(table), 0}, arguments, words, diagnostics);
}

Option log_format_option(std::string& target) {
  return {{"--log-format"},
          "FORMAT",
          "text, json, or auto: that of systemd's journal if it listens, else text",
          "",
          [&target](const std::string& text) {
            target = text;
            return process::log_format(text, "", 2) ? std::string()
                                                    : fmt::format("expected auto, text or json, got \"{}\"", text);
          }};
}

/// What is wrong with options or settings does not get better by trying again; a service manager tells the two apart.
int refuse_to_start(const Error& error) {
  const int code = error.code == EADDRINUSE     ? exit_code::kFailed
                   : error.code == ECONNREFUSED ? exit_code::kUnreachable
                                                : exit_code::kUsage;
  return refuse(code, error.message);
}

Option input_option(bool& target) {
  return flag({"--until-eof"}, "end when standard input ends", target);
}

Option time_option(std::vector<std::string> names, std::string help, Duration& target) {
  return {std::move(names), "TIME", std::move(help), "", [&target](const std::string& text) {
            const auto time = parse_duration(text);
            const bool is_good = time && *time > Duration{0};
            if (is_good) target = *time;
            return is_good ? std::string() : fmt::format("expected a time as 5s, got \"{}\"", text);
          }};
}

Option label_option(std::map<std::string, std::string>& labels) {
  return {{"--label"},
          "KEY=VALUE",
          "label for placement rules of jobs; may be repeated",
          "",
          [&labels](const std::string& text) {
            const std::size_t equals = text.find('=');
            if (equals == 0 || equals == std::string::npos) return fmt::format("expected KEY=VALUE, got \"{}\"", text);
            labels[text.substr(0, equals)] = text.substr(equals + 1);
            return core::why_not(labels);
          }};
}

Option memory_option(std::int64_t& bytes) {
  return {{"--memory"},
          "SIZE",
          "memory for workers (default: this machine's, or its control group's)",
          "",
          [&bytes](const std::string& text) {
            const auto size = parse_bytes(text);
            if (size && *size > 0) bytes = *size;
            return size && *size > 0 ? std::string() : fmt::format("expected a size as 64GiB, got \"{}\"", text);
          }};
}

}  // namespace

int coordinator_verb(const std::vector<std::string>& arguments) {
  coordinator::CoordinatorOptions options;
  options.state_dir = coordinator_state_dir();
  std::optional<int> live_max;
  std::optional<int> queued_max;
  std::optional<std::int64_t> bytes_max;
  std::optional<std::int64_t> files_max;
  std::optional<int> kept_runs;
  Diagnostics diagnostics;
  const auto ended = parse_daemon(
      "coordinator", "sgd-launch coordinator --listen 0.0.0.0:7070",
      {address_value({"--listen"},
                     "address for agents and clients (default: 127.0.0.1:7070; without an identity a Unix socket)",
                     options.listen),
       flag({"--insecure-loopback"}, "TCP without TLS: everybody on this machine may run anything here",
            options.insecure_loopback),
       text_option({"--state-dir"}, "DIR", "folder of its runs and its state", options.state_dir),
       time_option({"--node-timeout"}, "a node is lost after this time without a message (default: 5s)",
                   options.node_timeout),
       whole_number_option({"--max-live"}, "live runs per client, except admins (default: 200)", live_max, 1),
       whole_number_option({"--max-queued"}, "queued runs per client, except admins (default: 100)", queued_max, 1),
       size_option({"--max-bytes"}, "disk space for runs per client, except admins (default: half of what is free)",
                   bytes_max),
       size_option({"--max-files"}, "disk space for files of jobs per client (default: 16GiB)", files_max),
       whole_number_option({"--keep-runs"}, "number of ended runs to keep, besides pinned ones (default: 2000)",
                           kept_runs),
       age_option({"--keep-age"}, "how long to keep an ended run (default: no limit)", options.retention.age),
       size_option({"--keep-bytes"}, "keep only the newest ended runs within this size (default: not limited)",
                   options.retention.bytes),
       whole_number_option({"--metrics-port"}, "port on 127.0.0.1 of /metrics, /healthz and /readyz (default: none)",
                           options.metrics_port),
       text_option({"--runs-dir"}, "DIR", "folder for runs, none of which is ever removed", options.runs_dir),
       input_option(options.ends_with_input), log_format_option(options.log_format)},
      arguments, diagnostics);
  if (ended) return *ended;
  print(diagnostics);
  if (diagnostics.has_errors()) return exit_code::kUsage;
  options.state_dir = absolute(options.state_dir);
  if (!options.runs_dir.empty()) options.runs_dir = absolute(options.runs_dir);
  for (const std::string& folder : {options.state_dir, options.runs_dir})
    if (const Status named = json::check_path("folder", folder); !named) return refuse_to_start(named.error());
  options.quota.bytes_max = bytes_max.value_or(0);
  if (files_max) options.files_of_one.bytes = static_cast<std::uint64_t>(*files_max);
  if (kept_runs) options.retention.count = static_cast<std::size_t>(*kept_runs);
  if (live_max) options.quota.live_max = static_cast<std::size_t>(*live_max);
  if (queued_max) options.quota.queued_max = static_cast<std::size_t>(*queued_max);
  process::raise_file_limit();
  coordinator::CoordinatorDaemon daemon(options);
  if (const Status opened = daemon.open(); !opened) return refuse_to_start(opened.error());
  fmt::print("sgd-launch coordinator: listening on {}\n", to_text(daemon.address()));
  std::fflush(stdout);
  daemon.run();
  return exit_code::kSucceeded;
}

int agent_verb(const std::vector<std::string>& arguments) {
  agent::AgentOptions options;
  options.state_dir = agent_state_dir();
  options.own_program = own_program();
  options.worker_program = worker_program();
  options.python_folder = python_folder();
  bool allow_root = false;
  std::optional<net::Address> coordinator;
  options.gpus = process::gpus(std::getenv("CUDA_VISIBLE_DEVICES"));
  options.are_gpus_by_bus =
      process::are_gpus_by_bus(std::getenv("CUDA_VISIBLE_DEVICES"), std::getenv("CUDA_DEVICE_ORDER"));
  options.memory_bytes = process::memory_bytes();
  Diagnostics diagnostics;
  const auto ended = parse_daemon(
      "agent", "sgd-launch agent --join coordinator.example:7070",
      {join_option(coordinator),
       flag({"--insecure-loopback"}, "TCP without TLS: obeys whoever listens there on this machine",
            options.insecure_loopback),
       text_option({"--name"}, "NAME", "name of this node (default: the host's name)", options.name),
       text_option({"--node-address"}, "IP",
                   "address for other nodes (default: that of the connection to the coordinator)", options.address),
       whole_number_option({"--slots"}, "room for workers (default: one per core)", options.slots),
       text_option({"--run-as"}, "ACCOUNT", "account of all workers, for an agent of root (default: each run's owner)",
                   options.accounts.name),
       flag({"--allow-root"}, "run jobs of root and of admins as root, who can open every key on this node",
            allow_root),
       flag({"--jobs-share-account"}, "let workers run under the account that owns this node's key",
            options.jobs_share_account),
       label_option(options.labels), memory_option(options.memory_bytes),
       time_option({"--orphan-timeout"}, "end all workers here after this time without a coordinator (default: 10m)",
                   options.orphan_timeout),
       size_option({"--journal-bytes"}, "size at which the journal for the next agent is rewritten (default: 16MiB)",
                   options.journal_bytes),
       size_option({"--files"}, "room for the files that jobs bring (default: 16GiB)", options.files_bytes),
       text_option({"--state-dir"}, "DIR",
                   "its folder: identity/ (join --identity DIR/identity), and files for the coordinator",
                   options.state_dir),
       flag({"--for-one-run"}, "serve one run only, in the agent's environment and working directory",
            options.is_for_one_run),
       text_option({"--output-socket"}, "PATH",
                   "socket of a launcher that shows the output of workers here (default: none)", options.output_socket),
       input_option(options.ends_with_input), log_format_option(options.log_format)},
      arguments, diagnostics);
  if (ended) return *ended;
  if (!options.accounts.name.empty())
    options.accounts.kind = agent::AccountRule::Kind::kFixed;
  else if (::geteuid() == 0)
    options.accounts.kind = allow_root ? agent::AccountRule::Kind::kRoot : agent::AccountRule::Kind::kOwner;
  if (::geteuid() == 0 && allow_root) options.jobs_share_account = true;
  if (allow_root && !options.accounts.name.empty())
    diagnostics.error("--run-as", 0, 0, "and --allow-root contradict each other: leave one of them out");
  if (options.slots.value_or(0) > core::kNodeUnitsMax)
    diagnostics.error("--slots", 0, 0, fmt::format("at most {}, got {}", core::kNodeUnitsMax, *options.slots));
  if (options.memory_bytes > core::kNodeMemoryMax)
    diagnostics.error("--memory", 0, 0, fmt::format("at most {}", format_bytes(core::kNodeMemoryMax)));
  print(diagnostics);
  if (diagnostics.has_errors()) return exit_code::kUsage;
  options.state_dir = absolute(options.state_dir);
  if (const Status named = json::check_path("folder", options.state_dir); !named) return refuse_to_start(named.error());
  if (const auto trouble = process::system_trouble())
    return refuse_to_start(Error{fmt::format("{}: {}", trouble->text, trouble->fix)});
  options.coordinator = coordinator.value_or(local_coordinator(options.state_dir + "/identity"));
  agent::AgentDaemon daemon(options);
  Status done = daemon.open();
  if (done) done = daemon.run();
  return done ? exit_code::kSucceeded : refuse_to_start(done.error());
}

}  // namespace sgd::cli
