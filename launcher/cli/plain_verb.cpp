#include "launcher/cli/plain_verb.hpp"

#include <filesystem>
#include <utility>

#include <fmt/format.h>

#include "common/exit_codes.hpp"
#include "launcher/cli/help_text.hpp"

namespace sgd::cli {

std::optional<int> parse_plain_verb(PlainVerb verb, const std::vector<std::string>& arguments,
                                    std::vector<std::string>& words, Diagnostics& diagnostics) {
  bool help = false;
  verb.options.push_back(flag({"--help", "-h"}, "this text", help));
  ParsedArguments parsed = parse_arguments(verb.options, arguments, AfterPositional::kContinue, diagnostics, verb.name);
  if (help) {
    print_help(verb.name, fmt::format("Example: {}\nUsage: sgd-launch {} {}\n{}", verb.example, verb.name, verb.usage,
                                      describe(verb.options)));
    return exit_code::kSucceeded;
  }
  if (parsed.has_dashes) diagnostics.error(verb.name, 0, 0, "takes no command after --");
  words = std::move(parsed.positional);
  if (words.size() > verb.words_max)
    diagnostics.error(verb.name, 0, 0,
                      verb.words_max == 0 ? fmt::format("takes options only: \"{}\" is too many", words.back())
                                          : fmt::format("\"{}\" is too many", words.back()));
  return std::nullopt;
}

Option text_option(std::vector<std::string> names, std::string value, std::string help, std::string& target,
                   std::string env) {
  const std::string expected = "expected " + value;
  return {std::move(names), std::move(value), std::move(help), std::move(env),
          [&target, expected](const std::string& text) {
            target = text;
            return text.empty() ? expected : std::string();
          }};
}

std::string absolute(const std::string& path) {
  const std::filesystem::path whole = std::filesystem::absolute(path).lexically_normal();
  return (whole.has_filename() ? whole : whole.parent_path()).string();
}

}  // namespace sgd::cli
