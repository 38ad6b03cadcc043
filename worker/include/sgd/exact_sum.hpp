#pragma once
// A sum of doubles without rounding: whatever the order in which its terms come, and however they are divided over
// batches and ranks, the sum is the same to the bit. Rounded once, when it is read. A term costs a few additions of
// integers; the sum itself has half a kilobyte.

#include <array>
#include <cstdint>

#include <nlohmann/json.hpp>

namespace sgd {

class ExactSum {
 public:
  void add(double term);
  /// The product without its rounding, where it neither overflows nor is below the smallest normal number.
  void add_product(double left, double right);
  void merge(const ExactSum& other);
  void clear() { *this = ExactSum(); }

  /// The sum, rounded to the nearest double. NaN after a NaN, or after both infinities.
  [[nodiscard]] double value() const;
  /// What value() leaves: together they have twice the digits of a double.
  [[nodiscard]] double rest() const;

  /// Equal for equal sums.
  [[nodiscard]] nlohmann::json state() const;
  /// Adds what state() gave. Throws std::invalid_argument for anything else, and then nothing is changed.
  void merge(const nlohmann::json& state);

 private:
  // A fixed-point number of 32 bits a digit, the lowest of 2^-1074: doubles end at digit 65, and two more hold what
  // 2^64 of the largest sum up to. Digits take 2^30 terms before carries must be passed on.
  static constexpr int kDigits = 68;
  using Digits = std::array<std::int64_t, kDigits>;
  struct Magnitude {
    Digits digits;  ///< Each from 0 to 2^32 - 1.
    bool is_negative = false;
  };
  static void carry(Digits& digits);
  [[nodiscard]] Magnitude magnitude() const;
  void add_at(int position, std::uint64_t mantissa, bool is_negative);

  Digits digits_{};
  std::int64_t since_carry_ = 0;
  bool has_nan_ = false;
  bool has_infinity_ = false;
  bool has_negative_infinity_ = false;
};

}  // namespace sgd
