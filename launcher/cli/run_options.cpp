#include "launcher/cli/run_options.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <iterator>

#include <fmt/format.h>

#include "launcher/cli/cluster_client.hpp"
#include "launcher/cli/torchrun_options.hpp"

namespace sgd::cli {
namespace {

/// An option that overrides a key of the job.
Option override_option(RunOptions& options, std::vector<std::string> names, std::string value, std::string help,
                       std::string path, std::string env = {}) {
  const std::string source = names.front();
  return {std::move(names),
          std::move(value),
          std::move(help),
          std::move(env),
          [&options, path, source](const std::string& text) {
            options.overrides.sets.push_back({path, text, source});
            return std::string();
          },
          true};
}

Option set_option(RunOptions& options) {
  return {{"--set"},
          "PATH=VALUE",
          "override any key of the job, for example training.optimizer.lr=0.1",
          "",
          [&options](const std::string& text) {
            const std::size_t equals = text.find('=');
            if (equals == std::string::npos || equals == 0) return fmt::format("expected PATH=VALUE, got \"{}\"", text);
            const std::string path = text.substr(0, equals);
            options.overrides.sets.push_back({path, text.substr(equals + 1), "--set " + path});
            return std::string();
          }};
}

/// Options of many training scripts, which are keys of a job here.
void add_expected_options(std::vector<Option>& table) {
  static constexpr std::pair<const char*, const char*> kExpected[] = {
      {"--epochs", "training.epochs"},
      {"--batch-size", "training.batch_size"},
      {"--seed", "training.seed"},
      {"--lr", "training.optimizer.lr"},
      {"--learning-rate", "training.optimizer.lr"},
      {"--momentum", "training.optimizer.momentum"},
      {"--weight-decay", "training.optimizer.weight_decay"},
      {"--optimizer", "training.optimizer.type"},
      {"--model", "training.model.type"},
      {"--loss", "training.loss"},
      {"--dataset", "training.dataset.path"},
      {"--data", "training.dataset.path"},
      {"--resume-from", "resume_from"},
      {"--name", "name"},
  };
  for (const auto& [name, path] : kExpected) {
    Option option = {{name}, "VALUE", "", "", [](const std::string&) { return std::string(); }};
    option.instead = std::string("--set ") + path;
    table.push_back(std::move(option));
  }
}

void add_job_options(std::vector<Option>& table, RunOptions& options) {
  table.push_back(
      override_option(options, {"--num-workers", "-n", "--nproc-per-node", "-ppn"}, "N",
                      "number of workers; auto: one per core, or for a command one per GPU, if there are any",
                      "num_workers", "PET_NPROC_PER_NODE"));
  table.push_back(override_option(options, {"--min-workers"}, "N", "continue after a failure with no fewer than this",
                                  "min_workers"));
  table.push_back(override_option(options, {"--max-failures", "--max-restarts"}, "N",
                                  "number of failures after which the workers start again, or unlimited",
                                  "recovery.max_failures", "PET_MAX_RESTARTS"));
  table.push_back(
      {{"--worker"}, "FILE", "a worker of your own in place of sgd-worker", "", [&options](const std::string& text) {
         if (text.empty()) return std::string("expected a program");
         std::error_code error;
         const std::filesystem::path whole = std::filesystem::absolute(text, error);
         if (error) return "the current folder cannot be read: " + error.message();
         options.overrides.sets.push_back({"worker", whole.lexically_normal().string(), "--worker"});
         return std::string();
       }});
  table.push_back(set_option(options));
  add_expected_options(table);
}

/// How this launcher carries a run out; nothing of it is kept in job.json.
void add_run_options(std::vector<Option>& table, RunOptions& options) {
  table.push_back(whole_number_option(
      {"--slots"}, "slots for workers on this machine (default: as many as the job wants)", options.slots));
  table.push_back({{"--timeout"},
                   "TIME",
                   "stop after this time, for example 90s or 2h; exit code 124",
                   "",
                   [&options](const std::string& text) {
                     options.timeout = parse_duration(text);
                     return options.timeout ? std::string()
                                            : fmt::format("expected a time as 90s or 2h, got \"{}\"", text);
                   }});
  table.push_back({{"--lifeline"},
                   "FD",
                   "stop with a checkpoint when the other end of this descriptor is closed, as when the program that "
                   "started this one is killed",
                   "",
                   [&options](const std::string& text) {
                     options.lifeline = whole_number(text);
                     const bool is_open = options.lifeline && ::fcntl(*options.lifeline, F_GETFD) >= 0;
                     return is_open ? std::string() : fmt::format("expected an open descriptor, got \"{}\"", text);
                   }});
  table.push_back({{"--local-nodes"},
                   "N",
                   "treat this machine as N nodes, to try a run of several nodes",
                   "",
                   [&options](const std::string& text) {
                     const auto number = whole_number(text);
                     options.local_nodes = number.value_or(0);
                     return !number || *number < 1 || *number > 16 ? fmt::format("expected 1 to 16, got \"{}\"", text)
                                                                   : std::string();
                   }});
  table.push_back(flag({"--no-prefix"}, "workers' lines without \"rank: \" in front", options.show_prefix, false));
  table.push_back(flag({"--no-fold"}, "do not combine equal lines of several workers", options.folds, false));
  table.push_back(flag({"--timestamps"}, "workers' lines with the time in front", options.has_time));
  table.push_back({{"--output"},
                   "FORM",
                   "workers' lines as text, or as json: an object per line, with rank, stream, time and text",
                   "",
                   [&options](const std::string& text) {
                     options.is_json = text == "json";
                     return text == "json" || text == "text" ? std::string()
                                                             : fmt::format("expected text or json, got \"{}\"", text);
                   }});
  table.push_back({{"--output-at"},
                   "WHERE",
                   "with --nnodes, where workers' lines are shown: own (default): each node shows those of its "
                   "workers; first: node 0 shows all",
                   "",
                   [&options](const std::string& text) {
                     options.output_at_first = text == "first";
                     return text == "own" || text == "first" ? std::string()
                                                             : fmt::format("expected own or first, got \"{}\"", text);
                   }});
  table.push_back(flag({"--quiet", "-q"}, "only workers' output, results, failures and waits", options.quiet));
  table.push_back(flag({"--no-color"}, "no colour, also when stderr is a terminal", options.no_color));
}

rendezvous::Environment environment() {
  rendezvous::Environment found;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const std::size_t equals = text.find('=');
    if (equals != std::string::npos) found.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return found;
}

/// "-n job.json": an option that lacks its value takes the next word.
std::string taken_as_value(const RunOptions& options) {
  for (const job::Overrides::Set& set : options.overrides.sets)
    if (set.value.ends_with(".json") && !set.source.starts_with("--set"))
      return fmt::format("\"{}\" was taken as the value of {}", set.value, set.source);
  return "see sgd-launch --help";
}

}  // namespace

Option run_dir_option(RunOptions& options) {
  return {{"--run-dir"},
          "DIR",
          "folder of the run (default: runs/<name>-<time>-<hex>)",
          "",
          [&options](const std::string& text) {
            options.run_dir = text;
            return text.empty() ? std::string("expected a folder") : std::string();
          }};
}

Option detach_option(RunOptions& options) {
  return flag({"--detach"}, "on a cluster: print the run's id and return; the run continues", options.detach);
}

std::vector<Option> run_option_table(RunOptions& options) {
  std::vector<Option> table;
  add_job_options(table, options);
  table.push_back(run_dir_option(options));
  table.back().help += "; on a cluster: folder here for a copy of it";
  add_run_options(table, options);
  table.push_back(address_option(options.address));
  table.push_back(detach_option(options));
  table.push_back(flag({"--help", "-h"}, "this text", options.help));
  add_torchrun_options(table, options);
  return table;
}

std::vector<Option> resume_option_table(RunOptions& options) {
  std::vector<Option> table;
  add_job_options(table, options);
  add_run_options(table, options);
  for (Option& option : table) option.env.clear();
  return table;
}

void count_workers(RunOptions& options, bool is_command, Diagnostics& diagnostics) {
  for (job::Overrides::Set& set : options.overrides.sets) {
    const bool is_word = set.value == "auto" || set.value == "cpu" || set.value == "gpu" || set.value == "xpu";
    const bool is_misspelt = !is_word && !set.value.empty() && std::isalpha(static_cast<unsigned char>(set.value[0]));
    if (set.path == "num_workers" && is_misspelt) {
      diagnostics.error(set.source, 0, 0,
                        fmt::format("\"num_workers\" must be an integer or \"auto\", got \"{}\"", set.value));
      set.value = "1";
    }
    if (set.path != "num_workers" || !is_word) continue;
    const Result<int> workers = workers_per_node(set.value, is_command);
    if (!workers) diagnostics.error(set.source, 0, 0, workers.error().message);
    set.value = workers ? fmt::format("{}", workers.value()) : "1";  // It is told of once.
  }
}

std::string RunOptions::source_of(const std::string& option) const {
  const auto read = variables.find(option);
  return read == variables.end() ? option : read->second;
}

RunOptions parse_run_options(const std::vector<std::string>& arguments, Diagnostics& diagnostics,
                             std::vector<Option> more) {
  RunOptions options;
  std::vector<Option> table = run_option_table(options);
  std::move(more.begin(), more.end(), std::back_inserter(table));
  const ParsedArguments parsed = parse_arguments(table, arguments, AfterPositional::kStopScript, diagnostics);
  options.variables = parsed.variables;
  for (job::Overrides::Set& set : options.overrides.sets) set.source = options.source_of(set.source);
  const bool names_file = !parsed.positional.empty() && parsed.positional.front().ends_with(".json");
  if (options.help || diagnostics.has_errors()) {
    // A word behind a misspelt option is its value as likely as what to run: only a job file is certain, and told
    // about.
    if (names_file) options.job_file = parsed.positional.front();
    count_workers(options, !names_file, diagnostics);
    return options;
  }
  if (parsed.has_dashes) {
    options.command = parsed.after_dashes;
    if (options.command.empty()) diagnostics.error("--", 0, 0, "a command is missing after --");
    if (!parsed.positional.empty())
      diagnostics.error("sgd-launch", 0, 0,
                        fmt::format("either a job file or a command: both \"{}\" and what follows -- are given",
                                    parsed.positional.front()));
  } else if (parsed.positional.empty()) {
    diagnostics.error("sgd-launch", 0, 0,
                      "nothing to run: give a job file, or a command after --; " + taken_as_value(options));
  } else if (names_file || parsed.positional.front() == "-") {
    options.job_file = parsed.positional.front();
    for (std::size_t index = 1; index < parsed.positional.size(); ++index)
      diagnostics.error("sgd-launch", 0, 0,
                        fmt::format("one job file at a time: \"{}\" is too many", parsed.positional[index]));
  } else {
    name_program(parsed, options, diagnostics);
  }
  count_workers(options, options.job_file.empty(), diagnostics);
  options.several_nodes = rendezvous::plan_nodes(options.nodes, environment(), diagnostics);
  if (options.output_at_first && !options.several_nodes)
    options.notes.emplace_back("--output-at", "not used: there is one launcher, which shows all output");
  for (const auto& [name, text] : options.notes) diagnostics.warn(name, 0, 0, text);
  for (Diagnostic& item : diagnostics.items) item.source = options.source_of(item.source);
  return options;
}

std::string run_help() {
  RunOptions unused;
  return "Examples:\n"
         "  sgd-launch --num-workers 2 configs/fashion_mnist.json      train on this machine\n"
         "  sgd-launch job.json --set training.optimizer.lr=0.1        with one value changed\n"
         "  sgd-launch -n 4 -- python3 train.py --lr 0.1               any command, torchrun's environment\n"
         "  sgd-launch --nnodes 2 --node-rank 0 --master-addr node1 --rdzv-secret-file key --nproc-per-node 4 "
         "train.py\n"
         "                                                             on node1; --node-rank 1 on the other machine\n"
         "  sgd-launch status | logs --rank 1 -f | stop                the latest run, from another terminal\n"
         "  sgd-launch resume --set training.epochs=8                  continue it where it ended\n"
         "  sgd-launch --address head:7070 -n 8 job.json               on a cluster, followed from here\n"
         "\n"
         "Usage:\n"
         "  sgd-launch [run] [options] (job.json | -- command...)\n"
         "  sgd-launch resume [options] [RUN]                          RUN: an id, a unique prefix, a folder\n"
         "  sgd-launch validate [options] [RUN|CHECKPOINT]             measure its saved weights; trains "
         "nothing\n"
         "  sgd-launch (status | logs | metrics | events | stop | checkpoints) [options] [RUN]\n"
         "  sgd-launch plot [--png FILE] [RUN [METRIC...]]             its metrics as curves, here or in an image\n"
         "  sgd-launch checkpoints get [--step N] [RUN] DIR            copies one of them into a folder here\n"
         "  sgd-launch tune [options] job.json | (status | best) [RUN]  trials of a job, and the best of them\n"
         "  sgd-launch warm [--stop] [train.py...]                     keep a Python ready that has imported what it "
         "needs\n"
         "  sgd-launch doctor [--json] [--address ADDRESS]             what this machine or a cluster lacks\n"
         "  sgd-launch nodes [options] [RUN] [set-slots N]             slots for workers, and their number\n"
         "  sgd-launch config show [--origin] [job.json]               every setting, and where its value comes from\n"
         "  sgd-launch (submit [--detach] ... | ps | plan ... | events) of a cluster: --address, or SGD_ADDRESS\n"
         "  sgd-launch (coordinator | agent --join HOST:PORT)          the programs of a cluster, each with --help\n"
         "  sgd-launch (init | token | join | revoke)                  who belongs to it, each with --help\n"
         "  sgd-launch (help [VERB | verbs] | version)\n"
         "\n"
         "Options of run:\n" +
         describe(run_option_table(unused)) +
         "\n"
         "torchrun's options and PET_* variables are understood, so that a torchrun line\n"
         "works as it is.\n"
         "\n"
         "Exit codes: 0 succeeded, 1 failed, 2 bad usage or job file, 3 not running,\n"
         "4 no such run or node, 5 could not be placed, 6 cancelled, 7 restarts used up,\n"
         "124 --timeout, 130 and 143 interrupted.\n";
}

}  // namespace sgd::cli
