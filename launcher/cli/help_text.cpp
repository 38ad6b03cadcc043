#include "launcher/cli/help_text.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <sstream>

#include <fmt/format.h>

#include "launcher/cli/command_line.hpp"
#include "launcher/cli/verb_table.hpp"

namespace sgd::cli {
namespace {

constexpr std::size_t kUsualWidth = 80;
constexpr std::size_t kWidest = 100;    ///< Longer lines are hard to read.
constexpr std::size_t kNarrowest = 50;  ///< Of less nothing would be left beside the options.
constexpr std::size_t kColumnLast = 40;
constexpr std::size_t kOwnLineIndent = 8;
constexpr const char* kUsage = "Usage: ";

/// Where the text behind a gap of spaces begins; npos: there is one text only.
std::size_t column_of(const std::string& line) {
  const std::size_t first = line.find_first_not_of(' ');
  const std::size_t gap = first == std::string::npos ? first : line.find("  ", first);
  return gap == std::string::npos ? gap : line.find_first_not_of(' ', gap);
}

/// `words` from the end of `out` on, whose last line has `used` characters; further lines begin behind `indent` spaces.
void add_words(std::string& out, const std::string& words, std::size_t used, std::size_t indent, std::size_t width) {
  std::istringstream in(words);
  bool is_first = true;
  for (std::string word; in >> word; is_first = false) {
    const bool fits = is_first || used + 1 + word.size() <= width;
    if (!fits) {
      out += "\n" + std::string(indent, ' ');
      used = indent;
    } else if (!is_first) {
      out += ' ';
      ++used;
    }
    out += word;
    used += word.size();
  }
  out += '\n';
}

void add_line(std::string& out, const std::string& line, std::size_t width) {
  if (line.size() <= width) {
    out += line + "\n";
    return;
  }
  const std::size_t first = line.find_first_not_of(' ');
  if (first > kColumnLast) {  // It went on with a column too far right.
    out += std::string(kOwnLineIndent, ' ');
    return add_words(out, line, kOwnLineIndent, kOwnLineIndent, width);
  }
  const std::size_t column = column_of(line);
  if (column <= kColumnLast) {
    out += line.substr(0, column);
    return add_words(out, line.substr(column), column, column, width);
  }
  const bool is_usage = line.starts_with(kUsage) || line.starts_with("       sgd-launch");
  const bool is_column = first >= kOptionHelpColumn || first == 0;  // A text, which nothing hangs below.
  const std::size_t indent = is_usage ? std::string_view(kUsage).size() + 2 : is_column ? first : first + 4;
  out += std::string(first, ' ');
  add_words(out, line.substr(0, column), first, indent, width);
  if (column == std::string::npos) return;
  const std::size_t below = std::max(indent, kOwnLineIndent);
  out += std::string(below, ' ');
  add_words(out, line.substr(column), below, below, width);
}

}  // namespace

std::string wrapped(const std::string& text, std::size_t width) {
  std::string out;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) add_line(out, line, width);
  return out;
}

std::size_t help_width() {
  const char* given = std::getenv("COLUMNS");
  if (given != nullptr)
    if (const auto columns = whole_number(given); columns && *columns >= static_cast<int>(kNarrowest))
      return static_cast<std::size_t>(*columns);
  winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col < kNarrowest) return kUsualWidth;
  return std::min<std::size_t>(size.ws_col, kWidest);
}

void print_help(const std::string& verb, const std::string& text) {
  std::string sentence = summary_of(verb);
  if (!sentence.empty()) {
    sentence.front() = static_cast<char>(std::toupper(static_cast<unsigned char>(sentence.front())));
    sentence += ".\n";
  }
  fmt::print("{}", wrapped(sentence + text, help_width()));
}

}  // namespace sgd::cli
