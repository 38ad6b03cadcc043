#include "launcher/tune/keyed_random.hpp"

#include <cmath>
#include <numbers>

#include "common/base/assert.hpp"

namespace sgd::tune {
namespace {

constexpr std::uint64_t kStep = 0x9e3779b97f4a7c15;

std::uint64_t mixed(std::uint64_t value) {
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
  value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
  return value ^ (value >> 31);
}

}  // namespace

KeyedRandom::KeyedRandom(std::uint64_t seed, std::string_view purpose, std::uint64_t first, std::uint64_t second)
    : state_(mixed(seed + kStep)) {
  const auto take = [&](std::uint64_t value) { state_ = mixed((state_ ^ value) + kStep); };
  for (const char c : purpose) take(static_cast<unsigned char>(c));
  take(purpose.size());
  take(first);
  take(second);
}

std::uint64_t KeyedRandom::next() {
  state_ += kStep;
  return mixed(state_);
}

double KeyedRandom::unit() {
  return static_cast<double>(next() >> 11) * 0x1p-53;
}

std::uint64_t KeyedRandom::below(std::uint64_t count) {
  SGD_ASSERT(count >= 1);
  // What would make the first values likelier is drawn again: less than half of all.
  const std::uint64_t excess = (0 - count) % count;
  for (;;) {
    const std::uint64_t value = next();
    if (value >= excess) return value % count;
  }
}

double KeyedRandom::normal() {
  const double radius = std::sqrt(-2 * std::log(1 - unit()));
  return radius * std::cos(2 * std::numbers::pi * unit());
}

}  // namespace sgd::tune
