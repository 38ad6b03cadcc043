#include "launcher/tune/domain.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "common/base/assert.hpp"
#include "common/json/words.hpp"

namespace sgd::tune {
namespace {

using Json = nlohmann::json;

struct Word {
  DomainKind kind;
  const char* word;
};
constexpr std::array kWords = {Word{DomainKind::kGrid, "grid"},         Word{DomainKind::kChoice, "choice"},
                               Word{DomainKind::kUniform, "uniform"},   Word{DomainKind::kLogUniform, "loguniform"},
                               Word{DomainKind::kQUniform, "quniform"}, Word{DomainKind::kQLogUniform, "qloguniform"},
                               Word{DomainKind::kRandInt, "randint"},   Word{DomainKind::kQRandInt, "qrandint"},
                               Word{DomainKind::kNormal, "normal"}};

/// A double counts to here without a gap.
constexpr double kWholeEnd = 9007199254740992.0;

bool is_listed(DomainKind kind) {
  return kind == DomainKind::kGrid || kind == DomainKind::kChoice;
}

bool is_quantized(DomainKind kind) {
  return kind == DomainKind::kQUniform || kind == DomainKind::kQLogUniform || kind == DomainKind::kQRandInt;
}

/// The multiple of q nearest to `number`: how many.
double multiples(double number, double q) {
  return std::round(number / q);
}

/// `count` times q, as it would be written: 0.3 and not 0.30000000000000004 for three times 0.1.
double multiple(double count, double q) {
  const double inverse = std::round(1 / q);
  return inverse >= 1 && std::abs(inverse * q - 1) < 1e-12 ? count / inverse : count * q;
}

bool is_multiple(double number, double q) {
  return std::abs(number - multiple(multiples(number, q), q)) <= 1e-9 * std::max(std::abs(number), q);
}

/// Exact where `number` is a whole one below 2^53.
Json number_of(double number, bool is_whole) {
  if (is_whole) return static_cast<std::int64_t>(number);
  return number;
}

}  // namespace

const char* Domain::name() const {
  for (const Word& word : kWords)
    if (word.kind == kind) return word.word;
  SGD_ASSERT(false);
}

bool Domain::is_whole() const {
  return kind == DomainKind::kRandInt || kind == DomainKind::kQRandInt;
}

std::optional<std::uint64_t> Domain::count() const {
  if (is_listed(kind)) return values.size();
  if (kind == DomainKind::kRandInt) return static_cast<std::uint64_t>(high - low);
  if (is_quantized(kind)) return static_cast<std::uint64_t>(multiples(high, q) - multiples(low, q)) + 1;
  return std::nullopt;
}

Json Domain::value_at(std::uint64_t index) const {
  SGD_ASSERT(count() && index < *count());
  if (is_listed(kind)) return values[index];
  const auto offset = static_cast<double>(index);
  if (kind == DomainKind::kRandInt) return number_of(low + offset, true);
  return number_of(multiple(multiples(low, q) + offset, q), is_whole());
}

Json Domain::draw(KeyedRandom& random) const {
  switch (kind) {
    case DomainKind::kGrid:
    case DomainKind::kChoice:
    case DomainKind::kRandInt:
    case DomainKind::kQRandInt:
    case DomainKind::kQUniform:
      return value_at(random.below(*count()));
    case DomainKind::kUniform:
      // Rounding may reach the end, which is not included.
      return std::min(low + (high - low) * random.unit(), std::nextafter(high, low));
    case DomainKind::kLogUniform:
    case DomainKind::kQLogUniform: {
      const double drawn = std::exp(std::log(low) + (std::log(high) - std::log(low)) * random.unit());
      if (kind == DomainKind::kLogUniform) return std::clamp(drawn, low, std::nextafter(high, low));
      return multiple(std::clamp(multiples(drawn, q), multiples(low, q), multiples(high, q)), q);
    }
    case DomainKind::kNormal:
      return low + high * random.normal();
  }
  SGD_ASSERT(false);
}

bool Domain::contains(const Json& value) const {
  if (is_listed(kind)) return std::find(values.begin(), values.end(), value) != values.end();
  if (!value.is_number()) return false;
  const auto number = value.get<double>();
  if (!std::isfinite(number)) return false;
  if (kind == DomainKind::kNormal) return true;
  if (is_whole() && !value.is_number_integer()) return false;
  if (kind == DomainKind::kRandInt) return number >= low && number < high;
  // A program may draw with its ends included.
  if (kind == DomainKind::kUniform || kind == DomainKind::kLogUniform) return number >= low && number <= high;
  const double slack = 1e-9 * q;
  return number >= low - slack && number <= high + slack && is_multiple(number, q);
}

Json Domain::moved(const Json& value, double factor) const {
  SGD_ASSERT(!is_listed(kind) && value.is_number());
  double number = value.get<double>() * factor;
  if (kind == DomainKind::kNormal) return number;
  if (is_quantized(kind))
    number = multiple(std::clamp(multiples(number, q), multiples(low, q), multiples(high, q)), q);
  else if (kind == DomainKind::kRandInt)
    number = std::clamp(std::nearbyint(number), low, high - 1);  // Halves to even, as Python rounds.
  else
    number = std::clamp(number, low, high);
  return number_of(number, is_whole());
}

Json Domain::to_json() const {
  if (is_listed(kind)) return {{name(), values}};
  Json numbers = {number_of(low, is_whole()), number_of(high, is_whole())};
  if (is_quantized(kind)) numbers.push_back(number_of(q, is_whole()));
  return {{name(), std::move(numbers)}};
}

std::string Domain::in_words() const {
  if (is_listed(kind)) {
    std::vector<std::string> shown;
    constexpr std::size_t kShown = 8;
    for (std::size_t i = 0; i < std::min(values.size(), kShown); ++i) shown.push_back(json::shown(values[i]));
    if (values.size() > kShown) return fmt::format("one of {} values, such as {}", values.size(), shown.front());
    return json::alternatives(shown);
  }
  const auto text = [&](double number) { return number_of(number, is_whole()).dump(); };
  if (kind == DomainKind::kNormal) return "a number";
  if (kind == DomainKind::kRandInt) return fmt::format("a whole number from {} to {}", text(low), text(high - 1));
  if (!is_quantized(kind)) return fmt::format("a number from {} to {}", text(low), text(high));
  return fmt::format("a {}multiple of {} from {} to {}", is_whole() ? "whole " : "", text(q), text(low), text(high));
}

namespace {

/// What of one domain is told, where it stands.
class Teller {
 public:
  Teller(const std::string& path, const char* word, SourceLocation location, Diagnostics& diagnostics)
      : subject_(json::quote(fmt::format("tune.parameters.{}.{}", path, word))),
        location_(std::move(location)),
        diagnostics_(diagnostics) {}

  void must(const std::string& what) {
    is_sound_ = false;
    location_.error(diagnostics_, fmt::format("{} must {}", subject_, what));
  }
  [[nodiscard]] bool is_sound() const { return is_sound_; }

 private:
  std::string subject_;
  SourceLocation location_;
  Diagnostics& diagnostics_;
  bool is_sound_ = true;
};

void check_listed(const std::vector<Json>& values, Teller& teller) {
  std::vector<const Json*> sorted;
  for (const Json& value : values) sorted.push_back(&value);
  std::sort(sorted.begin(), sorted.end(), [](const Json* a, const Json* b) { return *a < *b; });
  const auto twice =
      std::adjacent_find(sorted.begin(), sorted.end(), [](const Json* a, const Json* b) { return *a == *b; });
  if (twice != sorted.end()) teller.must(fmt::format("list each value once, got {} twice", json::shown(**twice)));
}

void check_numbers(const Domain& domain, Teller& teller) {
  const auto text = [](double number) { return Json(number).dump(); };
  if (domain.kind == DomainKind::kNormal) {
    if (domain.high <= 0) teller.must(fmt::format("have a deviation above 0, got {}", text(domain.high)));
    return;
  }
  const bool is_log = domain.kind == DomainKind::kLogUniform || domain.kind == DomainKind::kQLogUniform;
  if (!(domain.low < domain.high))
    teller.must(fmt::format("have its low end below its high end, got {} and {}", text(domain.low), text(domain.high)));
  if (is_log && domain.low <= 0) teller.must(fmt::format("have a low end above 0, got {}", text(domain.low)));
  if (!std::isfinite(domain.high - domain.low)) teller.must("have a range that a double holds");
  if (domain.is_whole() && (std::abs(domain.low) > kWholeEnd || std::abs(domain.high) > kWholeEnd))
    teller.must("have ends within 2^53");
  if (!is_quantized(domain.kind) || !teller.is_sound()) return;
  if (domain.q <= 0) return teller.must(fmt::format("have a step above 0, got {}", text(domain.q)));
  if (std::max(std::abs(domain.low), std::abs(domain.high)) / domain.q > kWholeEnd)
    return teller.must(fmt::format("have at most 2^53 steps, got a step of {}", text(domain.q)));
  for (const double end : {domain.low, domain.high})
    if (!is_multiple(end, domain.q))
      teller.must(fmt::format("have ends that are multiples of its step {}, got {}", text(domain.q), text(end)));
}

}  // namespace

SourceLocation SourceLocation::inside(const std::string& key) const {
  if (place == nullptr) return *this;
  const auto found = place->members.find(key);
  if (found == place->members.end()) return *this;
  return {found->second.source.empty() ? source : found->second.source, &found->second};
}

void SourceLocation::error(Diagnostics& diagnostics, std::string message) const {
  const json::Position at = place == nullptr ? json::Position{} : place->value;
  diagnostics.error(source, at.line, at.column, std::move(message));
}

std::optional<Domain> parse_domain(const Json& given, const std::string& path, const SourceLocation& location,
                                   Diagnostics& diagnostics) {
  if (!given.is_object()) return std::nullopt;
  if (given.size() != 1) {
    std::vector<std::string> words;
    for (const Word& word : kWords) words.push_back(json::quote(word.word));
    location.error(diagnostics,
                   fmt::format("{} must have exactly one key, which names its domain ({}), got {}",
                               json::quote("tune.parameters." + path), json::alternatives(words), given.size()));
    return std::nullopt;
  }
  const auto [key, content] = std::pair<std::string, const Json&>(given.begin().key(), given.begin().value());
  const auto word = std::find_if(kWords.begin(), kWords.end(), [&](const Word& known) { return key == known.word; });
  if (word == kWords.end() || !content.is_array() || content.size() > kListedValuesMax) return std::nullopt;
  Domain domain;
  domain.kind = word->kind;
  Teller teller(path, word->word, location.inside(key), diagnostics);
  if (is_listed(domain.kind)) {
    if (content.empty()) return std::nullopt;
    domain.values.assign(content.begin(), content.end());
    check_listed(domain.values, teller);
  } else {
    const std::size_t wanted = is_quantized(domain.kind) ? 3 : 2;
    const bool is_whole = domain.is_whole();
    const auto fits = [&](const Json& one) { return is_whole ? one.is_number_integer() : one.is_number(); };
    if (content.size() != wanted || !std::all_of(content.begin(), content.end(), fits)) return std::nullopt;
    domain.low = content[0].get<double>();
    domain.high = content[1].get<double>();
    if (wanted == 3) domain.q = content[2].get<double>();
    check_numbers(domain, teller);
  }
  if (!teller.is_sound()) return std::nullopt;
  return domain;
}

}  // namespace sgd::tune
