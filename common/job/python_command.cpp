#include "common/job/python_command.hpp"

#include <algorithm>
#include <array>
#include <string_view>

namespace sgd::job {
namespace {

/// "python", "python3", "python3.12", in any folder.
bool is_python(std::string_view program) {
  program.remove_prefix(program.find_last_of('/') + 1);
  if (!program.starts_with("python")) return false;
  program.remove_prefix(6);
  return program.find_first_not_of("0123456789.") == std::string_view::npos;
}

bool is_plain_option(std::string_view word) {
  constexpr std::array<std::string_view, 10> kPlain = {"-u", "-B", "-b", "-E", "-I", "-O", "-OO", "-P", "-s", "-v"};
  const bool is_joined = word.size() > 2 && (word.starts_with("-X") || word.starts_with("-W"));
  return is_joined || std::find(kPlain.begin(), kPlain.end(), word) != kPlain.end();
}

}  // namespace

std::optional<PythonCommand> python_command(const std::vector<std::string>& command) {
  if (command.empty() || !is_python(command.front())) return std::nullopt;
  PythonCommand python;
  std::size_t at = 1;
  while (at < command.size() && command[at].starts_with('-') && command[at] != "-m") {
    if (command[at] == "-X" || command[at] == "-W") {
      at += 2;
    } else if (is_plain_option(command[at])) {
      ++at;
    } else {
      return std::nullopt;
    }
  }
  const bool is_module = at < command.size() && command[at] == "-m";
  if (at + (is_module ? 1 : 0) >= command.size()) return std::nullopt;
  const auto script = command.begin() + static_cast<std::ptrdiff_t>(at);
  python.interpreter.assign(command.begin(), script);
  python.script.assign(script, command.end());
  return python;
}

std::vector<std::string> by_way_of(const std::string& program, const PythonCommand& command,
                                   const std::vector<std::string>& arguments) {
  std::vector<std::string> words = command.interpreter;
  words.push_back(program);
  words.insert(words.end(), arguments.begin(), arguments.end());
  words.insert(words.end(), command.script.begin(), command.script.end());
  return words;
}

}  // namespace sgd::job
