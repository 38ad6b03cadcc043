#include "launcher/cli/command_line.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <map>
#include <set>

#include <fmt/format.h>
#include <boost/program_options/cmdline.hpp>
#include <boost/program_options/options_description.hpp>
#include <boost/program_options/parsers.hpp>
#include <boost/program_options/value_semantic.hpp>

#include "common/base/bytes.hpp"
#include "common/json/suggest.hpp"

namespace sgd::cli {
namespace {

namespace po = boost::program_options;

constexpr const char* kNumber = "N";  ///< What stands for a value that is one.

/// Names are looked up as a whole, and letters are not put together. The table says which ones there are.
constexpr int kStyle = po::command_line_style::unix_style &
                       ~(po::command_line_style::allow_guessing | po::command_line_style::allow_sticky);

bool is_long(const std::string& name) {
  return name.starts_with("--");
}

/// The table as the library knows it; what it finds has the option's first name. To the library no option needs its
/// value: it would end with the first that is missing, and take for an option a value that looks like one.
void describe_to_library(const std::vector<Option>& options, po::options_description& known) {
  for (const Option& option : options) {
    std::string names;
    std::string letter;
    for (const std::string& name : option.names) {
      if (is_long(name)) names += (names.empty() ? "" : ",") + name.substr(2);
      if (name.size() == 2) letter = "," + name.substr(1);
    }
    known.add_options()((names + letter).c_str(), po::value<std::string>()->implicit_value(""));
  }
}

class Parser {
 public:
  Parser(const std::vector<Option>& options, Diagnostics& diagnostics, const std::string& verb)
      : options_(options), diagnostics_(diagnostics), verb_(verb) {
    describe_to_library(options, known_);
  }

  void run(const std::vector<std::string>& arguments, AfterPositional after, ParsedArguments& out) {
    for (std::size_t index = 0; index < arguments.size(); ++index) {
      const std::string& word = arguments[index];
      if (word == "--") {
        out.has_dashes = true;
        out.after_dashes.assign(arguments.begin() + static_cast<std::ptrdiff_t>(index) + 1, arguments.end());
        return;
      }
      if (word.size() < 2 || word[0] != '-') {
        out.positional.push_back(word);
        const std::string& first = out.positional.front();
        if (after == AfterPositional::kContinue || first.ends_with(".json") || first == "-") continue;
        out.positional.insert(out.positional.end(), arguments.begin() + static_cast<std::ptrdiff_t>(index) + 1,
                              arguments.end());
        return;
      }
      index = take_option(arguments, index);
    }
  }

  void read_environment(bool is_job_file, ParsedArguments& out) {
    for (const Option& option : options_) {
      if (option.env.empty() || given_.contains(&option) || (is_job_file && option.env_is_of_commands)) continue;
      const char* value = std::getenv(option.env.c_str());
      if (value == nullptr || *value == '\0') continue;
      out.variables.emplace(option.names.front(), option.env);
      if (option.value.empty() && !is_set(option, value)) continue;
      const std::string error = option.apply(option.value.empty() ? "" : value);
      if (!error.empty()) diagnostics_.error(option.env, 0, 0, error);
    }
  }

 private:
  /// What one word says.
  struct Word {
    const Option* option = nullptr;  ///< None: the word is no option of the table.
    std::string name;                ///< As it was typed, but with dashes.
    std::optional<std::string> value;
  };

  /// A flag's variable is a number, as torchrun has it: of "false" nobody could be sure.
  bool is_set(const Option& option, const char* value) {
    const std::optional<int> number = whole_number(value);
    if (!number) diagnostics_.error(option.env, 0, 0, fmt::format("expected 0 or 1, got \"{}\"", value));
    return number.value_or(0) != 0;
  }

  const Option* find(const std::string& name) const {
    for (const Option& option : options_)
      if (std::find(option.names.begin(), option.names.end(), name) != option.names.end()) return &option;
    return nullptr;
  }

  /// "-n=4", as argparse reads it: one "=" behind a letter that takes a value is no part of the value.
  std::optional<Word> read_letter(const std::string& word) const {
    const std::size_t name_end = std::min(word.find('='), word.size());
    const Option* option = is_long(word) || name_end == word.size() ? nullptr : find(word.substr(0, name_end));
    if (option == nullptr || option->value.empty()) return std::nullopt;
    return Word{option, word.substr(0, name_end), word.substr(name_end + 1)};
  }

  Word read(const std::string& word) const {
    if (std::optional<Word> letter = read_letter(word)) return *std::move(letter);
    const std::size_t name_end = is_long(word) ? std::min(word.find('='), word.size()) : word.size();
    Word read{nullptr, word.substr(0, name_end), {}};
    if (is_long(word)) std::replace(read.name.begin(), read.name.end(), '_', '-');
    if (read.name.starts_with("---")) return read;  // The library takes "---n" for "-n".
    std::string text = read.name + word.substr(name_end);
    const bool has_empty_value = name_end + 1 == word.size();
    if (has_empty_value) text.pop_back();                            // The library would refuse it.
    const auto several_letters = [this](const std::string& given) {  // "-ppn", which it would take for -p.
      const Option* option = is_long(given) || given.size() == 2 ? nullptr : find(given);
      return std::pair(option == nullptr ? "" : option->names.front().substr(2), std::string());
    };
    const std::vector<po::option> found = po::command_line_parser(std::vector<std::string>{text})
                                              .options(known_)
                                              .style(kStyle)
                                              .extra_parser(several_letters)
                                              .allow_unregistered()
                                              .run()
                                              .options;
    if (found.empty() || found.front().string_key.empty() || found.front().unregistered) return read;
    const Option* option = find("--" + found.front().string_key);
    const std::vector<std::string>& values = found.front().value;
    if (!is_long(word) && !values.empty()) {  // "-n4"
      const bool is_letter = word.size() == 3 && std::isalpha(static_cast<unsigned char>(word.back())) != 0;
      if (option->value.empty() || (option->value == kNumber && is_letter)) return read;  // "-np"
      read.name = word.substr(0, 2);
    }
    read.option = option;
    if (has_empty_value || !values.empty()) read.value = values.empty() ? "" : values.front();
    return read;
  }

  /// Returns the index of the last argument used.
  std::size_t take_option(const std::vector<std::string>& arguments, std::size_t index) {
    Word word = read(arguments[index]);
    if (word.option == nullptr) {
      unknown(word.name);
      return index;
    }
    given_.insert(word.option);
    if (!word.option->instead.empty()) return refuse_expected(arguments, index, word);
    if (word.option->value.empty()) {
      if (word.value)
        diagnostics_.error(word.name, 0, 0, fmt::format("takes no value, got \"{}\"", *word.value));
      else
        apply(*word.option, word.name, "");
      return index;
    }
    if (!word.value) {
      if (index + 1 >= arguments.size() || arguments[index + 1] == "--") {
        diagnostics_.error(word.name, 0, 0, fmt::format("a value is missing: {} {}", word.name, word.option->value));
        return index;
      }
      word.value = arguments[++index];
    }
    apply(*word.option, word.name, *word.value);
    return index;
  }

  void apply(const Option& option, const std::string& name, const std::string& value) {
    const std::string error = option.apply(value);
    if (!error.empty()) diagnostics_.error(name, 0, 0, error);
  }

  /// Its value is passed over, so that what follows is still read.
  std::size_t refuse_expected(const std::vector<std::string>& arguments, std::size_t index, Word word) {
    const bool has_next = index + 1 < arguments.size() && !arguments[index + 1].starts_with('-') &&
                          !arguments[index + 1].ends_with(".json");
    if (!word.value && has_next) word.value = arguments[++index];
    diagnostics_.error(word.name, 0, 0,
                       fmt::format("is a key of the job file, not an option: use {}={}", word.option->instead,
                                   word.value.value_or("VALUE")));
    return index;
  }

  void unknown(const std::string& name) {
    // Without their dashes, which would count as letters that are right.
    const auto letters = [](const std::string& dashed) {
      return dashed.substr(std::min(dashed.find_first_not_of('-'), dashed.size()));
    };
    std::vector<std::string> words;
    std::map<std::string, std::string> instead;
    for (const Option& option : options_) {
      for (const std::string& known : option.names) {
        if (!known.starts_with("--")) continue;
        words.push_back(letters(known));
        if (!option.instead.empty()) instead[letters(known)] = option.instead;
      }
    }
    const std::optional<std::string> near = json::nearest(letters(name), words);
    if (near && instead.contains(*near))
      return diagnostics_.error(name, 0, 0, fmt::format("unknown option; did you mean {}=VALUE?", instead.at(*near)));
    // "-np", as other launchers have it.
    const Option* letter = is_long(name) || name.size() < 2 ? nullptr : find(name.substr(0, 2));
    if (!near && letter != nullptr && !letter->value.empty())
      return diagnostics_.error(name, 0, 0, fmt::format("unknown option; did you mean {}?", name.substr(0, 2)));
    diagnostics_.error(name, 0, 0,
                       near
                           ? fmt::format("unknown option; did you mean --{}?", *near)
                           : fmt::format("unknown option; see sgd-launch {}{}--help", verb_, verb_.empty() ? "" : " "));
  }

  const std::vector<Option>& options_;
  po::options_description known_;
  Diagnostics& diagnostics_;
  std::string verb_;
  std::set<const Option*> given_;
};

}  // namespace

Option flag(std::vector<std::string> names, std::string help, bool& target, bool value, std::string env) {
  return {std::move(names), "", std::move(help), std::move(env), [&target, value](const std::string&) {
            target = value;
            return std::string();
          }};
}

Option whole_number_option(std::vector<std::string> names, std::string help, std::optional<int>& target, int least) {
  return {std::move(names), "N", std::move(help), "", [&target, least](const std::string& text) {
            target = whole_number(text);
            return !target || *target < least ? fmt::format("expected a number from {}, got \"{}\"", least, text)
                                              : std::string();
          }};
}

Option age_option(std::vector<std::string> names, std::string help, std::optional<Duration>& target) {
  return {std::move(names), "TIME", std::move(help), "", [&target](const std::string& text) {
            target = parse_duration(text);
            return target ? std::string() : fmt::format("expected a time as 90s or 720h, got \"{}\"", text);
          }};
}

Option size_option(std::vector<std::string> names, std::string help, std::optional<std::int64_t>& target) {
  return {std::move(names), "SIZE", std::move(help), "", [&target](const std::string& text) {
            target = parse_bytes(text);
            return target && *target > 0 ? std::string() : fmt::format("expected a size as 64GiB, got \"{}\"", text);
          }};
}

std::optional<int> whole_number(const std::string& text) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return number;
}

ParsedArguments parse_arguments(const std::vector<Option>& options, const std::vector<std::string>& arguments,
                                AfterPositional after, Diagnostics& diagnostics, const std::string& verb) {
  ParsedArguments parsed;
  Parser parser(options, diagnostics, verb);
  parser.run(arguments, after, parsed);
  parser.read_environment(!parsed.positional.empty() && parsed.positional.front().ends_with(".json"), parsed);
  return parsed;
}

std::string describe(const std::vector<Option>& options) {
  std::string text;
  for (const Option& option : options) {
    if (option.help.empty()) continue;
    std::string left = "  ";
    for (std::size_t index = 0; index < option.names.size(); ++index)
      left += (index == 0 ? "" : ", ") + option.names[index];
    if (!option.value.empty()) left += " " + option.value;
    if (left.size() + 2 > kOptionHelpColumn) {
      text += left + "\n" + std::string(kOptionHelpColumn, ' ') + option.help + "\n";
    } else {
      text += fmt::format("{:<{}}{}\n", left, kOptionHelpColumn, option.help);
    }
  }
  return text;
}

}  // namespace sgd::cli
