#pragma once
// How many failed attempts one peer may make: a few at once, then one now and then. Pure: the time is an argument, and
// what is remembered has a limit.

#include <map>
#include <string>

#include "common/base/time.hpp"

namespace sgd::net {

class AttemptLimit {
 public:
  static constexpr std::size_t kPeersMax = 4096;

  /// `burst` at once; each is forgotten after `one_per`, one at a time.
  AttemptLimit(double burst, Duration one_per) : burst_(burst), one_per_(one_per) {}

  /// Whether `peer`, by its address or its name, may try now.
  [[nodiscard]] bool allows(TimePoint now, const std::string& peer) const;
  void count_failure(TimePoint now, const std::string& peer);

 private:
  struct Failures {
    double count = 0;  ///< At `at`; it shrinks with time.
    TimePoint at{};
  };
  [[nodiscard]] double now_counted(const Failures& failures, TimePoint now) const;
  void forget_one(TimePoint now);

  double burst_;
  Duration one_per_;
  std::map<std::string, Failures> of_;
};

/// The host of "10.0.0.2:41822" or "::ffff:10.0.0.2:41822"; of an IPv6 peer its network of 64 bits, since one machine
/// owns all of it.
[[nodiscard]] std::string address_of_peer(const std::string& peer);

}  // namespace sgd::net
