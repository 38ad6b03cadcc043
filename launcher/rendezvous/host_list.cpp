#include "launcher/rendezvous/host_list.hpp"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>

namespace sgd::rendezvous {
namespace {

/// Parts between commas that are in no brackets.
std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts(1);
  int depth = 0;
  for (const char c : text) {
    depth += c == '[' ? 1 : c == ']' ? -1 : 0;
    if (c == ',' && depth == 0)
      parts.emplace_back();
    else
      parts.back() += c;
  }
  return parts;
}

/// "01-03" or "7". False: it is neither, or too many.
bool expand_range(const std::string& range, std::vector<std::string>& numbers) {
  const std::size_t dash = range.find('-');
  const std::string first = range.substr(0, dash);
  const std::string last = dash == std::string::npos ? first : range.substr(dash + 1);
  const auto from = whole_number(first);
  const auto to = whole_number(last);
  if (!from || !to || *to < *from || *to - *from >= static_cast<int>(kHostsMax)) return false;
  for (int value = *from; value <= *to; ++value) numbers.push_back(fmt::format("{:0{}}", value, first.size()));
  return true;
}

/// One part, which may have several brackets. False: it is damaged, or too many.
bool expand(const std::string& part, std::vector<std::string>& hosts) {
  std::vector<std::string> begun{""};
  for (std::size_t at = 0; at < part.size();) {
    if (part[at] != '[') {
      const std::size_t end = std::min(part.find('[', at), part.size());
      for (std::string& host : begun) host += part.substr(at, end - at);
      at = end;
      continue;
    }
    const std::size_t end = part.find(']', at);
    if (end == std::string::npos) return false;
    std::vector<std::string> numbers;
    for (const std::string& range : split(part.substr(at + 1, end - at - 1)))
      if (!expand_range(range, numbers)) return false;
    if (begun.size() * numbers.size() > kHostsMax) return false;
    std::vector<std::string> longer;
    for (const std::string& host : begun)
      for (const std::string& each : numbers) longer.push_back(host + each);
    begun = std::move(longer);
    at = end + 1;
  }
  hosts.insert(hosts.end(), begun.begin(), begun.end());
  return hosts.size() <= kHostsMax;
}

}  // namespace

std::optional<int> whole_number(const std::string& text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

Result<std::vector<std::string>> expand_host_list(const std::string& text) {
  std::vector<std::string> hosts;
  for (const std::string& part : split(text))
    if (part.empty() || part.find(']') < part.find('[') || !expand(part, hosts))
      return Error{fmt::format("not a list of hosts: \"{}\"", text)};
  return hosts;
}

}  // namespace sgd::rendezvous
