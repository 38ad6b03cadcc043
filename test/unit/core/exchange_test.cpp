#include "launcher/core/exchange.hpp"

#include <catch2/catch.hpp>

using namespace sgd;
using core::ExchangeTable;

TEST_CASE("an exchange is finished by its last value, in rank order") {
  ExchangeTable table;
  table.reset(3);
  CHECK_FALSE(table.put(2, "gloo", "c").value().has_value());
  CHECK(table.waiting() == "exchange \"gloo\": 1 of 3, missing rank 0, 1");
  CHECK_FALSE(table.put(0, "gloo", "a").value().has_value());
  const auto done = table.put(1, "gloo", "b");
  REQUIRE(done.value().has_value());
  CHECK(*done.value() == std::vector<nlohmann::json>{"a", "b", "c"});
  CHECK(table.waiting().empty());
}

TEST_CASE("a value that comes again, as after a reconnect, is answered again") {
  ExchangeTable table;
  table.reset(1);
  REQUIRE(table.put(0, "k", 1).value().has_value());
  CHECK(table.put(0, "k", 1).value().has_value());
}

TEST_CASE("what must not be exchanged") {
  ExchangeTable table;
  table.reset(2);
  REQUIRE(table.put(0, "k", 1).ok());
  CHECK(table.put(0, "k", 2).error().message == "exchange \"k\": rank 0 gave two different values");
  CHECK_FALSE(table.put(2, "k", 1).ok());
  CHECK_FALSE(table.put(-1, "k", 1).ok());
  CHECK_FALSE(table.put(1, "k", std::string(ExchangeTable::kValueBytesMax, 'x')).ok());
  for (std::size_t key = 1; key < ExchangeTable::kKeysMax; ++key) REQUIRE(table.put(0, std::to_string(key), 1).ok());
  CHECK_FALSE(table.put(0, "one too many", 1).ok());
}

TEST_CASE("a new generation starts with an empty table") {
  ExchangeTable table;
  table.reset(2);
  (void)table.put(0, "k", 1);
  table.reset(2);
  CHECK_FALSE(table.put(1, "k", 2).value().has_value());
}
