#include "launcher/net/attempt_limit.hpp"

#include <algorithm>

#include <boost/asio/ip/address.hpp>

namespace sgd::net {

double AttemptLimit::now_counted(const Failures& failures, TimePoint now) const {
  return std::max(0.0, failures.count - to_seconds(now - failures.at) / to_seconds(one_per_));
}

bool AttemptLimit::allows(TimePoint now, const std::string& peer) const {
  const auto found = of_.find(peer);
  return found == of_.end() || now_counted(found->second, now) + 1 <= burst_;
}

void AttemptLimit::count_failure(TimePoint now, const std::string& peer) {
  if (!of_.contains(peer) && of_.size() >= kPeersMax) forget_one(now);
  Failures& failures = of_[peer];
  failures = {now_counted(failures, now) + 1, now};
}

/// Whoever has failed least: attackers with many names must not wash out the busiest of them.
void AttemptLimit::forget_one(TimePoint now) {
  const auto least = std::min_element(of_.begin(), of_.end(), [&](const auto& a, const auto& b) {
    return now_counted(a.second, now) < now_counted(b.second, now);
  });
  of_.erase(least);
}

std::string address_of_peer(const std::string& peer) {
  std::string host = peer.substr(0, peer.rfind(':'));
  boost::system::error_code error;
  const auto address = boost::asio::ip::make_address(host, error);
  if (error || !address.is_v6()) return host;
  const boost::asio::ip::address_v6 v6 = address.to_v6();
  // On a socket of both kinds: all of IPv4 is in one network of IPv6.
  if (v6.is_v4_mapped()) return boost::asio::ip::make_address_v4(boost::asio::ip::v4_mapped, v6).to_string();
  auto bytes = v6.to_bytes();
  std::fill(bytes.begin() + 8, bytes.end(), static_cast<unsigned char>(0));
  return boost::asio::ip::address_v6(bytes).to_string();
}

}  // namespace sgd::net
