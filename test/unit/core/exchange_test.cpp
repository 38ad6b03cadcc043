#include "launcher/core/exchange.hpp"

#include <catch2/catch.hpp>

using namespace sgd;
using core::ExchangeTable;

TEST_CASE("an exchange is finished by its last value, in rank order") {
  ExchangeTable table;
  table.reset(3);
  CHECK_FALSE(table.put(2, "gloo", "c").value());
  CHECK(table.waiting() == "exchange \"gloo\": 1 of 3, missing rank 0, 1");
  CHECK_FALSE(table.put(0, "gloo", "a").value());
  CHECK(table.parts("r", 1, "gloo").front().count == 0);
  CHECK(table.put(1, "gloo", "b").value());
  const auto parts = table.parts("r", 1, "gloo");
  REQUIRE(parts.size() == 1);
  CHECK(parts.front().values == std::vector<nlohmann::json>{"a", "b", "c"});
  CHECK(parts.front().count == 3);
  CHECK(table.waiting().empty());
}

TEST_CASE("a value that comes again finishes nothing again") {
  ExchangeTable table;
  table.reset(1);
  REQUIRE(table.put(0, "k", 1).value());
  CHECK_FALSE(table.put(0, "k", 1).value());
  CHECK(table.parts("r", 1, "k").front().values.size() == 1);
}

TEST_CASE("what must not be exchanged") {
  ExchangeTable table;
  table.reset(2);
  REQUIRE(table.put(0, "k", 1).ok());
  CHECK(table.put(0, "k", 2).error().message == "exchange \"k\": rank 0 gave two different values");
  CHECK_FALSE(table.put(2, "k", 1).ok());
  CHECK_FALSE(table.put(-1, "k", 1).ok());
  CHECK(table.put(1, "k", std::string(ExchangeTable::kValueBytesMax, 'x')).error().message ==
        "exchange \"k\": the value of rank 1 has 49154 bytes; 49152 may be given");
  CHECK_FALSE(table.put(1, std::string(ExchangeTable::kKeyBytesMax + 1, 'k'), 1).ok());
  for (std::size_t key = 1; key < ExchangeTable::kKeysMax; ++key) REQUIRE(table.put(0, std::to_string(key), 1).ok());
  CHECK_FALSE(table.put(0, "one too many", 1).ok());
}

TEST_CASE("the values of a generation have a limit together, whose breach names both sizes") {
  ExchangeTable table;
  table.reset(1000);
  const std::string value(ExchangeTable::kValueBytesMax - 2, 'x');
  Rank rank = 0;
  while (table.put(rank, "k", value).ok()) ++rank;
  CHECK(static_cast<std::size_t>(rank) == ExchangeTable::kBytesMax / ExchangeTable::kValueBytesMax);
  CHECK(table.put(rank + 1, "k", value).error().message.find("; 8388608 may be exchanged") != std::string::npos);
}

TEST_CASE("24 ranks that exchange 46 KB each, and 512 hosts: parts that a frame takes") {
  for (const auto& [ranks, bytes] : {std::pair(24, 46 << 10), std::pair(512, 4 << 10), std::pair(10000, 300)}) {
    ExchangeTable table;
    table.reset(ranks);
    for (Rank rank = 0; rank < ranks; ++rank)
      REQUIRE(table.put(rank, "k", std::to_string(rank) + std::string(static_cast<std::size_t>(bytes), 'x')).ok());
    Rank next = 0;
    for (const cluster::ExchangeDone& part : table.parts("run", 1, "k")) {
      CHECK(part.count == ranks);
      CHECK(part.first == next);
      CHECK(cluster::encode(cluster::ToAgent(part)).size() <= ExchangeTable::kMessageBytes + (1 << 10));
      next += static_cast<Rank>(part.values.size());
    }
    CHECK(next == ranks);
  }
}

TEST_CASE("a new generation starts with an empty table") {
  ExchangeTable table;
  table.reset(2);
  (void)table.put(0, "k", 1);
  table.reset(2);
  CHECK_FALSE(table.put(1, "k", 2).value());
}
