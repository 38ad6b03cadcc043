#include <catch2/catch.hpp>

#include "common/base/bytes.hpp"
#include "common/base/time.hpp"

namespace sgd {

TEST_CASE("time: durations are read and written") {
  struct Row {
    const char* text;
    std::int64_t ns;
    const char* written;
  };
  for (const Row& row : std::vector<Row>{{"250us", 250'000, "250us"},
                                         {"500ms", 500'000'000, "500ms"},
                                         {"0.5s", 500'000'000, "500ms"},
                                         {"10s", 10'000'000'000, "10s"},
                                         {"90s", 90'000'000'000, "90s"},
                                         {"1.5m", 90'000'000'000, "90s"},
                                         {"60s", 60'000'000'000, "1m"},
                                         {"2h", 7'200'000'000'000, "2h"},
                                         {"1.5us", 1500, "1.5us"},
                                         {"0.001us", 1, "0.001us"},
                                         {"1.000000001s", 1'000'000'001, "1000000.001us"},
                                         {"0s", 0, "0s"},
                                         {"87600h", 315'360'000'000'000'000, "87600h"}}) {
    INFO(row.text);
    const auto parsed = parse_duration(row.text);
    REQUIRE(parsed.has_value());
    CHECK(parsed->count() == row.ns);
    CHECK(format_duration(*parsed) == row.written);
    CHECK(parse_duration(row.written) == parsed);
  }
}

TEST_CASE("time: other texts are no durations") {
  for (const char* text : {"",       "s",
                           "5",      "5 s",
                           " 5s",    "5s ",
                           "-5s",    "+5s",
                           "5.s",    ".5s",
                           "5d",     "5S",
                           "1e3s",   "infs",
                           "nans",   "5ss",
                           "0x5s",   "99999999999999999999999s",
                           "87601h", "315360000001s",
                           "1..5s"}) {
    INFO(text);
    CHECK_FALSE(parse_duration(text).has_value());
  }
}

TEST_CASE("bytes: what is written and what is shown") {
  struct Row {
    const char* text;
    std::int64_t bytes;
    const char* shown;
  };
  for (const Row& row : std::vector<Row>{{"0B", 0, "0B"},
                                         {"512B", 512, "512B"},
                                         {"1kB", 1000, "1000B"},
                                         {"1.5KiB", 1536, "1.50KiB"},
                                         {"512MiB", std::int64_t{512} << 20, "512MiB"},
                                         {"4GiB", std::int64_t{4} << 30, "4GiB"},
                                         {"2TB", 2'000'000'000'000, "1.82TiB"},
                                         {"3TiB", std::int64_t{3} << 40, "3TiB"}}) {
    INFO(row.text);
    CHECK(parse_bytes(row.text) == row.bytes);
    CHECK(format_bytes(row.bytes) == row.shown);
  }
  for (const char* text :
       {"", "5", "GiB", "4 GiB", "-1B", "-0B", "+1B", "4gib", "1e3B", "infB", "nanB", "9000000TiB", "0x1B", "4GiBs"}) {
    INFO(text);
    CHECK_FALSE(parse_bytes(text).has_value());
  }
}

}  // namespace sgd
