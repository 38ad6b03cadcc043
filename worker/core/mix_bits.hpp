#pragma once
// Chance as a function: bits from a seed and whatever names the occasion (epoch, step, sample), the same on every
// machine. Nothing is drawn one after the other, so nothing of it is state to be saved.

#include <cstdint>

namespace sgd::worker {

inline std::uint64_t splitmix64(std::uint64_t& state) {
  std::uint64_t z = (state += 0x9e3779b97f4a7c15ull);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

/// Folds a value into a seed so that neighbouring values give unrelated seeds.
[[nodiscard]] inline std::uint64_t mixed(std::uint64_t seed, std::uint64_t value) {
  std::uint64_t state = seed ^ (value * 0xd6e8feb86659fd93ull);
  return splitmix64(state);
}

/// 0 .. bound-1 from random bits; `bound` is 1 .. 2^31.
[[nodiscard]] inline std::int64_t below(std::uint64_t bits, std::int64_t bound) {
  return static_cast<std::int64_t>((bits >> 32) * static_cast<std::uint64_t>(bound) >> 32);
}

/// 0 to below 1 from random bits.
[[nodiscard]] inline double unit_interval(std::uint64_t bits) {
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

}  // namespace sgd::worker
