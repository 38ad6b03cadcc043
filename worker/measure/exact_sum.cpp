#include "sgd/exact_sum.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>

namespace sgd {
namespace {

constexpr std::int64_t kDigitMask = 0xffff'ffff;
constexpr int kDigitBits = 32;
constexpr int kLowestExponent = -1074;  // Of the lowest bit of the lowest digit.
constexpr std::int64_t kTermsBetweenCarries = std::int64_t{1} << 30;

bool flag_of(const nlohmann::json& state, const char* key) {
  const auto found = state.find(key);
  if (found == state.end()) return false;
  if (!found->is_boolean()) throw std::invalid_argument(std::string("the state of a sum: ") + key + " is no flag");
  return found->get<bool>();
}

}  // namespace

void ExactSum::add_at(int position, std::uint64_t mantissa, bool is_negative) {
  const auto first = static_cast<std::size_t>(position / kDigitBits);
  const int shift = position % kDigitBits;
  const std::uint64_t low = mantissa << shift;
  const std::uint64_t high = shift == 0 ? 0 : mantissa >> (64 - shift);
  const std::int64_t sign = is_negative ? -1 : 1;
  digits_[first] += sign * static_cast<std::int64_t>(low & kDigitMask);
  digits_[first + 1] += sign * static_cast<std::int64_t>(low >> kDigitBits);
  digits_[first + 2] += sign * static_cast<std::int64_t>(high);
  if (++since_carry_ < kTermsBetweenCarries) return;
  carry(digits_);
  since_carry_ = 0;
}

void ExactSum::add(double term) {
  const auto bits = std::bit_cast<std::uint64_t>(term);
  const auto exponent = static_cast<int>(bits >> 52 & 0x7ff);
  const std::uint64_t fraction = bits & ((std::uint64_t{1} << 52) - 1);
  const bool is_negative = bits >> 63 != 0;
  if (exponent == 0x7ff) {
    if (fraction != 0) has_nan_ = true;
    if (fraction == 0) (is_negative ? has_negative_infinity_ : has_infinity_) = true;
    return;
  }
  if (exponent == 0) return add_at(0, fraction, is_negative);
  add_at(exponent - 1, fraction | std::uint64_t{1} << 52, is_negative);
}

void ExactSum::add_product(double left, double right) {
  const double product = left * right;
  add(product);
  if (std::isfinite(product)) add(std::fma(left, right, -product));
}

/// Digits to 0..2^32 - 1; the highest keeps the sign.
void ExactSum::carry(Digits& digits) {
  std::int64_t over = 0;
  for (std::size_t place = 0; place < digits.size(); ++place) {
    const std::int64_t digit = digits[place] + over;
    const bool is_highest = place + 1 == digits.size();
    over = is_highest ? 0 : digit >> kDigitBits;
    digits[place] = is_highest ? digit : digit & kDigitMask;
  }
}

ExactSum::Magnitude ExactSum::magnitude() const {
  Magnitude result{digits_, false};
  carry(result.digits);
  if (result.digits.back() >= 0) return result;
  result.is_negative = true;
  for (std::int64_t& digit : result.digits) digit = -digit;
  carry(result.digits);
  return result;
}

void ExactSum::merge(const ExactSum& other) {
  Digits theirs = other.digits_;
  carry(theirs);
  carry(digits_);
  since_carry_ = 1;
  for (std::size_t place = 0; place < digits_.size(); ++place) digits_[place] += theirs[place];
  has_nan_ = has_nan_ || other.has_nan_;
  has_infinity_ = has_infinity_ || other.has_infinity_;
  has_negative_infinity_ = has_negative_infinity_ || other.has_negative_infinity_;
}

double ExactSum::value() const {
  if (has_nan_ || (has_infinity_ && has_negative_infinity_)) return std::numeric_limits<double>::quiet_NaN();
  if (has_infinity_) return std::numeric_limits<double>::infinity();
  if (has_negative_infinity_) return -std::numeric_limits<double>::infinity();
  const Magnitude sum = magnitude();
  int top = kDigits - 1;
  while (top >= 0 && sum.digits[static_cast<std::size_t>(top)] == 0) --top;
  if (top < 0) return 0;
  const auto digit = [&sum](int place) {
    return place < 0 ? 0 : static_cast<std::uint64_t>(sum.digits[static_cast<std::size_t>(place)]);
  };
  // The 64 highest bits, and in the lowest whether anything is below: then one rounding makes the nearest double.
  std::uint64_t bits = digit(top) << kDigitBits | digit(top - 1);
  const int shift = std::countl_zero(bits);
  bits <<= shift;
  const std::uint64_t next = digit(top - 2) << shift;
  bits |= next >> kDigitBits;
  bool is_more = (next & kDigitMask) != 0;
  for (int place = top - 3; place >= 0 && !is_more; --place) is_more = digit(place) != 0;
  if (is_more) bits |= 1;
  const double rounded = std::ldexp(static_cast<double>(bits), kDigitBits * (top - 1) - shift + kLowestExponent);
  return sum.is_negative ? -rounded : rounded;
}

double ExactSum::rest() const {
  const double rounded = value();
  if (!std::isfinite(rounded)) return 0;
  ExactSum left = *this;
  left.add(-rounded);
  return left.value();
}

nlohmann::json ExactSum::state() const {
  const Magnitude sum = magnitude();
  const auto is_set = [](std::int64_t digit) { return digit != 0; };
  const auto first = std::find_if(sum.digits.begin(), sum.digits.end(), is_set);
  const auto end = std::find_if(sum.digits.rbegin(), sum.digits.rend(), is_set).base();
  const auto at = static_cast<std::uint64_t>(first == sum.digits.end() ? 0 : first - sum.digits.begin());
  nlohmann::json state = {{"at", at}, {"digits", nlohmann::json::array()}};
  for (auto digit = first; digit < end; ++digit) state["digits"].push_back(static_cast<std::uint64_t>(*digit));
  if (sum.is_negative) state["negative"] = true;
  if (has_nan_) state["nan"] = true;
  if (has_infinity_) state["infinity"] = true;
  if (has_negative_infinity_) state["negative_infinity"] = true;
  return state;
}

void ExactSum::merge(const nlohmann::json& state) {
  const auto at = state.find("at");
  const auto digits = state.find("digits");
  if (at == state.end() || digits == state.end() || !at->is_number_unsigned() || !digits->is_array() ||
      at->get<std::uint64_t>() > kDigits || at->get<std::uint64_t>() + digits->size() > kDigits)
    throw std::invalid_argument("the state of a sum has no digits, or more than there are");
  ExactSum theirs;
  const bool is_negative = flag_of(state, "negative");
  auto place = at->get<std::size_t>();
  for (const nlohmann::json& digit : *digits) {
    if (!digit.is_number_unsigned() || digit.get<std::uint64_t>() > static_cast<std::uint64_t>(kDigitMask))
      throw std::invalid_argument("the state of a sum: " + digit.dump() + " is no digit");
    const std::int64_t value = digit.get<std::int64_t>();
    theirs.digits_[place++] = is_negative ? -value : value;
  }
  theirs.has_nan_ = flag_of(state, "nan");
  theirs.has_infinity_ = flag_of(state, "infinity");
  theirs.has_negative_infinity_ = flag_of(state, "negative_infinity");
  merge(theirs);
}

}  // namespace sgd
