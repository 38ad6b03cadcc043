#include "worker/plugin/list_command.hpp"

#include <cstdio>

#include <fmt/format.h>

#include "common/exit_codes.hpp"
#include "common/job/job_schema.hpp"
#include "common/job/type_list.hpp"
#include "common/json/lenient.hpp"
#include "common/json/suggest.hpp"
#include "common/json/words.hpp"
#include "worker/plugin/load_plugins.hpp"
#include "worker/plugin/registered_names.hpp"

namespace sgd::worker {
namespace {

struct ListArguments {
  std::string kind;
  std::vector<std::string> plugins;
  bool as_json = false;
};

std::string kinds_in_words() {
  std::vector<std::string> quoted;
  for (const std::string& kind : job::listed_kinds()) quoted.push_back(json::quote(kind));
  return json::alternatives(quoted);
}

Result<ListArguments> parse(const std::vector<std::string>& arguments) {
  ListArguments parsed;
  for (std::size_t at = 0; at < arguments.size(); ++at) {
    const std::string& word = arguments[at];
    if (word == "--json") {
      parsed.as_json = true;
    } else if (word == "--plugin") {
      if (++at == arguments.size()) return Error{"--plugin needs a file"};
      parsed.plugins.push_back(arguments[at]);
    } else if (word.starts_with("-") || !parsed.kind.empty()) {
      return Error{fmt::format("--list does not take {}", json::quote(word))};
    } else {
      parsed.kind = word;
    }
  }
  if (parsed.kind.empty()) return Error{"--list needs one of " + kinds_in_words()};
  return parsed;
}

int refuse(const std::string& message) {
  std::fprintf(stderr, "sgd-worker: %s\n", message.c_str());
  return worker_exit::kConfiguration;
}

}  // namespace

int run_list_command(const std::vector<std::string>& arguments) {
  const Result<ListArguments> parsed = parse(arguments);
  if (!parsed) return refuse(parsed.error().message);
  const ListArguments& wanted = parsed.value();
  if (Status loaded = load_plugins(wanted.plugins); !loaded) return refuse(loaded.error().message);
  const auto types = job::list_types(job::job_schema_with(registered_properties()), wanted.kind);
  if (!types) {
    const auto near = json::nearest(wanted.kind, job::listed_kinds());
    return refuse(fmt::format("--list needs one of {}, got {}{}", kinds_in_words(), json::quote(wanted.kind),
                              near ? "; did you mean " + json::quote(*near) + "?" : ""));
  }
  const std::string text = wanted.as_json ? dump_text(job::as_json(*types), 2) + "\n" : job::as_text(*types);
  std::fputs(text.c_str(), stdout);
  return worker_exit::kDone;
}

}  // namespace sgd::worker
