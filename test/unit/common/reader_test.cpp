// Text in, values with positions or errors with positions out.

#include <catch2/catch.hpp>

#include "common/json/reader.hpp"

namespace sgd::json {
namespace {

std::vector<std::string> errors_of(std::string_view text) {
  Diagnostics diagnostics;
  (void)read(text, "t", diagnostics);
  std::vector<std::string> lines;
  for (const Diagnostic& item : diagnostics.items) lines.push_back(item.text());
  return lines;
}

}  // namespace

TEST_CASE("reader: positions of keys and values") {
  const std::string text =
      "// comment, with : and {\n"
      "{\n"
      "  \"a\": 1, /* two\n lines */ \"b\\\"q\" : [ true,-1.5e3 ,{\"c\":null}],\n"
      "\t\"\xc3\xa9\": \"x, y: \\\\\", \"e\": {} }\n";
  Diagnostics diagnostics;
  const auto document = read(text, "t", diagnostics);
  REQUIRE(document.has_value());
  CHECK(diagnostics.items.empty());
  CHECK(document->value.dump() == R"({"a":1,"b\"q":[true,-1500.0,{"c":null}],"e":{},"é":"x, y: \\"})");
  const SourceMap& root = document->source_map;
  const auto is = [](Position position, int line, int column) {
    return position.line == line && position.column == column;
  };
  CHECK(is(root.value, 2, 1));
  CHECK(is(root.members.at("a").key, 3, 3));
  CHECK(is(root.members.at("a").value, 3, 8));
  const SourceMap& array = root.members.at("b\"q");
  CHECK(is(array.key, 4, 11));
  CHECK(is(array.value, 4, 20));
  CHECK(is(array.items.at(0).value, 4, 22));
  CHECK(is(array.items.at(1).value, 4, 27));
  CHECK(is(array.items.at(2).value, 4, 35));
  CHECK(is(array.items.at(2).members.at("c").value, 4, 40));
  CHECK(is(root.members.at("\xc3\xa9").key, 5, 2));
  CHECK(is(root.members.at("\xc3\xa9").value, 5, 8));
  CHECK(is(root.members.at("e").value, 5, 25));
}

TEST_CASE("reader: a byte order mark is passed over") {
  Diagnostics diagnostics;
  const auto document = read("\xef\xbb\xbf{\"a\":1}", "t", diagnostics);
  REQUIRE(document.has_value());
  CHECK(document->source_map.value.column == 4);
}

TEST_CASE("reader: syntax errors have the place of the fault") {
  struct Bad {
    std::string text;
    std::string error;
  };
  for (const Bad& bad : std::vector<Bad>{
           {"", "t: error: the file is empty"},
           {" \n ", "t: error: the file is empty"},
           {"{\"a\" 1}", "t:1:6: error: not JSON: unexpected number literal; expected ':'"},
           {"{\"a\":1 \"b\":2}", "t:1:8: error: not JSON: unexpected string literal; expected ',' or '}'"},
           {"{\"a\":1\n,}", "t:2:2: error: not JSON: a comma before '}': remove it"},
           {"{\"a\":1, // one\n}", "t:2:1: error: not JSON: a comma before '}': remove it"},
           {"[1,]", "t:1:4: error: not JSON: a comma before ']': remove it"},
           {"{\"a\":]", "t:1:6: error: not JSON: unexpected ']'; expected '[', '{', or a literal"},
           {"{\"a\": NaN}", "t:1:7: error: not JSON: JSON has no NaN: give a finite number"},
           {"{\"a\": -Infinity}", "t:1:7: error: not JSON: JSON has no -Infinity: give a finite number"},
           {"{\n\"a\": True}", "t:2:6: error: not JSON: True is true in JSON"},
           {"[None]", "t:1:2: error: not JSON: None is null in JSON"},
           {"[1, 'x y']", "t:1:5: error: not JSON: strings and keys need double quotes"},
           {"// nothing\n /* else */\n", "t: error: the file holds nothing but comments"},
           {"[1 2]", "t:1:4: error: not JSON: unexpected number literal; expected ',' or ']'"},
           {"[1,,2]", "t:1:4: error: not JSON: unexpected ','; expected '[', '{', or a literal"},
           {"{\n  \"a\": tru\n}", "t:2:8: error: not JSON: invalid literal"},
           {"{'a': 1}", "t:1:2: error: not JSON: strings and keys need double quotes"},
           {"{\"a\": \"x\ny\"}",
            "t:1:9: error: not JSON: invalid string: control character U+000A (LF) must be escaped to "
            "\\u000A or \\n"},
           {"{\"a\": \"\\q\"}", "t:1:9: error: not JSON: invalid string: forbidden character after backslash"},
           {"{\"a\": \"\xff\"}", "t:1:8: error: not JSON: invalid string: ill-formed UTF-8 byte"},
           {"{\"a\": 1e999}", "t:1:7: error: not JSON: the number '1e999' is too large"},
           {"{\"a\": 01}", "t:1:8: error: not JSON: unexpected number literal; expected ',' or '}'"},
           {"{} x", "t:1:4: error: not JSON: invalid literal"},
           {"{} {}", "t:1:4: error: not JSON: unexpected '{'; expected end of input"},
           {"{\"a\": 1", "t:1:8: error: not JSON: the file ends too early (truncated?)"},
           {"{\n\"a\": \"abc", "t:2:10: error: not JSON: the file ends too early (truncated?)"},
           {"{\"a\": ", "t:1:7: error: not JSON: the file ends too early (truncated?)"},
           {"/* abc", "t:1:7: error: not JSON: the file ends too early (truncated?)"},
           {std::string("{}\0x", 4), "t:1:3: error: not JSON: NUL byte (a binary file?)"},
           {"\xff\xfe{", "t: error: not JSON: the text is UTF-16: save it as UTF-8"},
           {std::string("\xfe\xff\0{", 4), "t: error: not JSON: the text is UTF-16: save it as UTF-8"},
           {std::string("{\0}\0", 4), "t: error: not JSON: the text is UTF-16: save it as UTF-8"},
           {"<html>", "t:1:1: error: not JSON: invalid literal"},
       }) {
    INFO(bad.text);
    CHECK(errors_of(bad.text) == std::vector<std::string>{bad.error});
  }
}

TEST_CASE("reader: all duplicate keys are reported, and the rest can still be read") {
  const std::string text = "{\"a\": 1,\n \"a\": {\"b\": 1, \"b\": 2},\n \"a\": 3}";
  CHECK(errors_of(text) == std::vector<std::string>{"t:2:2: error: duplicate key \"a\"; first in line 1",
                                                    "t:2:16: error: duplicate key \"b\"; first in line 2",
                                                    "t:3:2: error: duplicate key \"a\"; first in line 2"});
  Diagnostics diagnostics;
  CHECK(read(text, "t", diagnostics)->value.dump() == R"({"a":3})");
}

TEST_CASE("reader: nesting is bounded while reading") {
  const auto nested = [](int depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  CHECK(errors_of(nested(kDepthMax)).empty());
  CHECK(errors_of(nested(kDepthMax + 1)) == std::vector<std::string>{"t:1:65: error: nested deeper than 64 levels"});
  CHECK(errors_of(nested(100000)) == std::vector<std::string>{"t:1:65: error: nested deeper than 64 levels"});
  std::string objects;
  for (int i = 0; i < 100000; ++i) objects += "{\"a\":";
  CHECK(errors_of(objects) == std::vector<std::string>{"t:1:321: error: nested deeper than 64 levels"});
}

TEST_CASE("reader: every prefix of a document is an error and none is a crash") {
  const std::string text = "{\"a\": [1, -2.5e3, \"x\\u00e9\\n\", true, null], // c\n \"b\": {\"c\": false}}";
  for (std::size_t size = 0; size < text.size(); ++size) {
    INFO(size);
    CHECK(errors_of(text.substr(0, size)).size() == 1);
  }
  CHECK(errors_of(text).empty());
}

}  // namespace sgd::json
