#include "launcher/rendezvous/own_host.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <iterator>
#include <memory>

namespace sgd::rendezvous {
namespace {

std::string text_of(const sockaddr* address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  const void* bytes = nullptr;
  if (address->sa_family == AF_INET) bytes = &reinterpret_cast<const sockaddr_in*>(address)->sin_addr;
  if (address->sa_family == AF_INET6) bytes = &reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr;
  if (bytes == nullptr || ::inet_ntop(address->sa_family, bytes, text.data(), text.size()) == nullptr) return {};
  return text.data();
}

std::vector<std::string> addresses_of(const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(host.c_str(), nullptr, &hints, &found) != 0) return {};
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, &::freeaddrinfo);
  std::vector<std::string> texts;
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) texts.push_back(text_of(one->ai_addr));
  return texts;
}

/// Of the interfaces that are up, IPv4 first; those of the loopback interface last.
std::vector<std::string> own_addresses() {
  ifaddrs* found = nullptr;
  if (::getifaddrs(&found) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(found, &::freeifaddrs);
  std::vector<std::pair<int, std::string>> ranked;
  for (const ifaddrs* one = found; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr || (one->ifa_flags & IFF_UP) == 0) continue;
    const std::string text = text_of(one->ifa_addr);
    const bool is_local_alone = (one->ifa_flags & IFF_LOOPBACK) != 0 || text.starts_with("fe80");
    if (!text.empty())
      ranked.emplace_back((is_local_alone ? 2 : 0) + (one->ifa_addr->sa_family == AF_INET ? 0 : 1), text);
  }
  std::stable_sort(ranked.begin(), ranked.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::string> texts;
  for (auto& [rank, text] : ranked) texts.push_back(std::move(text));
  return texts;
}

bool is_loopback_text(const std::string& address) {
  return address.starts_with("127.") || address == "::1";
}

bool is_ipv6_text(const std::string& address) {
  return address.find(':') != std::string::npos;
}

}  // namespace

bool is_own_host(const std::string& host) {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) == 0) {
    const std::string own = name.data();
    if (host == own || host == own.substr(0, own.find('.'))) return true;
  }
  const auto own = own_addresses();
  const auto named = addresses_of(host);
  return std::any_of(named.begin(), named.end(), [&own](const std::string& address) {
    return is_loopback_text(address) || std::find(own.begin(), own.end(), address) != own.end();
  });
}

HeadPlace place_of(const net::Address& head, const std::vector<std::string>& named,
                   const std::vector<std::string>& own) {
  // A loopback address that a system gives to its own name says nothing of how others reach it, unless it is all.
  std::vector<std::string> meant;
  std::copy_if(named.begin(), named.end(), std::back_inserter(meant), std::not_fn(is_loopback_text));
  if (meant.empty()) meant = named;
  const bool is_ipv6 = meant.empty() ? is_ipv6_text(head.host) : std::all_of(meant.begin(), meant.end(), is_ipv6_text);
  std::erase_if(meant, [is_ipv6](const std::string& address) { return is_ipv6_text(address) != is_ipv6; });
  if (net::is_loopback(head)) return {!meant.empty() ? meant.front() : is_ipv6 ? "::1" : "127.0.0.1", ""};

  HeadPlace place{is_ipv6 ? "::" : "0.0.0.0", ""};
  const auto is_here = [&own](const std::string& address) {
    return !is_loopback_text(address) && std::find(own.begin(), own.end(), address) != own.end();
  };
  const auto reaches_far = [is_ipv6](const std::string& address) {
    return is_ipv6_text(address) == is_ipv6 && !is_loopback_text(address) && !address.starts_with("fe80");
  };
  const auto found = std::find_if(meant.begin(), meant.end(), is_here);
  if (found != meant.end()) return {place.listen, *found};
  const auto other = std::find_if(own.begin(), own.end(), reaches_far);
  if (other != own.end()) place.own = *other;
  return place;
}

HeadPlace find_place(const net::Address& head) {
  return place_of(head, addresses_of(head.host), own_addresses());
}

}  // namespace sgd::rendezvous
