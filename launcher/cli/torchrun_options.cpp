#include "launcher/cli/torchrun_options.hpp"

#include <cstdlib>
#include <filesystem>

#include <fmt/format.h>

#include "common/job/read_file.hpp"
#include "common/json/nlohmann.hpp"
#include "common/json/words.hpp"
#include "launcher/cli/verb_table.hpp"
#include "launcher/core/core_allocation.hpp"
#include "launcher/process/cpu_quota.hpp"
#include "launcher/process/node_resources.hpp"

namespace sgd::cli {
namespace {

/// "--rdzv-id" is PET_RDZV_ID.
std::string pet_name(const std::string& option) {
  std::string name = "PET_";
  for (const char c : option.substr(2)) name += c == '-' ? '_' : static_cast<char>(std::toupper(c));
  return name;
}

/// The longest of an option's names, which its variable is called after.
const std::string& longest(const std::vector<std::string>& names) {
  const std::string* found = &names.front();
  for (const std::string& name : names)
    if (name.size() > found->size()) found = &name;
  return *found;
}

/// Texts with commas between; a doubled comma is one of a text.
std::vector<std::string> listed(const std::string& text) {
  std::vector<std::string> parts(1);
  for (std::size_t at = 0; at < text.size(); ++at) {
    const bool is_comma = text[at] == ',';
    const bool is_doubled = is_comma && at + 1 < text.size() && text[at + 1] == ',';
    if (is_comma && !is_doubled)
      parts.emplace_back();
    else
      parts.back() += text[at];
    if (is_doubled) ++at;
  }
  std::erase(parts, "");
  return parts;
}

/// Why `text` can be no key of a job; empty: it can.
std::string refusal_of(const std::string& text) {
  return json::is_utf8(text) ? "" : fmt::format("expected UTF-8, got \"{}\"", text);
}

class Table {
 public:
  Table(std::vector<Option>& table, RunOptions& options) : table_(table), options_(options) {}

  using Apply = std::function<std::string(const std::string&)>;

  void add(std::vector<std::string> names, std::string value, std::string help, Apply apply) {
    const std::string env = pet_name(longest(names));
    const auto checked = [apply = std::move(apply)](const std::string& text) {
      std::string refusal = refusal_of(text);
      return refusal.empty() ? apply(text) : refusal;
    };
    table_.push_back({std::move(names), std::move(value), std::move(help), env, checked, true});
  }
  /// Sets `key` of the job's "process" to what `convert` makes of the value.
  template <class Convert>
  void add_key(std::vector<std::string> names, const std::string& value, const std::string& help, const char* key,
               Convert convert) {
    const std::string source = names.front();
    add(std::move(names), value, help, [this_options = &options_, key, source, convert](const std::string& text) {
      this_options->overrides.sets.push_back({std::string("process.") + key, convert(text), source});
      return std::string();
    });
  }
  /// Kept as it is.
  void add_text(const std::string& name, const std::string& value, std::string& target, const std::string& help = {}) {
    add({name}, value, help, [&target](const std::string& text) {
      target = text;
      return std::string();
    });
  }
  void add_flag(const std::string& name, bool& target) {
    add({name}, "", "", [&target](const std::string&) {
      target = true;
      return std::string();
    });
  }
  /// Says `note` where `says(value)`.
  template <class Says>
  void add_noted(const std::string& name, const std::string& note, Says says) {
    add({name}, "X", "", [this_options = &options_, name, note, says](const std::string& text) {
      if (says(text)) this_options->notes.push_back({name, note});
      return std::string();
    });
  }

 private:
  std::vector<Option>& table_;
  RunOptions& options_;
};

const auto kAsIs = [](const std::string& text) { return text; };
const auto kQuoted = [](const std::string& text) { return nlohmann::json(text).dump(); };
const auto kTrue = [](const std::string&) { return std::string("true"); };
const auto kSeconds = [](const std::string& text) {
  return text.find_first_not_of("0123456789.") == std::string::npos ? text + "s" : text;
};
const auto kNames = [](const std::string& text) { return nlohmann::json(listed(text)).dump(); };

void add_nodes(Table& table, RunOptions& options) {
  table.add_text("--nnodes", "N", options.nodes.nodes);
  table.add_text("--node-rank", "N", options.nodes.rank);
  table.add({"--master-addr"}, "HOST", "", [&options](const std::string& text) {
    options.nodes.master_addr = text;
    options.overrides.sets.push_back({"process.master_addr", nlohmann::json(text).dump(), "--master-addr"});
    return std::string();
  });
  table.add({"--master-port"}, "PORT", "", [&options](const std::string& text) {
    if (text == "0") return std::string();
    options.nodes.master_port = text;
    options.overrides.sets.push_back({"process.master_port", text, "--master-port"});
    return std::string();
  });
  table.add_text("--local-addr", "HOST", options.nodes.local_addr);
  table.add_text("--rdzv-secret-file", "FILE", options.nodes.secret_file,
                 "with --nnodes: file with the secret that all nodes share");
  table.add_flag("--rdzv-insecure", options.nodes.is_open);
}

void add_rendezvous(Table& table, RunOptions& options) {
  table.add({"--rdzv-backend"}, "X", "", [&options](const std::string& text) {
    options.rendezvous_backend = text;
    if (text != "static" && text != "c10d" && !text.empty())
      options.notes.push_back({"--rdzv-backend", fmt::format("{} is not used: ranks meet without it", text)});
    return std::string();
  });
  table.add_text("--rdzv-endpoint", "HOST[:PORT]", options.nodes.endpoint);
  table.add({"--rdzv-id"}, "ID", "", [&options](const std::string& text) {
    options.nodes.id = text;
    options.overrides.sets.push_back({"process.rendezvous_id", nlohmann::json(text).dump(), "--rdzv-id"});
    return std::string();
  });
  table.add_text("--rdzv-conf", "X", options.nodes.conf);
  table.add_flag("--standalone", options.nodes.is_standalone);
  table.add_noted("--monitor-interval", "not used: the end of a process is seen at once",
                  [](const std::string&) { return true; });
  table.add({"--start-method"}, "X", "", [](const std::string& text) {
    const bool is_known = text == "spawn" || text == "fork" || text == "forkserver";  // Of functions, not of scripts.
    return is_known ? std::string() : fmt::format("expected spawn, fork or forkserver, got \"{}\"", text);
  });
  table.add_noted("--event-log-handler", "not used: events are in events.jsonl of the run's folder",
                  [](const std::string& text) { return text != "null"; });
  table.add({"--logs-specs"}, "X", "", [](const std::string&) {
    return std::string("names a Python class, which is not loaded here: use --redirects, --tee and --log-dir");
  });
}

void add_output(Table& table, RunOptions& options) {
  table.add_key({"--log-dir"}, "DIR", "", "log_dir", kQuoted);
  table.add_key({"--redirects", "-r"}, "X", "", "redirects", kQuoted);
  table.add_key({"--tee", "-t"}, "X", "", "tee", kQuoted);
  table.add({"--local-ranks-filter"}, "N,N", "", [&options](const std::string& text) {
    // Without a number it is torchrun's own default: all of them.
    if (!text.empty())
      options.overrides.sets.push_back({"process.local_ranks_shown", "[" + text + "]", "--local-ranks-filter"});
    return std::string();
  });
  table.add_key({"--duplicate-stdout-filters"}, "TEXT,TEXT", "", "stdout_filters", kNames);
  table.add_key({"--duplicate-stderr-filters"}, "TEXT,TEXT", "", "stderr_filters", kNames);
  table.add_key({"--prefix", "--log-line-prefix-template"}, "TEXT",
                "in front of each line, for example '[${role_name}${local_rank}]: '", "prefix", kQuoted);
}

void add_processes(Table& table, RunOptions& options) {
  table.add_key({"--role"}, "NAME", "", "role", kQuoted);
  table.add_key({"--signals-to-handle"}, "X,X", "", "signals", kNames);
  table.add_key({"--shutdown-timeout"}, "S", "", "shutdown_timeout", kSeconds);
  table.add_key({"--virtual-local-rank"}, "", "", "virtual_local_rank", kTrue);
  table.add_key({"--cpu-bind"}, "HOW", "auto, none, cores or numa: which cores each worker of a command has",
                "cpu_bind", kAsIs);
  table.add({"--numa-binding"}, "X", "", [&options](const std::string& text) {
    const bool is_node = text == "node";
    if (!is_node && text != "exclusive") return fmt::format("\"{}\" is not supported: use node or exclusive", text);
    options.overrides.sets.push_back({"process.cpu_bind", is_node ? "numa" : "cores", "--numa-binding"});
    return std::string();
  });
  table.add_key({"--backend"}, "NAME",
                "sgd: torch.distributed sums in shared memory where a script names gloo; tensorflow: sets TF_CONFIG; "
                "horovod: sets HOROVOD_RANK and the rest",
                "backend", kAsIs);
  table.add_key({"--preload"}, "HOW", "auto, none or MODULE,...: what one Python imports before it forks the workers",
                "preload", [](const std::string& text) {
                  return text == "auto" || text == "none" ? text : nlohmann::json(listed(text)).dump();
                });
  table.add_flag("--module", options.is_module);
  table.add_flag("--no-python", options.no_python);
  table.add_flag("--run-path", options.is_run_path);
  table.add({"--use-env"}, "", "", [](const std::string&) { return std::string(); });  // There is no other way.
}

/// The interpreter of a script, as torchrun and the active environment have it.
std::string interpreter() {
  const char* given = std::getenv("PYTHON_EXEC");
  if (given != nullptr && *given != '\0') return given;
  const char* environment = std::getenv("VIRTUAL_ENV");
  std::error_code error;
  if (environment != nullptr && *environment != '\0') {
    const std::string python = std::string(environment) + "/bin/python3";
    if (std::filesystem::exists(python, error)) return python;
  }
  return "python3";
}

/// Where the static rendezvous is MASTER_ADDR and MASTER_PORT.
void take_endpoint(RunOptions& options, Diagnostics& diagnostics) {
  const std::string& text = options.nodes.endpoint;
  const bool is_static = options.rendezvous_backend.empty() || options.rendezvous_backend == "static";
  if (text.empty() || options.nodes.is_standalone || !is_static) return;
  const std::size_t colon = text.rfind(':');
  const bool has_port = colon != std::string::npos && text.back() != ']';
  const auto set = [&options](const char* key, const std::string& value) {
    options.overrides.sets.insert(options.overrides.sets.begin(), {key, value, options.source_of("--rdzv-endpoint")});
  };
  if (has_port && !whole_number(text.substr(colon + 1)))
    return diagnostics.error("--rdzv-endpoint", 0, 0, fmt::format("expected HOST:PORT, got \"{}\"", text));
  if (has_port && text.substr(colon + 1) != "0") set("process.master_port", text.substr(colon + 1));
  if (colon != 0) set("process.master_addr", nlohmann::json(text.substr(0, has_port ? colon : text.size())).dump());
}

/// What torchrun reads of the environment beside PET_*. An option wins, since it comes later.
void take_variables(RunOptions& options, Diagnostics& diagnostics) {
  const auto given = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value != nullptr ? value : "");
  };
  const auto set = [&options, &given, &diagnostics](const char* key, const char* name, const auto& convert) {
    const std::string text = given(name);
    if (const std::string refusal = refusal_of(text); !refusal.empty()) return diagnostics.error(name, 0, 0, refusal);
    if (!text.empty())
      options.overrides.sets.insert(options.overrides.sets.begin(),
                                    {std::string("process.") + key, convert(text), name});
  };
  set("prefix", "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE", kQuoted);
  set("shutdown_timeout", "TORCH_ELASTIC_SHUTDOWN_TIMEOUT", kSeconds);
  if (given("TORCHELASTIC_ENABLE_FILE_TIMER") == "1")
    options.notes.push_back({"TORCHELASTIC_ENABLE_FILE_TIMER",
                             "not used: sgd_launch.watch() has a rank that stands still found and ended"});
  if (!given("TORCHELASTIC_HEALTH_CHECK_PORT").empty())
    options.notes.push_back({"TORCHELASTIC_HEALTH_CHECK_PORT", "not used: `sgd-launch status` asks the launcher"});
}

}  // namespace

void add_torchrun_options(std::vector<Option>& table, RunOptions& options) {
  Table torchrun(table, options);
  add_nodes(torchrun, options);
  add_rendezvous(torchrun, options);
  add_output(torchrun, options);
  add_processes(torchrun, options);
  for (Option& option : table)
    if (option.names.front() == "--module") option.names.emplace_back("-m");
}

void name_program(const ParsedArguments& parsed, RunOptions& options, Diagnostics& diagnostics) {
  const std::string& first = parsed.positional.front();
  std::error_code error;
  take_endpoint(options, diagnostics);
  take_variables(options, diagnostics);
  if (options.no_python && options.is_module)
    return diagnostics.error("--no-python", 0, 0, "and --module exclude each other: a module is run by Python");
  const bool is_script = !options.is_module && (!options.no_python || options.is_run_path);
  const bool is_package = std::filesystem::exists(std::filesystem::path(first) / "__main__.py", error);
  if (is_script && !is_package && !std::filesystem::is_regular_file(first, error))
    return diagnostics.error("sgd-launch", 0, 0,
                             first.ends_with(".py")
                                 ? fmt::format("there is no script \"{}\" here{}", first, job::did_you_mean_file(first))
                                 : unknown_word(first, parsed.positional.size() > 1 ? parsed.positional[1] : ""));
  if (options.is_module)
    options.command = {interpreter(), "-u", "-m"};
  else if (is_script)
    options.command = {interpreter(), "-u"};
  options.command.insert(options.command.end(), parsed.positional.begin(), parsed.positional.end());
}

Result<int> workers_per_node(const std::string& word, bool is_command) {
  const int cores = process::usable_cpus();
  if (word == "cpu" || (word == "auto" && !is_command)) return cores;
  if (word == "xpu") return Error{"there is no way to count XPUs here: give their number"};
  const auto gpus = process::gpus(std::getenv("CUDA_VISIBLE_DEVICES"));
  if (core::are_parts(gpus)) return 1;  // Of parts of GPUs a process sees one.
  if (!gpus.empty()) return static_cast<int>(gpus.size());
  if (word == "gpu") return Error{"there is no GPU here: use cpu, auto or a number"};
  return cores;
}

}  // namespace sgd::cli
