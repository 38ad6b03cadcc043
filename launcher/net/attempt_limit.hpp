#pragma once
// How many failed attempts one address may make: a few at once, then one now and then. Pure: the time is an
// argument, and what is remembered has a limit.

#include <map>
#include <string>

#include "common/base/time.hpp"

namespace sgd::net {

class AttemptLimit {
 public:
  static constexpr double kBurst = 10;
  static constexpr Duration kOnePer = std::chrono::seconds(6);
  static constexpr std::size_t kAddressesMax = 4096;

  /// Whether `address` may try now.
  [[nodiscard]] bool allows(TimePoint now, const std::string& address) const;
  void count_failure(TimePoint now, const std::string& address);

 private:
  struct Failures {
    double count = 0;  ///< At `at`; it shrinks with time.
    TimePoint at{};
  };
  [[nodiscard]] static double now_counted(const Failures& failures, TimePoint now);
  void forget_one(TimePoint now);

  std::map<std::string, Failures> of_;
};

/// The host of "10.0.0.2:41822"; of an IPv6 peer its network of 64 bits, since one machine owns all of it.
[[nodiscard]] std::string address_of_peer(const std::string& peer);

}  // namespace sgd::net
