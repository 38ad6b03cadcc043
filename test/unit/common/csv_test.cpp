// CSV: one record, and the columns that a job asks for.

#include <catch2/catch.hpp>

#include "common/data/csv_columns.hpp"
#include "common/data/csv_record.hpp"
#include "temporary_folder.hpp"

namespace sgd::data {
namespace {

using Fields = std::vector<std::string_view>;

nlohmann::json csv_dataset(const char* columns) {
  return {{"type", "csv"}, {"separator", ","}, {"header", true}, {"columns", nlohmann::json::parse(columns)}};
}

}  // namespace

TEST_CASE("csv: a record's fields") {
  struct CsvRow {
    const char* text;
    Fields fields;
    std::size_t bytes;
    std::size_t lines;
  };
  for (const CsvRow& row : std::vector<CsvRow>{
           {"a,b\nc", {"a", "b"}, 4, 1},
           {"a,b", {"a", "b"}, 3, 0},
           {"a,b\r\nc", {"a", "b"}, 5, 1},
           {"a,b\r", {"a", "b"}, 4, 0},
           {",\n", {"", ""}, 2, 1},
           {"\n", {""}, 1, 1},
           {"\"a,\nb\",c\n", {"a,\nb", "c"}, 9, 2},
           {"\"say \"\"a\"\"\",\"\"\n", {"say \"a\"", ""}, 15, 1},
           {"\"a\"\r\nb", {"a"}, 5, 1},
           {"1,\"a\"\r", {"1", "a"}, 6, 0},
           {" a , b ", {" a ", " b "}, 7, 0},
       }) {
    INFO(row.text);
    CsvRecord record(',');
    const Result<std::size_t> read = record.read(row.text);
    REQUIRE(read.ok());
    CHECK(read.value() == row.bytes);
    CHECK(record.fields() == row.fields);
    CHECK(record.lines() == row.lines);
  }
  CsvRecord record(',');
  CHECK(record.read("a,\"b\nc").error().message == "a quoted field is not closed");
  CHECK(record.read("a,b\"c\"\n").error().message == "field 1 has a quote inside, and does not begin with one");
  CHECK(record.read("a,\"b\"c\n").error().message == "field 1 goes on behind its closing quote");
  CsvRecord semicolons(';');
  REQUIRE(semicolons.read("a,b;c\n").ok());
  CHECK(semicolons.fields() == Fields{"a,b", "c"});
}

TEST_CASE("csv: numbers are whole fields, finite, and as strtod() reads them") {
  CHECK(csv_number(" -1.5e3\t") == -1500);
  CHECK(csv_number("7") == 7);
  CHECK(csv_number("+1.5") == 1.5);
  CHECK(csv_number("1e-400") == 0);
  for (const char* text :
       {"", " ", "abc", "1.5x", "1 5", "nan", "inf", "-inf", "1e999", "+", "+-1", "++1", "0x10", "1,5"}) {
    INFO(text);
    CHECK_FALSE(csv_number(text).has_value());
  }
  CHECK(csv_integer("-12") == -12);
  CHECK(csv_integer("+12") == 12);
  for (const char* text : {"1.0", "", "9223372036854775808", "1e3"}) CHECK_FALSE(csv_integer(text).has_value());
}

TEST_CASE("csv: columns by name and by number") {
  const Fields header{" id", "age", "height ", "label"};
  const auto columns_of = [&](const char* columns) { return csv_columns(csv_settings(csv_dataset(columns)), header); };
  const auto some = columns_of(R"({"features": ["height", 1], "target": "label"})");
  REQUIRE(some.ok());
  CHECK(some.value().features == std::vector<std::size_t>{2, 1});
  CHECK(some.value().target == 3);
  CHECK(some.value().name_of(2) == "\"height\"");
  const auto all = columns_of(R"({"target": 1})");
  REQUIRE(all.ok());
  CHECK(all.value().features == std::vector<std::size_t>{0, 2, 3});
  CHECK(columns_of(R"({"target": "labels"})").error().message ==
        R"(no column "labels" in its header; did you mean "label"?)");
  CHECK(columns_of(R"({"target": 4})").error().message == "4 columns, expected one with number 4 (the first is 0)");
  CHECK(columns_of(R"({"features": ["label"], "target": 3})").error().message ==
        R"("label" is a feature and the target: a model would learn to copy it)");
  CHECK(csv_columns(csv_settings(csv_dataset(R"({"target": "a"})")), {"a", "b", "a"}).error().message ==
        R"(two columns are named "a": ask for one by its number)");
  CHECK(csv_columns(csv_settings(csv_dataset(R"({"target": "a"})")), {"a"}).error().message ==
        "one column, expected features beside the target");
}

TEST_CASE("csv: a file's first row is looked at, whatever it begins with") {
  const test::TemporaryFolder folder;
  const CsvSettings settings = csv_settings(csv_dataset(R"({"target": "y"})"));
  CHECK(inspect_csv(folder.write("a.csv", "\xef\xbb\xbfy,x\n1,2\n"), settings).value().features ==
        std::vector<std::size_t>{1});
  CHECK_THAT(inspect_csv(folder.write("a.csv", "yy,xx\n1,2\n"), settings).error().message,
             Catch::EndsWith("a.csv:1: no column \"y\" in its header; did you mean \"yy\"?"));
  CHECK_THAT(inspect_csv(folder.write("a.csv", ""), settings).error().message, Catch::EndsWith("a.csv is empty"));
  CHECK_THAT(inspect_csv(folder.path("b.csv"), settings).error().message, Catch::EndsWith("No such file or directory"));
}

}  // namespace sgd::data
