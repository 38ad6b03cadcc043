#pragma once
// The values that one parameter may have, and how one of them is drawn. Written in the job file as an object of one
// key:
//   {"grid": [a, b, ...]}            every one of them is tried
//   {"choice": [a, b, ...]}          one of them
//   {"uniform": [low, high]}         a number from low up to high
//   {"loguniform": [low, high]}      the same, each order of magnitude equally likely; low above 0
//   {"quniform": [low, high, q]}     a multiple of q, low and high included
//   {"qloguniform": [low, high, q]}
//   {"randint": [low, high]}         a whole number from low up to, not including, high
//   {"qrandint": [low, high, q]}     a whole multiple of q, low and high included
//   {"normal": [mean, sd]}
// Random draws are in logarithms, exponentials and cosines of the C library: equal on machines with the same one.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/json/diagnostics.hpp"
#include "common/json/reader.hpp"
#include "launcher/tune/keyed_random.hpp"

namespace sgd::tune {

/// Most values that a grid or choice lists.
inline constexpr std::size_t kListedValuesMax = 10'000;

/// Where errors of a value are told: its place in the file, where known.
struct SourceLocation {
  std::string source;
  const json::SourceMap* place = nullptr;

  /// Of the member `key`; where that has no place of its own, this.
  [[nodiscard]] SourceLocation inside(const std::string& key) const;
  void error(Diagnostics& diagnostics, std::string message) const;
};

enum class DomainKind {
  kGrid,         ///< Each of `values` is tried.
  kChoice,       ///< One of `values`.
  kUniform,      ///< [low, high).
  kLogUniform,   ///< [low, high), even in the logarithm.
  kQUniform,     ///< Multiples of q in [low, high].
  kQLogUniform,  ///< The same, even in the logarithm.
  kRandInt,      ///< Whole numbers in [low, high).
  kQRandInt,     ///< Whole multiples of q in [low, high].
  kNormal,       ///< Any number, around `low` by `high`.
};

struct Domain {
  DomainKind kind = DomainKind::kChoice;
  std::vector<nlohmann::json> values;  ///< Of grid and choice; at least 1.
  double low = 0;                      ///< Of all others; a normal's mean.
  double high = 0;                     ///< A normal's standard deviation.
  double q = 0;                        ///< Of the quantized ones, above 0.

  /// The job file's word for it.
  [[nodiscard]] const char* name() const;
  /// True where values are whole numbers.
  [[nodiscard]] bool is_whole() const;
  /// How many values there are; nothing where they cannot be counted.
  [[nodiscard]] std::optional<std::uint64_t> count() const;
  /// The value number `index`, below count(), in rising order or as listed.
  [[nodiscard]] nlohmann::json value_at(std::uint64_t index) const;
  [[nodiscard]] nlohmann::json draw(KeyedRandom& random) const;
  [[nodiscard]] bool contains(const nlohmann::json& value) const;
  /// A number of it times `factor`, brought back into the domain. Not of grid and choice.
  [[nodiscard]] nlohmann::json moved(const nlohmann::json& value, double factor) const;
  /// As the job file has it.
  [[nodiscard]] nlohmann::json to_json() const;
  /// What may stand there, for errors: "a number from 0.0001 to 0.1".
  [[nodiscard]] std::string in_words() const;
};

/// `path`: of the parameter, for errors. Nothing when `given` is no domain; what the job file's schema has not said of
/// it is in `diagnostics` then.
[[nodiscard]] std::optional<Domain> parse_domain(const nlohmann::json& given, const std::string& path,
                                                 const SourceLocation& location, Diagnostics& diagnostics);

}  // namespace sgd::tune
