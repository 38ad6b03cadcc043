#pragma once
// Options from one table: names, values, help, environment variable. No abbreviations; dash and
// underscore are the same; a misspelt option is answered with the nearest one. All errors of a
// command line are reported together.
//
// What a word is (a name, a value that is attached to it) is Boost.Program_options' to say, one word at a time: of a
// whole line it tells the first error only, and none of its texts is for people.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/base/time.hpp"
#include "common/json/diagnostics.hpp"

namespace sgd::cli {

struct Option {
  std::vector<std::string> names;  ///< Long ones with two dashes, short ones with one; the first is the one shown.
  std::string value;               ///< Placeholder, for example "N"; empty: a flag.
  std::string help;                ///< Empty: accepted, but not shown (torchrun's options without meaning here).
  std::string env;                 ///< Read when the option is not given; empty: none.
  /// Takes the value ("" for a flag); the text that comes back is an error, empty when all is well.
  std::function<std::string(const std::string& value)> apply;
  bool env_is_of_commands = false;  ///< The variable says nothing of a job file.
  /// Of a name that is no option of ours, and is expected to be one: what is typed in its place, up to the value.
  std::string instead = {};
};

/// An option without a value that sets `target` to `value`.
[[nodiscard]] Option flag(std::vector<std::string> names, std::string help, bool& target, bool value = true,
                          std::string env = {});
/// An option whose value is a whole number from `least`.
[[nodiscard]] Option whole_number_option(std::vector<std::string> names, std::string help, std::optional<int>& target,
                                         int least = 0);
/// A time as "90s" or "720h", and a size as "64GiB".
[[nodiscard]] Option age_option(std::vector<std::string> names, std::string help, std::optional<Duration>& target);
[[nodiscard]] Option size_option(std::vector<std::string> names, std::string help, std::optional<std::int64_t>& target);
/// The number that `text` is, and nothing else.
[[nodiscard]] std::optional<int> whole_number(const std::string& text);

struct ParsedArguments {
  std::vector<std::string> positional;
  std::vector<std::string> after_dashes;  ///< What follows `--`.
  bool has_dashes = false;
  std::map<std::string, std::string> variables;  ///< Of options that nobody typed: by the first name, what was read.
};

/// What to do with the first word that is no option.
enum class AfterPositional {
  kContinue,    ///< Options may follow it.
  kStopScript,  ///< As kContinue behind a name ending in .json, else everything after it belongs to that program.
};

/// Applies options in their order, then the environment's. `arguments` without program and verb. `verb`: whose help
/// has the table; empty: the program's.
[[nodiscard]] ParsedArguments parse_arguments(const std::vector<Option>& options,
                                              const std::vector<std::string>& arguments, AfterPositional after,
                                              Diagnostics& diagnostics, const std::string& verb = {});

/// The second column of describe().
inline constexpr std::size_t kOptionHelpColumn = 34;

/// The table as help text, two columns, each option's text in one line: print_help() breaks it.
[[nodiscard]] std::string describe(const std::vector<Option>& options);

}  // namespace sgd::cli
