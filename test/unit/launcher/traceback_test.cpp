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
      {"no group", kHead + "ValueError: x\n\n  | loss | 3 |\n  +------+---+\n", "ValueError", "x", 2},
      {"a note of what was raised in it", group + "    | ValueError: a\n    | of epoch 3\n" + end + "  more\n",
       "ValueError", "a\nof epoch 3", 2},
  };
  for (const Row& row : rows) check(row);
}

TEST_CASE("traceback: a message of several lines ends where something else begins", "[keeper]") {
  const std::string said = kHead + "RuntimeError: Error(s) in loading state_dict for Net:\n\tMissing key(s): \"a\".\n";
  const std::string whole = "Error(s) in loading state_dict for Net:\n\tMissing key(s): \"a\".";
  const char* others[] = {
      "\nstep 7\n",
      "2026-11-28 10:22:33,120 closing\n",
      "[rank0]:[W1128 10:22:33.512 ProcessGroup.cpp:1] not destroyed\n",
      "INFO:root:closing\n",
      "node1:77:80 [0] NCCL INFO comm 0x1 - Abort COMPLETE\n",
      "/lib/python3/resource_tracker.py:254: UserWarning: leaked objects\n",
      " 30%|###   |\r100%|######|\n",
      "Exception ignored in atexit callback: <function close at 0x7f>\n",
      "Task exception was never retrieved\n",
      "[rank0]: of another one\n",
  };
  check({"all of it", said, "RuntimeError", whole, 2});
  check({"with lines that are not indented", said + "of rank 0\n", "RuntimeError", whole + "\nof rank 0", 2});
  for (const char* other : others) check({other, said + other + "\tmore\n", "RuntimeError", whole, 2});
  check({"with PyTorch's prefix",
         "[rank1]: Traceback (most recent call last):\n[rank1]:   File \"a.py\", line 3\n[rank1]: ValueError: x\n"
         "[rank1]: y\nz\n",
         "ValueError", "x\ny", 1});
  check({"of C++",
         "terminate called after throwing an instance of 'E'\n  what():  CUDA error: x\nCompile with y\n\nz\n", "E",
         "CUDA error: x\nCompile with y", 0});
  const std::string child = "Original Traceback (most recent call last):\n  File \"b.py\", line 5\nValueError: bad\n";
  check(
      {"of a loader's child", kHead + "ValueError: Caught ValueError in worker 0.\n" + child, "ValueError", "bad", 1});
}

TEST_CASE("traceback: a long message keeps its first lines, and its error stays known", "[keeper]") {
  std::string text = kHead + "RuntimeError: sizes:\n";
  for (int line = 0; line < 300; ++line) text += "\tsize mismatch for " + std::to_string(line) + "\n";
  const RankError error = error_of(text);
  CHECK(error.message.starts_with("sizes:\n\tsize mismatch for 0\n"));
  CHECK(error.message.ends_with("\n\tsize mismatch for 10\n..."));
  for (int line = 300; line < 1019; ++line) text += "\ta line\n";
  CHECK(error_of(text).type == "RuntimeError");
  CHECK(error_of(text + "\ta line\n").empty());
  CHECK(error_of(kHead + "E: x\n\t" + std::string(100'000, 'y') + "\n\tz\n").message.size() == kErrorTextBytesMax);
  std::string lines = kHead + "E: x\n";
  for (int line = 1; line < 15; ++line) lines += std::to_string(line) + "\n";
  CHECK(error_of(lines).message.ends_with("\n10\n11"));
  for (int line = 15; line < 22; ++line) lines += std::to_string(line) + "\n";
  CHECK(error_of(lines).empty());
}

TEST_CASE("traceback: what ends no program does not take the place of what has", "[keeper]") {
  const std::string died = kHead + "ValueError: loss is NaN\n";
  const std::string other = "Traceback (most recent call last):\n  File \"b.py\", line 9, in run\nImportError: no\n";
  const std::string linked = "\nDuring handling of the above exception, another exception occurred:\n\n" + other;
  const std::string logged =
      "--- Logging error ---\n" + other +
      "Call stack:\n  File \"c.py\", line 1, in <module>\n    log()\n  File \"c.py\", line 7, in log\n    info('x')\n"
      "Message: 'x'\nArguments: (1,)\n";
  const std::string asides[] = {
      "Exception in thread Thread-1 (consume):\n" + other,
      "Exception in thread Thread-1:\n" + other + linked,
      "Exception in threading.excepthook:\n" + other,
      "Exception ignored in: <function Late.__del__ at 0x7f>\n" + other,
      "Exception ignored in: tensor([[1, 2],\n        [3, 4]])\n" + other,
      "Exception ignored while calling deallocator <function Late.__del__ at 0x7f>:\n" + other,
      "Exception ignored in thread started by: <function run at 0x7f>\n" + other,
      "Exception ignored in atexit callback: <function close at 0x7f>\n" + other,
      "Error in atexit._run_exitfuncs:\n" + other,
      "Process SpawnProcess-1:\n" + other,
      "Task exception was never retrieved\nfuture: <Task finished name='Task-2' exception=ImportError('no')>\n" + other,
      "Exception in thread Thread-1:\n  + Exception Group Traceback (most recent call last):\n  |   File \"b.py\"\n"
      "  | ExceptionGroup: all (1 sub-exception)\n  +-+---------------- 1 ----------------\n"
      "    | Traceback (most recent call last):\n    |   File \"c.py\", line 9\n    | ImportError: no\n"
      "    +------------------------------------\n",
      logged,
  };
  for (const std::string& aside : asides) {
    INFO(aside);
    for (const std::string& text : {died + aside, aside + died, aside + died + aside + aside}) {
      CHECK(error_of(text).type == "ValueError");
      CHECK(error_of(text).frames.size() == 2);
      CHECK_FALSE(error_of(text).is_aside);
    }
    CHECK(error_of(aside).type == "ImportError");
    CHECK(error_of(aside).is_aside);
    CHECK(error_of(aside + "step 2\n" + died).type == "ValueError");
  }
  std::string many = died;
  for (int thread = 0; thread < 30; ++thread) many += asides[0];
  CHECK(error_of(many).type == "ValueError");
  for (int line = 0; line < 21; ++line) many += "a line\n";
  CHECK(error_of(many).empty());
  CHECK(error_of(many + asides[0]).type == "ImportError");
  CHECK(error_of("Error in sys.excepthook:\n" + other + "\nOriginal exception was:\n" + died).type == "ValueError");
  CHECK(error_of(died + linked).type == "ImportError");
  CHECK_FALSE(error_of(died + linked).is_aside);
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
  const RankError several = parse_error_record(R"({"message": {"message": "E: a:\n\tb\n\nc\n"}})", 7);
  CHECK(several.type == "E");
  CHECK(several.message == "a:\n\tb\n\nc");
  CHECK(parse_error_record(R"({"message": "\n"})", 7).empty());
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
