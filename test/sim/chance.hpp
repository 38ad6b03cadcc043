#pragma once
// All chance of one simulated cluster, from one 64-bit seed. Draws must be made in an order that depends
// on nothing else, or a seed could not be replayed.

#include <array>
#include <cmath>
#include <cstdint>

#include "common/base/time.hpp"
#include "launcher/core/random.hpp"
#include "launcher/core/secrets.hpp"

namespace sgd::sim {

class Chance {
 public:
  explicit Chance(std::uint64_t seed) : random_(spread(seed)) {}

  std::uint64_t next() { return random_.next(); }
  /// For a machine that makes what nobody may guess.
  core::SecretKey secret() { return {next(), next(), next(), next() | 1}; }

  double fraction() { return static_cast<double>(next() >> 11) * 0x1.0p-53; }
  bool with(double probability) { return fraction() < probability; }
  int between(int low, int high) { return low + static_cast<int>(next() % static_cast<std::uint64_t>(high - low + 1)); }
  Duration between(Duration low, Duration high) {
    return whole(low + Duration(static_cast<Duration::rep>(fraction() * static_cast<double>((high - low).count()))));
  }
  /// Between the two with equal chance for each order of magnitude.
  Duration spread_between(Duration low, Duration high) {
    return whole(from_seconds(to_seconds(low) * std::pow(to_seconds(high) / to_seconds(low), fraction())));
  }
  /// Until the next event of a kind that comes so many times a minute.
  Duration until_next(double per_minute) { return from_seconds(-std::log(1 - fraction()) * 60 / per_minute); }
  template <class Container>
  auto& pick(Container& items) {
    return items[static_cast<std::size_t>(next() % items.size())];
  }

 private:
  /// In milliseconds where it is long enough, so that it can be read.
  static Duration whole(Duration time) {
    if (time < std::chrono::milliseconds(20)) return time;
    return std::chrono::duration_cast<std::chrono::milliseconds>(time);
  }
  static std::array<std::uint64_t, 4> spread(std::uint64_t seed) {
    std::array<std::uint64_t, 4> words{};
    for (std::uint64_t& word : words) {  // splitmix64
      std::uint64_t z = (seed += 0x9e3779b97f4a7c15ull);
      z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
      z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
      word = z ^ (z >> 31);
    }
    return words;
  }

  core::Random random_;
};

}  // namespace sgd::sim
