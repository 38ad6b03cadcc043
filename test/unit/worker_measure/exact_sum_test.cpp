// Sums without rounding, against numbers whose sum is known and against every order of the same terms.
#include <catch2/catch.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <stdexcept>
#include <vector>

#include "sgd/exact_sum.hpp"

namespace sgd {
namespace {

std::uint64_t bits(double value) {
  return std::bit_cast<std::uint64_t>(value);
}

ExactSum sum_of(const std::vector<double>& terms) {
  ExactSum sum;
  for (const double term : terms) sum.add(term);
  return sum;
}

/// Terms of all sizes and signs.
std::vector<double> wild_terms(std::mt19937_64& random, std::size_t count) {
  std::uniform_int_distribution<int> exponent(-1074, 960);
  std::uniform_real_distribution<double> fraction(-1, 1);
  std::vector<double> terms;
  for (std::size_t at = 0; at < count; ++at) terms.push_back(std::ldexp(fraction(random), exponent(random)));
  return terms;
}

}  // namespace

TEST_CASE("exact sum: what doubles lose stays") {
  CHECK(sum_of({}).value() == 0);
  CHECK(sum_of({1e16, 1, -1e16}).value() == 1);
  CHECK(sum_of({1e308, 1e308, -1e308, -1e308, 5e-324}).value() == 5e-324);
  CHECK(sum_of({0.1, 0.2, -0.3}).value() == 0x1p-55);
  CHECK(sum_of({-1.5, 0.25}).value() == -1.25);
  CHECK(sum_of({-5e-324, -5e-324}).value() == -1e-323);
}

TEST_CASE("exact sum: rounds once, to the nearest, halves to even") {
  CHECK(sum_of({1, 0x1p-53}).value() == 1);
  CHECK(sum_of({1, 0x1p-53, 0x1p-1000}).value() == 1 + 0x1p-52);
  CHECK(sum_of({1 + 0x1p-52, 0x1p-53}).value() == 1 + 0x1p-51);
  CHECK(sum_of({-1, -0x1p-53, -0x1p-1070}).value() == -1 - 0x1p-52);
  CHECK(sum_of({1, 0x1p-60}).rest() == 0x1p-60);
  CHECK(std::isinf(sum_of({1e308, 1e308}).value()));
}

TEST_CASE("exact sum: any order and any division give the same bits and the same state") {
  std::mt19937_64 random(7);
  for (int trial = 0; trial < 200; ++trial) {
    std::vector<double> terms = wild_terms(random, 1 + random() % 60);
    const ExactSum whole = sum_of(terms);
    std::shuffle(terms.begin(), terms.end(), random);
    const auto middle = terms.begin() + static_cast<std::ptrdiff_t>(random() % terms.size());
    ExactSum left = sum_of({terms.begin(), middle});
    const ExactSum right = sum_of({middle, terms.end()});
    ExactSum through_text = left;
    left.merge(right);
    through_text.merge(nlohmann::json::parse(right.state().dump()));
    REQUIRE(bits(left.value()) == bits(whole.value()));
    REQUIRE(bits(through_text.value()) == bits(whole.value()));
    REQUIRE(bits(left.rest()) == bits(whole.rest()));
    REQUIRE(left.state() == whole.state());
    REQUIRE(through_text.state() == whole.state());
  }
}

TEST_CASE("exact sum: of 2^40 equal terms") {
  ExactSum sum;
  const ExactSum one = sum_of({0x1.fffffffffffffp100});
  sum.merge(one);
  for (int doubling = 0; doubling < 40; ++doubling) sum.merge(ExactSum(sum));
  CHECK(sum.value() == 0x1.fffffffffffffp140);
}

TEST_CASE("exact sum: a product has all its digits") {
  ExactSum sum;
  const double number = 1 + 0x1p-52;
  sum.add_product(number, number);
  sum.add(-1);
  sum.add(-0x1p-51);
  CHECK(sum.value() == 0x1p-104);
}

TEST_CASE("exact sum: NaN and infinities stay, through a state too") {
  const double infinity = std::numeric_limits<double>::infinity();
  CHECK(sum_of({1, infinity, 2}).value() == infinity);
  CHECK(sum_of({1, -infinity}).value() == -infinity);
  CHECK(std::isnan(sum_of({infinity, -infinity}).value()));
  CHECK(std::isnan(sum_of({1, std::nan(""), 2}).value()));
  CHECK(sum_of({infinity}).rest() == 0);
  ExactSum other;
  other.merge(nlohmann::json::parse(sum_of({std::nan("")}).state().dump()));
  CHECK(std::isnan(other.value()));
}

TEST_CASE("exact sum: what is no state changes nothing") {
  ExactSum sum = sum_of({2.5});
  for (const char* text :
       {"null", "[]", "{}", R"({"at": 0})", R"({"at": -1, "digits": []})", R"({"at": 67, "digits": [1, 1]})",
        R"({"at": 0, "digits": [4294967296]})", R"({"at": 0, "digits": [1.5]})", R"({"at": 0, "digits": 3})",
        R"({"at": 18446744073709551615, "digits": [1]})", R"({"at": 0, "digits": [1], "nan": 1})"}) {
    INFO(text);
    CHECK_THROWS_AS(sum.merge(nlohmann::json::parse(text)), std::invalid_argument);
    CHECK(sum.value() == 2.5);
  }
}

}  // namespace sgd
