#include "launcher/cli/run_naming.hpp"

#include <fmt/format.h>

#include "common/exit_codes.hpp"
#include "common/json/lenient.hpp"
#include "launcher/cli/cluster_client.hpp"
#include "launcher/cli/control_client.hpp"
#include "launcher/cli/help_text.hpp"
#include "launcher/cli/run_place.hpp"
#include "launcher/cli/terminal_text.hpp"
#include "launcher/cli/verbs.hpp"
#include "launcher/net/certificate.hpp"
#include "launcher/net/private_files.hpp"
#include "launcher/storage/retention.hpp"

namespace sgd::cli {
namespace {

NamedRun ended(int exit_code) {
  NamedRun none;
  none.exit_code = exit_code;
  return none;
}

constexpr const char* kCoordinatorNote = "/coordinator.json";

/// Of a run whose launcher has a coordinator of its own, as long as it lives: then that is asked.
void find_coordinator(NamedRun& named) {
  const auto note = net::read_file(named.directory + kCoordinatorNote, net::kPemBytesMax, net::Readers::kOwner);
  if (!note || !storage::is_run_live(named.directory)) return;
  const auto json = nlohmann::ordered_json::parse(note.value(), nullptr, false);
  named.cluster = parse_address(read_or(json, "address", ""));
  if (!named.cluster) return;
  named.identity = read_or(json, "identity", "");
  named.run = named.directory.substr(named.directory.rfind('/') + 1);
}

/// Of a run that is not here, where nobody has said that it is: one that is named may be the coordinator's of this
/// machine. The newest of a cluster is not taken for the latest here: it may be anybody's.
NamedRun not_here(const std::string& name, const Error& error) {
  const auto coordinator = coordinator_here();
  if (!coordinator) return ended(refuse(exit_code::kNotFound, error.message));
  const std::string is_there = "; a coordinator runs here: --address auto";
  if (name.empty() || name == "latest") return ended(refuse(exit_code::kNotFound, error.message + is_there));
  const auto answer = ask_cluster(coordinator.value(), {{"request", "status"}, {"run", name}});
  // One that waits for its start is there, too, and has no status yet.
  if (!answer || read_or(answer.value(), "kind", "") == "run")
    return ended(refuse(exit_code::kNotFound, error.message + "; nor has the coordinator that runs here such a run"));
  NamedRun named;
  named.is_named = true;
  named.cluster = coordinator.value();
  named.run = name;
  return named;
}

}  // namespace

NamedRun name_run(const RunVerb& verb, const std::vector<std::string>& arguments) {
  bool help = false;
  std::string address;
  std::vector<Option> table = verb.options;
  table.push_back(address_option(address));
  table.push_back(flag({"--help", "-h"}, "this text", help));
  Diagnostics diagnostics;
  ParsedArguments parsed = parse_arguments(table, arguments, AfterPositional::kContinue, diagnostics, verb.name);
  if (help) {
    print_help(verb.name, fmt::format("Example: {}\nUsage: sgd-launch {} {}\n{}", verb.example, verb.name, verb.usage,
                                      describe(table)));
    return ended(exit_code::kSucceeded);
  }
  if (parsed.has_dashes) diagnostics.error(verb.name, 0, 0, "takes no command after --: the run has its own");
  if (verb.take_words) verb.take_words(parsed.positional, diagnostics);
  if (parsed.positional.size() > 1)
    diagnostics.error(verb.name, 0, 0, fmt::format("name one run: \"{}\" is too many", parsed.positional[1]));
  // A variable that is not set, in a script: it does not mean the latest run.
  if (!parsed.positional.empty() && parsed.positional.front().empty())
    diagnostics.error(verb.name, 0, 0, "the name of the run is empty: name one, or none for the latest");
  NamedRun named;
  named.cluster = cluster_address(address, diagnostics);
  print(diagnostics);
  if (diagnostics.has_errors()) return ended(exit_code::kUsage);
  named.is_named = true;
  named.run = parsed.positional.empty() ? "" : parsed.positional.front();
  if (named.cluster && named.run == "latest") named.run.clear();  // As runs/latest here.
  if (named.cluster) return named;
  auto directory = find_run(named.run);
  if (!directory && address.empty()) return not_here(named.run, directory.error());
  if (!directory) return ended(refuse(exit_code::kNotFound, directory.error().message));
  return run_at(directory.value());
}

NamedRun run_at(const std::string& directory) {
  NamedRun named;
  named.is_named = true;
  named.directory = directory;
  find_coordinator(named);
  return named;
}

Status note_coordinator(const std::string& run_dir, const net::Address& coordinator, const std::string& identity) {
  const nlohmann::json note = {{"address", to_text(coordinator)}, {"identity", identity}};
  return net::write_file(run_dir + kCoordinatorNote, note.dump() + "\n", net::Readers::kOwner);
}

Result<std::shared_ptr<const net::TlsContext>> tls_of(const NamedRun& run) {
  return run.identity.empty() ? user_tls(*run.cluster) : net::TlsContext::load(run.identity);
}

Result<std::optional<nlohmann::ordered_json>> ask(const NamedRun& run, const nlohmann::ordered_json& request) {
  using Answer = std::optional<nlohmann::ordered_json>;
  if (!run.cluster) return ask_run(run.directory, request);
  nlohmann::ordered_json whole = request;
  whole["run"] = run.run;
  auto tls = tls_of(run);
  if (!tls) return tls.error();
  auto answer = ask_cluster(*run.cluster, std::move(tls).value(), std::move(whole));
  if (!answer) return answer.error();
  return Answer{std::move(answer).value()};
}

Result<nlohmann::ordered_json> ask_for(const NamedRun& run, const nlohmann::ordered_json& request) {
  auto answer = ask(run, request);
  if (!answer || !answer.value())
    return Error{answer ? "its launcher is gone" : answer.error().message, exit_code::kUnreachable};
  if (read_or(*answer.value(), "ok", false)) return *std::move(answer).value();
  const std::string kind = read_or(*answer.value(), "kind", "");
  const int code = kind == "run" || kind == "none" ? exit_code::kNotFound
                   : kind == "job"                 ? exit_code::kUsage
                                                   : exit_code::kUnreachable;
  return Error{read_or(*answer.value(), "error", ""), code};
}

int refuse(int exit_code, const std::string& message) {
  fmt::print(stderr, "sgd-launch: {}\n", for_terminal(message, Steering::kNone));
  return exit_code;
}

}  // namespace sgd::cli
