// What a rank says of its own failure, as the keeper finds it.

#include "launcher/keeper/traceback.hpp"

#include <fstream>

#include <catch2/catch.hpp>

#include "keeper_test_support.hpp"
#include "launcher/keeper/error_file.hpp"

using namespace sgd;
using keeper::parse_error_record;
using keeper::TracebackWatch;

namespace {

RankError error_of(const std::string& text) {
  TracebackWatch watch;
  watch.add(text, 5);
  return watch.error();
}

struct Row {
  const char* what;
  std::string text;
  std::string type;
  std::string message;
  std::size_t frames;
};

void check(const Row& row) {
  INFO(row.what);
  const RankError error = error_of(row.text);
  CHECK(error.type == row.type);
  CHECK(error.message == row.message);
  CHECK(error.frames.size() == row.frames);
}

const std::string kHead = "Traceback (most recent call last):\n  File \"a.py\", line 3, in <module>\n    main()\n";

}  // namespace

TEST_CASE("traceback: what is found in an output", "[keeper]") {
  const Row rows[] = {
      {"an exception", "step 1\n" + kHead + "ValueError: loss is NaN\n", "ValueError", "loss is NaN", 2},
      {"without a text", kHead + "KeyboardInterrupt\n", "KeyboardInterrupt", "", 2},
      {"of a package", kHead + "torch.OutOfMemoryError: no room: 3 GiB\n", "torch.OutOfMemoryError", "no room: 3 GiB",
       2},
      {"with PyTorch's prefix",
       "[rank1]: Traceback (most recent call last):\n[rank1]:   File \"a.py\", line 3\n[rank1]: ValueError: x\n",
       "ValueError", "x", 1},
      {"the one that was raised last",
       kHead + "KeyError: 'a'\n\nDuring handling of the above exception, another exception occurred:\n\n" + kHead +
           "RuntimeError: b\n",
       "RuntimeError", "b", 2},
      {"no Python", "  File \"a.py\", line 1\n    foo(\n       ^\nSyntaxError: '(' was never closed\n", "SyntaxError",
       "'(' was never closed", 3},
      {"no file", "/usr/bin/python3: can't open file '/x.py': [Errno 2] No such file or directory\n",
       "FileNotFoundError", "can't open file '/x.py': [Errno 2] No such file or directory", 0},
      {"no module", "/usr/bin/python3: No module named nothing\n", "ModuleNotFoundError", "No module named nothing", 0},
      {"the fault handler",
       "Fatal Python error: Segmentation fault\n\nCurrent thread 0x1 (most recent call first):\n  File \"a.py\", line "
       "7 in "
       "read\n  File \"a.py\", line 9 in <module>\n",
       "Fatal Python error", "Segmentation fault", 2},
      {"the fault handler in a rank that was forked off",
       "Fatal Python error: Aborted\n\nCurrent thread 0x1 (most recent call first):\n  File \"a.py\", line 7 in "
       "<module>\n"
       "  File \"/lib/sgd_launch_rank.py\", line 71 in run_script\n  File \"/lib/sgd_launch_server.py\", line 9 in "
       "main\n",
       "Fatal Python error", "Aborted", 1},
      {"an exception of C++",
       "terminate called after throwing an instance of 'gloo::IoException'\n  what():  Connection closed by peer\n",
       "gloo::IoException", "Connection closed by peer", 0},
      {"unfinished", kHead, "", "", 0},
      {"none", "all is well: No module named x was asked for\n", "", "", 0},
  };
  for (const Row& row : rows) check(row);
}

TEST_CASE("traceback: an exception group is told by the first exception in it", "[keeper]") {
  const std::string group =
      "  + Exception Group Traceback (most recent call last):\n  |   File \"a.py\", line 3, in <module>\n"
      "  |     main()\n  | ExceptionGroup: all (2 sub-exceptions)\n  | - a note\n"
      "  +-+---------------- 1 ----------------\n";
  const std::string end = "    +------------------------------------\n";
  const Row rows[] = {
      {"one that was raised",
       group +
           "    | Traceback (most recent call last):\n    |   File \"b.py\", line 5, in read\n    | KeyError: 'k'\n"
           "    +---------------- 2 ----------------\n    | Traceback (most recent call last):\n"
           "    |   File \"c.py\", line 9\n    | TypeError: b\n" +
           end,
       "KeyError", "'k'", 1},
      {"one that was not", group + "    | ValueError: a\n" + end, "ValueError", "a", 2},
      {"a group in a group",
       group + "    | Exception Group Traceback (most recent call last):\n    |   File \"b.py\", line 5\n"
               "    | ExceptionGroup: inner (1 sub-exception)\n    +-+---------------- 1 ----------------\n"
               "      | Traceback (most recent call last):\n      |   File \"c.py\", line 9\n      | TypeError: b\n"
               "      +------------------------------------\n",
       "TypeError", "b", 1},
      {"with PyTorch's prefix",
       "[rank0]:   + Exception Group Traceback (most recent call last):\n[rank0]:   |   File \"a.py\", line 3\n"
       "[rank0]:   | ExceptionGroup: all (1 sub-exception)\n[rank0]:   +-+---------------- 1 ----------------\n"
       "[rank0]:     | ValueError: a\n[rank0]:     +------------------------------------\n",
       "ValueError", "a", 1},
      {"what comes behind it",
       group + "    | ValueError: a\n" + end + "\nDuring handling of the above exception, another one occurred:\n\n" +
           kHead + "RuntimeError: b\n",
       "RuntimeError", "b", 2},
      {"no group", kHead + "ValueError: x\n  | loss | 3 |\n  +------+---+\n", "ValueError", "x", 2},
  };
  for (const Row& row : rows) check(row);
}

TEST_CASE("traceback: it counts while it is among the last lines", "[keeper]") {
  TracebackWatch watch;
  watch.add("Traceback (most recent call last):\n  File \"a\"\nValueError: x\n", 5);
  CHECK(watch.error().at_s == 5);
  for (int line = 0; line < 20; ++line) watch.add("a line\n", 6);
  CHECK(watch.error().type == "ValueError");
  watch.add("a line\n", 6);
  CHECK(watch.error().empty());
  std::string group =
      "  + Exception Group Traceback (most recent call last):\n  |   File \"a.py\", line 3\n"
      "  | ExceptionGroup: all (30 sub-exceptions)\n  +-+---------------- 1 ----------------\n";
  for (int part = 2; part < 32; ++part)
    group +=
        "    | E: " + std::to_string(part) + "\n    +---------------- " + std::to_string(part) + " ----------------\n";
  CHECK(error_of(group).message == "2");
}

TEST_CASE("traceback: long ones keep their last frames", "[keeper]") {
  std::string text = "Traceback (most recent call last):\n";
  for (int frame = 0; frame < 100; ++frame) text += "  frame " + std::to_string(frame) + "\n";
  const RankError error = error_of(text + "E: " + std::string(100'000, 'x') + "\n");
  REQUIRE(error.frames.size() == kErrorFramesMax);
  CHECK(error.frames.back() == "  frame 99");
  CHECK(error.message.size() == kErrorTextBytesMax);
  CHECK(error_of("Traceback (most recent call last):\n " + std::string(1000, 'f') + "\nE\n").frames.front().size() ==
        kErrorLineBytesMax);
}

TEST_CASE("error file: whole, short, half-written, and none", "[keeper]") {
  const std::string whole =
      R"({"message": {"message": "ValueError: loss is NaN", "extraInfo": {"py_callstack": )"
      R"("Traceback (most recent call last):\n  File \"a.py\", line 3, in main\nValueError: loss is NaN\n", "timestamp": "7"}}})";
  const RankError error = parse_error_record(whole, 7.5);
  CHECK(error.type == "ValueError");
  CHECK(error.message == "loss is NaN");
  CHECK(error.frames.size() == 1);
  CHECK(error.at_s == 7.5);
  CHECK(parse_error_record(R"({"message": "loss is NaN", "timestamp": 7})", 7).message == "loss is NaN");
  for (std::size_t size = whole.find(" is NaN") + 1; size < whole.size(); ++size) {
    INFO(whole.substr(0, size));
    CHECK(parse_error_record(whole.substr(0, size), 7).type == "ValueError");
  }
  for (std::size_t size = 0; size < whole.size(); ++size) (void)parse_error_record(whole.substr(0, size), 7);
  for (const char* text : {"", "[]", "{}", "null", R"({"message": 7})", R"({"message": {"message": []}})", "\xff"})
    CHECK(parse_error_record(text, 7).empty());
  CHECK(parse_error_record(std::string(1000, '['), 7).empty());
}

TEST_CASE("traceback: its first line", "[keeper]") {
  for (const char* line : {"Traceback (most recent call last):", "[rank12]: Traceback (most recent call last):\r\n",
                           "  + Exception Group Traceback (most recent call last):\n"})
    CHECK(keeper::begins_traceback(line));
  for (const char* line : {"", "\n", "see Traceback (most recent call last):", "Traceback (most recent call last): x"})
    CHECK_FALSE(keeper::begins_traceback(line));
}

TEST_CASE("error file: a record of many levels is none, and one that is no file neither", "[keeper]") {
  std::string deep;
  for (int level = 0; level < 20; ++level) deep += R"({"message": )";
  CHECK(parse_error_record(deep, 7).empty());
  CHECK(keeper::read_error_file("").empty());
  CHECK(keeper::read_error_file("/dev/null").empty());
  CHECK(keeper::read_error_file("/nowhere/record.json").empty());
}

TEST_CASE("error file: a record that is too long counts as far as it is read", "[keeper]") {
  keeper_test::TemporaryDir dir;
  const std::string path = dir.file("record.json");
  std::ofstream(path) << R"({"message": {"message": "ValueError: x", "extraInfo": {"py_callstack": ")"
                      << std::string(1 << 20, 'f') << "\"}}}";
  CHECK(keeper::read_error_file(path).type == "ValueError");
  CHECK(keeper::read_error_file(path).at_s > 1e9);
}
