// Rows of CSV files as samples, and every way in which a row can be none.

#include <catch2/catch.hpp>

#include "test/unit/common/temporary_folder.hpp"
#include "worker/data/csv_dataset.hpp"
#include "worker/data/open_reader.hpp"

namespace sgd::worker {
namespace {

using Floats = std::vector<float>;
using Labels = std::vector<std::int64_t>;

data::CsvSettings settings_of(const char* more) {
  nlohmann::json dataset{{"type", "csv"}, {"separator", ","}, {"header", true}, {"targets", "classes"}};
  dataset["columns"] = {{"target", "label"}};
  dataset.update(nlohmann::json::parse(more));
  return data::csv_settings(dataset);
}

struct Rows {
  Floats features;
  Labels classes;
  Floats numbers;
};

Rows rows_of(const SampleReader& reader, const Labels& indices) {
  const auto width = static_cast<std::size_t>(reader.sample_shape().front());
  Rows rows{Floats(indices.size() * width), Labels(indices.size()), Floats(indices.size())};
  REQUIRE(reader.gather(indices, rows.features.data(), {rows.classes.data(), rows.numbers.data()}).ok());
  return rows;
}

/// The error of one file with this text, from its line on.
std::string refusal(const std::string& text, const char* more = "{}") {
  const test::TemporaryFolder folder;
  const std::string path = folder.write("a.csv", text);
  const ReaderResult reader = CsvDataset::open({path}, settings_of(more), 3);
  if (reader.ok()) return "";
  const std::string front = "data file " + path;
  REQUIRE(reader.error().message.substr(0, front.size()) == front);
  return reader.error().message.substr(front.size());
}

}  // namespace

TEST_CASE("csv: rows of several files in any order") {
  const test::TemporaryFolder folder;
  const std::vector<std::string> files{folder.write("a.csv", "x,label,y\n1,0,2\n3,1,4.5\n"),
                                       folder.write("b.csv", "\xef\xbb\xbfx,label,y\r\n-5e-1, 2 ,\"6\"\r\n\r\n")};
  const ReaderResult reader = CsvDataset::open(files, settings_of("{}"), 3);
  REQUIRE(reader.ok());
  CHECK(reader.value()->count() == 3);
  CHECK(reader.value()->sample_shape() == Labels{2});
  CHECK(reader.value()->target_numbers() == 0);
  const Rows rows = rows_of(*reader.value(), {2, 0, 1, 2});
  CHECK(rows.features == Floats{-0.5f, 6, 1, 2, 3, 4.5f, -0.5f, 6});
  CHECK(rows.classes == Labels{2, 0, 1, 2});
}

TEST_CASE("csv: columns in the job's order, targets that are numbers, text in columns that nobody takes") {
  const test::TemporaryFolder folder;
  const std::string path = folder.write("a.csv", "name;b;label;a\n\"x;\n\"\"y\"\"\";1;2.5;3\nz;4;-1;6");
  const ReaderResult reader = CsvDataset::open(
      {path},
      settings_of(R"({"separator": ";", "targets": "numbers", "columns": {"features": ["a", 1], "target": "label"}})"),
      1);
  REQUIRE(reader.ok());
  CHECK(reader.value()->target_numbers() == 1);
  const Rows rows = rows_of(*reader.value(), {1, 0});
  CHECK(rows.features == Floats{6, 4, 3, 1});
  CHECK(rows.numbers == Floats{-1, 2.5f});
}

TEST_CASE("csv: without a header the first row is a sample") {
  const test::TemporaryFolder folder;
  const std::string path = folder.write("a.csv", "1,0\n2,1\n");
  const ReaderResult reader =
      CsvDataset::open({path}, settings_of(R"({"header": false, "columns": {"target": 1}})"), 3);
  REQUIRE(reader.ok());
  CHECK(rows_of(*reader.value(), {0, 1}).features == Floats{1, 2});
}

TEST_CASE("csv: a filter takes rows by a number or a text, and others may lack values") {
  const test::TemporaryFolder folder;
  const std::string path = folder.write("a.csv", "x,label,kind\n1,0,a\n2,1,b\n,,c\n4,2,a\n");
  const auto taken = [&](const char* filter) {
    const std::string more =
        R"({"columns": {"features": ["x"], "target": "label"}, "filter": )" + std::string(filter) + "}";
    const ReaderResult reader = CsvDataset::open({path}, settings_of(more.c_str()), 3);
    if (!reader.ok()) return Floats{};
    Labels all(static_cast<std::size_t>(reader.value()->count()));
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::int64_t>(i);
    return rows_of(*reader.value(), all).features;
  };
  CHECK(taken(R"({"column": "kind", "op": "==", "value": "a"})") == Floats{1, 4});
  CHECK(taken(R"({"column": "kind", "op": "!=", "value": "c"})") == Floats{1, 2, 4});
  CHECK(taken(R"({"column": "x", "op": "!=", "value": ""})") == Floats{1, 2, 4});
  CHECK(taken(R"({"column": "kind", "op": "==", "value": "d"})").empty());
  const std::string numbers = folder.write("b.csv", "x,label\n1,0\n2,1\n3,2\n4,0\n");
  const auto between = [&](const char* op) {
    const std::string more = R"({"filter": {"column": 0, "op": ")" + std::string(op) + R"(", "value": 2}})";
    return CsvDataset::open({numbers}, settings_of(more.c_str()), 3).value()->count();
  };
  CHECK(between("<") == 1);
  CHECK(between("<=") == 2);
  CHECK(between(">") == 2);
  CHECK(between(">=") == 3);
  CHECK(between("==") == 1);
  CHECK(between("!=") == 3);
}

TEST_CASE("csv: what is wrong with a row is said with its line") {
  CHECK(refusal("x,label\n1,0\n,1\n") == ":3: \"x\" is missing, expected a number that float32 can hold");
  CHECK(refusal("x,label\n1,0\n \t,1\n") == ":3: \"x\" is missing, expected a number that float32 can hold");
  CHECK(refusal("x,label\n1,0\nn/a,1\n") == ":3: \"x\" is \"n/a\", expected a number that float32 can hold");
  CHECK(refusal("x,label\n1,0\n1e39,1\n") == ":3: \"x\" is \"1e39\", expected a number that float32 can hold");
  CHECK(refusal("x,label\nnan,0\n") == ":2: \"x\" is \"nan\", expected a number that float32 can hold");
  CHECK(refusal("x,label\n1,\n") == ":2: \"label\" is missing, expected a class, as an integer");
  CHECK(refusal("x,label\n1,0.5\n") == ":2: \"label\" is \"0.5\", expected a class, as an integer");
  CHECK(refusal("x,label\n1,3\n") == ":2: \"label\" is 3, expected 0..2, what the model gives outputs for");
  CHECK(refusal("x,label\n1,-1\n") == ":2: \"label\" is -1, expected 0..2, what the model gives outputs for");
  CHECK(refusal("x,label\n1,0\n1,0,2\n") == ":3: 3 fields, expected 2");
  CHECK(refusal("x,label\n1,0\n1\n") == ":3: 1 field, expected 2");
  CHECK(refusal("x,label\n1,0\n\n1,0\n") == ":3: 1 field, expected 2");
  CHECK(refusal("x,label\n\"1\n\",0\n1,\"0\n") == ":2: \"x\" is \"1\\n\", expected a number that float32 can hold");
  CHECK(refusal("x,label\n1,0\n1,\"0\n") == ":3: a quoted field is not closed");
  CHECK(refusal("z,label,t\n\"a\nb\",0,1\n1,x,2\n", R"({"columns": {"features": ["t"], "target": "label"}})") ==
        ":4: \"label\" is \"x\", expected a class, as an integer");
  CHECK(refusal("x,y\n1,0\n") == ":1: no column \"label\" in its header");
  CHECK(refusal("x,label\n") == ": no row is taken, expected at least one");
  CHECK(refusal("") == " is empty");
  CHECK(refusal("1,2\nx,0\n", R"({"header": false, "columns": {"target": 1}})") ==
        ":2: column 0 is \"x\", expected a number that float32 can hold");
  CHECK(refusal("x,label,k\n1,0,\n", R"({"filter": {"column": "k", "op": ">", "value": 1}})") ==
        ":2: \"k\" is missing, expected a number to compare");
}

TEST_CASE("csv: a quote that is never closed is found within the limit of a row") {
  std::string text = "x,label\n1,0\n\"";
  text.append(data::kCsvRecordBytesMax + 10, 'x');
  CHECK(refusal(text) == ":3: a row of more than 1048576 bytes: is a quote not closed?");
  std::string long_row = "x,label\n1,0\n";
  long_row.append(data::kCsvRecordBytesMax + 10, ' ');
  CHECK(refusal(long_row + "1,0\n") == ":3: a row of more than 1048576 bytes: is a quote not closed?");
}

TEST_CASE("csv: files differ in their columns") {
  const test::TemporaryFolder folder;
  const std::vector<std::string> files{folder.write("a.csv", "x,label\n1,0\n"),
                                       folder.write("b.csv", "x,y,label\n1,2,0\n")};
  CHECK_THAT(CsvDataset::open(files, settings_of("{}"), 3).error().message,
             Catch::EndsWith("b.csv:1: a column \"y\" in its header, which the first file does not have"));
  const std::vector<std::string> turned{files[1], files[0]};
  CHECK_THAT(CsvDataset::open(turned, settings_of("{}"), 3).error().message,
             Catch::EndsWith("a.csv:1: no column \"y\" in its header, which the first file has"));
  const std::vector<std::string> without{folder.write("c.csv", "1,0\n"), folder.write("d.csv", "1,2,0\n")};
  CHECK_THAT(
      CsvDataset::open(without, settings_of(R"({"header": false, "columns": {"target": 0}})"), 3).error().message,
      Catch::Contains("d.csv:1: 2 features, and ") && Catch::EndsWith("c.csv has 1"));
}

TEST_CASE("csv: files with their columns in another order have the features of the first file") {
  const test::TemporaryFolder folder;
  const std::vector<std::string> files{folder.write("a.csv", "x,label,y\n1,0,2\n"),
                                       folder.write("b.csv", "label,y,x\n1,4,3\n"),
                                       folder.write("c.csv", "y,x,label\n6,5,2\n")};
  const ReaderResult reader = CsvDataset::open(files, settings_of("{}"), 3);
  REQUIRE(reader.ok());
  const Rows rows = rows_of(*reader.value(), {0, 1, 2});
  CHECK(rows.features == Floats{1, 2, 3, 4, 5, 6});
  CHECK(rows.classes == Labels{0, 1, 2});
  // Names that occur twice do not say which is which, unless all is as in the first file.
  const std::vector<std::string> same{folder.write("d.csv", "x,x,label\n1,2,0\n"),
                                      folder.write("e.csv", "x,x,label\n3,4,1\n")};
  CHECK(rows_of(*CsvDataset::open(same, settings_of("{}"), 3).value(), {1}).features == Floats{3, 4});
  const std::vector<std::string> twice{folder.write("d.csv", "x,x,y,label\n1,2,3,0\n"),
                                       folder.write("e.csv", "x,y,x,label\n1,2,3,0\n")};
  CHECK_THAT(CsvDataset::open(twice, settings_of("{}"), 3).error().message,
             Catch::EndsWith("e.csv:1: two columns are named \"x\", and its header is not that of the first file"));
}

TEST_CASE("csv: what is validated on has the columns of what is trained on") {
  const test::TemporaryFolder folder;
  nlohmann::json dataset{{"type", "csv"},
                         {"separator", ","},
                         {"header", true},
                         {"targets", "classes"},
                         {"columns", {{"target", "label"}}},
                         {"train", folder.write("a.csv", "x,y,label\n1,2,0\n")}};
  dataset["validation"] = folder.write("b.csv", "y,x,label\n4,3,1\n");
  CHECK(rows_of(*open_reader(dataset, Split::kValidation, 3).value(), {0}).features == Floats{3, 4});
  nlohmann::json other = dataset;
  other["train"] = other["validation"];
  CHECK(rows_of(*open_reader(other, Split::kValidation, 3).value(), {0}).features == Floats{4, 3});
  CHECK(rows_of(*open_reader(other, Split::kValidation, 3, &dataset).value(), {0}).features == Floats{3, 4});
  dataset["validation"] = folder.write("b.csv", "z,x,label\n4,3,1\n");
  CHECK_THAT(open_reader(dataset, Split::kValidation, 3).error().message,
             Catch::EndsWith("b.csv:1: a column \"z\" in its header, which the first file does not have"));
}

TEST_CASE("csv: a file that has changed is an error, and not other numbers") {
  const test::TemporaryFolder folder;
  const std::string path = folder.write("a.csv", "x,label\n1,0\n2,1\n");
  const ReaderResult reader = CsvDataset::open({path}, settings_of("{}"), 3);
  REQUIRE(reader.ok());
  folder.write("a.csv", "x,label\n1,0\n?,1\n");  // As many bytes: the mapping shows the new ones.
  float feature = 0;
  std::int64_t label = 0;
  const Status status = reader.value()->gather(Labels{1}, &feature, {&label, nullptr});
  REQUIRE_FALSE(status.ok());
  CHECK_THAT(status.error().message, Catch::EndsWith("has changed since it was opened: its row at byte 12 is another"));
}

TEST_CASE("csv: many rows keep their places, over the windows of the pass") {
  const test::TemporaryFolder folder;
  std::string text = "x,pad,label\n";
  const std::string pad(2000, 'p');
  constexpr std::int64_t kRows = 20000;  // 40 MB: more than two windows.
  for (std::int64_t i = 0; i < kRows; ++i) text += std::to_string(i) + "," + pad + "," + std::to_string(i % 3) + "\n";
  const std::string path = folder.write("a.csv", text);
  const ReaderResult reader =
      CsvDataset::open({path}, settings_of(R"({"columns": {"features": ["x"], "target": "label"}})"), 3);
  REQUIRE(reader.ok());
  REQUIRE(reader.value()->count() == kRows);
  Labels indices;
  for (std::int64_t i = 0; i < 500; ++i) indices.push_back(i * 7919 % kRows);
  const Rows rows = rows_of(*reader.value(), indices);
  for (std::size_t i = 0; i < indices.size(); ++i) {
    REQUIRE(rows.features[i] == static_cast<float>(indices[i]));
    REQUIRE(rows.classes[i] == indices[i] % 3);
  }
}

}  // namespace sgd::worker
