#include "launcher/cli/command_line.hpp"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <set>

#include <fmt/format.h>

#include "common/base/bytes.hpp"
#include "common/json/suggest.hpp"

namespace sgd::cli {
namespace {

constexpr std::size_t kHelpColumn = 34;

/// "--nproc_per_node" is "--nproc-per-node".
std::string with_dashes(std::string name) {
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

class Parser {
 public:
  Parser(const std::vector<Option>& options, Diagnostics& diagnostics) : options_(options), diagnostics_(diagnostics) {}

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

  void read_environment(bool is_job_file) {
    for (const Option& option : options_) {
      if (option.env.empty() || given_.contains(&option) || (is_job_file && option.env_is_of_commands)) continue;
      const char* value = std::getenv(option.env.c_str());
      if (value == nullptr || *value == '\0') continue;
      if (option.value.empty() && std::string(value) == "0") continue;
      const std::string error = option.apply(option.value.empty() ? "" : value);
      if (!error.empty()) diagnostics_.error(option.env, 0, 0, error);
    }
  }

 private:
  const Option* find(const std::string& name) const {
    for (const Option& option : options_)
      if (std::find(option.names.begin(), option.names.end(), name) != option.names.end()) return &option;
    return nullptr;
  }

  /// Returns the index of the last argument used.
  std::size_t take_option(const std::vector<std::string>& arguments, std::size_t index) {
    const std::string& word = arguments[index];
    const std::size_t equals = word.starts_with("--") ? word.find('=') : std::string::npos;
    std::string name = word.starts_with("--") ? with_dashes(word.substr(0, equals)) : word;
    std::string attached = equals == std::string::npos ? "" : word.substr(equals + 1);
    bool has_value = equals != std::string::npos;
    const Option* option = find(name);
    if (option == nullptr && !word.starts_with("--") && word.size() > 2) {  // "-n4"
      option = find(word.substr(0, 2));
      if (option != nullptr && !option->value.empty()) {
        name = word.substr(0, 2);
        attached = word.substr(2);
        has_value = true;
      } else {
        option = nullptr;
      }
    }
    if (option == nullptr) {
      unknown(name);
      return index;
    }
    given_.insert(option);
    if (option->value.empty()) {
      if (has_value)
        diagnostics_.error(name, 0, 0, fmt::format("takes no value, got \"{}\"", attached));
      else
        apply(*option, name, "");
      return index;
    }
    if (!has_value) {
      if (index + 1 >= arguments.size() || arguments[index + 1] == "--") {
        diagnostics_.error(name, 0, 0, fmt::format("a value is missing: {} {}", name, option->value));
        return index;
      }
      attached = arguments[++index];
    }
    apply(*option, name, attached);
    return index;
  }

  void apply(const Option& option, const std::string& name, const std::string& value) {
    const std::string error = option.apply(value);
    if (!error.empty()) diagnostics_.error(name, 0, 0, error);
  }

  void unknown(const std::string& name) {
    // Without their dashes, which would count as letters that are right.
    const auto letters = [](const std::string& dashed) {
      return dashed.substr(std::min(dashed.find_first_not_of('-'), dashed.size()));
    };
    std::vector<std::string> words;
    for (const Option& option : options_) {
      for (const std::string& known : option.names) {
        if (known.starts_with("--")) words.push_back(letters(known));
      }
    }
    const std::optional<std::string> near = json::nearest(letters(name), words);
    diagnostics_.error(
        name, 0, 0,
        near ? fmt::format("unknown option; did you mean --{}?", *near) : "unknown option; see sgd-launch --help");
  }

  const std::vector<Option>& options_;
  Diagnostics& diagnostics_;
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
                                AfterPositional after, Diagnostics& diagnostics) {
  ParsedArguments parsed;
  Parser parser(options, diagnostics);
  parser.run(arguments, after, parsed);
  parser.read_environment(!parsed.positional.empty() && parsed.positional.front().ends_with(".json"));
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
    if (left.size() + 2 > kHelpColumn) {
      text += left + "\n" + std::string(kHelpColumn, ' ') + option.help + "\n";
    } else {
      text += fmt::format("{:<{}}{}\n", left, kHelpColumn, option.help);
    }
  }
  return text;
}

}  // namespace sgd::cli
