#pragma once
// What verbs share that name no run: options, help, and words of their own.

#include <optional>
#include <string>
#include <vector>

#include "launcher/cli/command_line.hpp"

namespace sgd::cli {

struct PlainVerb {
  std::string name;             ///< "token create"
  std::string usage;            ///< What follows the name: "[options]".
  std::string example;          ///< A whole line.
  std::vector<Option> options;  ///< Without --help.
  std::size_t words_max = 0;    ///< That are no options.
};

/// Nothing: the verb goes on, if `diagnostics` has no errors; else its exit code.
[[nodiscard]] std::optional<int> parse_plain_verb(PlainVerb verb, const std::vector<std::string>& arguments,
                                                  std::vector<std::string>& words, Diagnostics& diagnostics);

/// An option whose value is a text that is not empty.
[[nodiscard]] Option text_option(std::vector<std::string> names, std::string value, std::string help,
                                 std::string& target, std::string env = {});

/// From the working directory, without "." and "..".
[[nodiscard]] std::string absolute(const std::string& path);

}  // namespace sgd::cli
