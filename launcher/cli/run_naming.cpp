#include "launcher/cli/run_naming.hpp"

#include <fmt/format.h>

#include "common/exit_codes.hpp"
#include "launcher/cli/verbs.hpp"
#include "launcher/storage/run_lookup.hpp"

namespace sgd::cli {

NamedRun name_run(const RunVerb& verb, const std::vector<std::string>& arguments) {
  bool help = false;
  std::vector<Option> table = verb.options;
  table.push_back(flag({"--help", "-h"}, "this text", help));
  Diagnostics diagnostics;
  ParsedArguments parsed = parse_arguments(table, arguments, AfterPositional::kContinue, diagnostics);
  if (help) {
    fmt::print("Example: {}\nUsage: sgd-launch {} {}\n{}", verb.example, verb.name, verb.usage,
               describe(table));
    return {"", exit_code::kSucceeded};
  }
  if (parsed.has_dashes) diagnostics.error(verb.name, 0, 0, "takes no command after --: the run has its own");
  if (verb.take_words) verb.take_words(parsed.positional, diagnostics);
  if (parsed.positional.size() > 1)
    diagnostics.error(verb.name, 0, 0, fmt::format("name one run: \"{}\" is too many", parsed.positional[1]));
  print(diagnostics);
  if (diagnostics.has_errors()) return {"", exit_code::kUsage};
  auto directory = storage::find_run(parsed.positional.empty() ? "" : parsed.positional.front());
  if (!directory) return {"", refuse(exit_code::kNotFound, directory.error().message)};
  return {std::move(directory).value(), exit_code::kSucceeded};
}

int refuse(int exit_code, const std::string& message) {
  fmt::print(stderr, "sgd-launch: {}\n", message);
  return exit_code;
}

}  // namespace sgd::cli
