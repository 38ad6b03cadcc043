// What ranks write, on its way to our own streams: prefixes, folded lines, bars, questions, JSON.

#include "launcher/cli/rank_lines.hpp"

#include <catch2/catch.hpp>

#include "launcher/cli/console.hpp"
#include "launcher/cli/remote_lines.hpp"
#include "launcher/keeper/console_lines.hpp"

using namespace sgd;
using namespace std::chrono_literals;
using cli::LineStyle;
using cli::RankLines;
using cli::RankText;
using keeper::OutputHead;
using keeper::Stream;

namespace {

struct Shown {
  explicit Shown(LineStyle style) : lines(std::move(style), [](Rank rank) { return rank % 2; }) {}

  void add(Duration at, Rank rank, std::string_view text, Stream stream = Stream::kOut) {
    lines.add(TimePoint(at), 0.25, {1, rank, stream, false}, text, out);
  }
  void open(Duration at, Rank rank, std::string_view text, Stream stream = Stream::kErr) {
    lines.add_open(TimePoint(at), 0.25, {1, rank, stream, true}, text, out);
  }
  std::string take(Stream stream) {
    std::string text;
    for (const RankText& piece : out)
      if (piece.stream == stream) text += piece.text;
    std::erase_if(out, [&](const RankText& piece) { return piece.stream == stream; });
    return text;
  }

  RankLines lines;
  std::vector<RankText> out;
};

LineStyle terminal() {
  LineStyle style;
  style.out_is_terminal = style.err_is_terminal = true;
  return style;
}

}  // namespace

TEST_CASE("rank lines: each stream goes to its own, with the prefix that is asked for") {
  Shown plain({});
  plain.add(0s, 1, "a\nb\n");
  plain.add(0s, 1, "e\n", Stream::kErr);
  CHECK(plain.take(Stream::kOut) == "1: a\n1: b\n");
  CHECK(plain.take(Stream::kErr) == "1: e\n");
  LineStyle style;
  style.prefix = "[${role_name}${local_rank}|${rank}|${stream}|${hostname}] ";
  style.role = "trainer";
  style.hostname = "h";
  Shown named(style);
  named.add(0s, 3, "a\n", Stream::kErr);
  CHECK(named.take(Stream::kErr) == "[trainer1|3|stderr|h] a\n");
  style.prefix = "";
  Shown bare(style);
  bare.add(0s, 3, "a\rb\n");
  CHECK(bare.take(Stream::kOut) == "a\rb\n");
}

TEST_CASE("rank lines: equal ones of several ranks are one, and no rank's lines change their order") {
  LineStyle style;
  style.ranks = 3;
  Shown shown(style);
  shown.add(0ms, 0, "same\n");
  CHECK(shown.take(Stream::kOut).empty());
  CHECK(shown.lines.next_flush() == TimePoint(50ms));
  shown.add(10ms, 1, "same\nmine\n");
  shown.add(20ms, 2, "mine\nsame\n");  // Behind its "mine", so not the first one.
  shown.lines.flush(TimePoint(49ms), false, shown.out);
  CHECK(shown.take(Stream::kOut).empty());
  shown.lines.flush(TimePoint(50ms), false, shown.out);
  CHECK(shown.take(Stream::kOut) == "0-1 ×2: same\n");
  shown.lines.flush(TimePoint(70ms), false, shown.out);
  CHECK(shown.take(Stream::kOut) == "1-2 ×2: mine\n2: same\n");
  CHECK_FALSE(shown.lines.next_flush().has_value());
  for (const Rank rank : {0, 1, 2}) shown.add(80ms, rank, "all\n");
  CHECK(shown.take(Stream::kOut) == "0-2 ×3: all\n");  // Nobody is left to wait for.
  shown.add(90ms, 0, std::string(RankLines::kFoldBytesMax + 1, 'x') + "\n");
  CHECK(shown.take(Stream::kOut).size() == RankLines::kFoldBytesMax + 5);
  style.is_utf8 = false;
  Shown plain(style);
  for (const Rank rank : {0, 1, 2}) plain.add(0ms, rank, "all\n");
  CHECK(plain.take(Stream::kOut) == "0-2 x3: all\n");
  style.is_utf8 = true;
  style.ranks = 1;
  Shown single(style);
  single.add(0ms, 0, "at once\n");
  CHECK(single.take(Stream::kOut) == "0: at once\n");
}

TEST_CASE("rank lines: a traceback stays together, and is one with another rank's as a whole or not at all") {
  const std::string head = "Traceback (most recent call last):\n";
  LineStyle style;
  style.ranks = 3;
  Shown shown(style);
  const auto err = [&](Duration at, Rank rank, const std::string& text) { shown.add(at, rank, text, Stream::kErr); };
  const auto shown_at = [&](Duration at) {
    shown.lines.flush(TimePoint(at), false, shown.out);
    return shown.take(Stream::kErr);
  };
  // Line by line, in turn, and followed by more than the exception's own line.
  err(0ms, 0, head);
  err(1ms, 1, "same\n" + head);
  err(2ms, 0, "  File \"a.py\", line 1\n");
  err(3ms, 1, "  File \"a.py\", line 1\n");
  err(4ms, 1, "KeyError: 1\n");
  err(5ms, 2, "same\n");
  err(40ms, 0, "ValueError: 0\nframe #0: c10\n");
  CHECK(shown_at(89ms).empty());
  CHECK(shown_at(90ms) ==
        "0: Traceback (most recent call last):\n0:   File \"a.py\", line 1\n0: ValueError: 0\n0: frame #0: c10\n"
        "1-2 ×2: same\n"
        "1: Traceback (most recent call last):\n1:   File \"a.py\", line 1\n1: KeyError: 1\n");
  CHECK_FALSE(shown.lines.next_flush().has_value());

  for (const Rank rank : {0, 2}) err(100ms, rank, head + "  File \"a.py\", line 1\nKeyError: 1\n");
  err(101ms, 1, "[rank1]: " + head + "[rank1]:   File \"a.py\", line 1\n");
  err(102ms, 2, "late\n");  // Of rank 2's, so it is not like the other one.
  err(103ms, 1, "[rank1]: KeyError: 1\n");
  CHECK(
      shown_at(200ms) ==
      "0: Traceback (most recent call last):\n0:   File \"a.py\", line 1\n0: KeyError: 1\n"
      "2: Traceback (most recent call last):\n2:   File \"a.py\", line 1\n2: KeyError: 1\n2: late\n"
      "1: [rank1]: Traceback (most recent call last):\n1: [rank1]:   File \"a.py\", line 1\n1: [rank1]: KeyError: 1\n");
  for (const Rank rank : {0, 1, 2}) err(300ms, rank, head + "KeyError: 1\n");
  CHECK(shown_at(350ms) == "0-2 ×3: Traceback (most recent call last):\n0-2 ×3: KeyError: 1\n");
}

TEST_CASE("rank lines: a rank that goes on after a traceback is not held back for long") {
  LineStyle style;
  style.ranks = 2;
  Shown shown(style);
  const auto err = [&](Duration at, const std::string& text) { shown.add(at, 0, text, Stream::kErr); };
  err(0ms, "Traceback (most recent call last):\n");
  Duration at = 0ms;
  for (; shown.out.empty() && at < 10s; at += 40ms) err(at, "  more\n");
  CHECK(at > RankLines::kTracebackWait);
  CHECK(at < RankLines::kTracebackWait + 2 * RankLines::kFoldWait);
  shown.lines.flush(TimePoint(20s), true, shown.out);
  shown.take(Stream::kErr);
  err(30s, "Traceback (most recent call last):\n");
  const std::string much(RankLines::kFoldBytesMax / 2, 'x');
  for (int part = 0; part < 2; ++part) err(30s, much + "\n");
  shown.lines.flush(TimePoint(30s + RankLines::kFoldWait), false, shown.out);
  CHECK(shown.take(Stream::kErr).size() == 2 * much.size() + 3 * 4 + 34);
}

TEST_CASE("rank lines: JSON goes to stdout, whole and valid") {
  LineStyle style;
  style.is_json = true;
  Shown shown(style);
  shown.add(0s, 1, "a \"b\"\n\xff\n", Stream::kErr);
  CHECK(shown.take(Stream::kOut) ==
        "{\"rank\":1,\"stream\":\"stderr\",\"time\":0.25,\"text\":\"a \\\"b\\\"\"}\n"
        "{\"rank\":1,\"stream\":\"stderr\",\"time\":0.25,\"text\":\"\xEF\xBF\xBD\"}\n");
}

TEST_CASE("rank lines: a bar is live on a terminal, and comes once in a while elsewhere") {
  Shown shown(terminal());
  shown.open(0s, 0, "\r 10%");
  shown.open(0s, 1, "\r 20%\r");
  CHECK(shown.take(Stream::kErr).empty());
  CHECK(shown.lines.bars() == std::vector<std::string>{"0:  10%", "1:  20%"});
  shown.add(1s, 0, "100%\n", Stream::kErr);
  CHECK(shown.take(Stream::kErr) == "0: 100%\n");
  CHECK(shown.lines.bars() == std::vector<std::string>{"1:  20%"});
  Shown piped({});
  piped.open(0s, 0, "\r 10%");
  piped.open(9s, 0, "\r 20%");
  piped.open(10s, 0, "\r 30%");
  piped.open(20s, 0, "\r 40%", Stream::kOut);
  CHECK(piped.take(Stream::kErr) == "0:  10%\n0:  30%\n");
  CHECK(piped.take(Stream::kOut).empty());
}

TEST_CASE("rank lines: a question is written as it stands, and its line goes on behind it") {
  Shown shown(terminal());
  shown.open(0s, 0, "Name", Stream::kOut);
  CHECK(shown.take(Stream::kOut) == "0: Name");
  CHECK(shown.lines.is_asking());
  shown.open(0s, 0, "Name? ", Stream::kOut);
  CHECK(shown.take(Stream::kOut) == "? ");
  shown.add(1s, 0, "Name? Ada\nHello\n");
  CHECK(shown.take(Stream::kOut) == "Ada\n0: Hello\n");
  CHECK_FALSE(shown.lines.is_asking());
  shown.open(2s, 0, "More? ", Stream::kOut);
  shown.add(3s, 1, "news\n");
  CHECK(shown.take(Stream::kOut) == "0: More? \n1: news\n");
  shown.add(4s, 0, "More? no\n");
  CHECK(shown.take(Stream::kOut) == "0: More? no\n");
}

TEST_CASE("rank lines: ranks in few words") {
  CHECK(cli::rank_list({0, 1, 2, 5, 7, 8}) == "0-2,5,7-8");
  CHECK(cli::fitted("ab█cd", 3) == "ab█");
}

TEST_CASE("rank lines: in a pipe or a file no byte of several ranks stands twice") {
  LineStyle style;
  style.ranks = 2;
  Shown shown(style);
  for (const Rank rank : {0, 1}) shown.open(0ms, rank, "loss=", Stream::kOut);
  for (const Rank rank : {0, 1}) shown.add(1s, rank, "loss=3\n");
  shown.lines.flush(TimePoint(2s), true, shown.out);
  CHECK(shown.take(Stream::kOut) == "0-1 ×2: loss=3\n");
  style.ranks = 1;
  Shown alone(style);
  alone.open(0ms, 0, "name? ", Stream::kOut);
  CHECK(alone.take(Stream::kOut) == "0: name? ");  // A program may wait for it, and nobody else can come between.
  alone.add(1s, 0, "name? x\n");
  CHECK(alone.take(Stream::kOut) == "x\n");
}

namespace {

/// As the keeper sends it: every part but the last has its mark.
std::string marked_part(char letter) {
  return std::string(keeper::kConsoleLineBytesMax, letter) + std::string(keeper::kSplitMark);
}

std::string whole_part(char letter) {
  return std::string(keeper::kConsoleLineBytesMax, letter);
}

LineStyle bare_style() {
  LineStyle style;
  style.prefix = "";
  return style;
}

}  // namespace

TEST_CASE("rank lines: with nothing in front a long line is one line, and nobody writes into it") {
  Shown shown(bare_style());
  shown.add(0s, 0, marked_part('a') + marked_part('b'));
  CHECK(shown.take(Stream::kOut) == whole_part('a') + whole_part('b'));
  shown.add(0s, 1, "other\n");
  shown.add(0s, 1, "beside\n", Stream::kErr);
  shown.open(0s, 1, "more? ", Stream::kOut);
  CHECK(shown.take(Stream::kOut).empty());
  CHECK(shown.take(Stream::kErr) == "beside\n");
  CHECK(shown.lines.next_flush() == TimePoint(1s));
  shown.add(900ms, 0, marked_part('c'));
  shown.lines.flush(TimePoint(1s), false, shown.out);
  CHECK(shown.take(Stream::kOut) == whole_part('c'));  // It goes on, and so does the wait.
  shown.add(1s, 0, "end\nnext\n");
  CHECK(shown.take(Stream::kOut) == "end\nnext\nother\n");
  CHECK_FALSE(shown.lines.next_flush());
  Shown prefixed({});
  prefixed.add(0s, 0, marked_part('a'));
  CHECK(prefixed.take(Stream::kOut) == "0: " + marked_part('a'));
}

TEST_CASE("rank lines: a long line that does not end holds others up for a bounded time and size") {
  Shown shown(bare_style());
  shown.add(0s, 0, marked_part('a'));
  shown.add(1ms, 1, "other\n");
  shown.open(200ms, 0, "bb", Stream::kOut);  // What there is of its next part.
  shown.lines.flush(TimePoint(1s), false, shown.out);
  CHECK(shown.take(Stream::kOut) == whole_part('a') + "bb\nother\n");
  shown.add(2s, 0, "bbb\n");
  CHECK(shown.take(Stream::kOut) == "bbb\n");
  shown.add(3s, 0, marked_part('a'));
  const std::string most(cli::LongLines::kWaitingBytesMax - 2, 'x');
  shown.add(3s, 1, "y\n");
  shown.add(3s, 1, most.substr(0, most.size() - 1) + "\n");
  CHECK(shown.take(Stream::kOut) == whole_part('a'));
  shown.add(3s, 1, "z\n");
  CHECK(shown.take(Stream::kOut).size() == 1 + 2 + most.size() + 2);
  shown.add(4s, 0, marked_part('a'));
  shown.add(4s, 1, marked_part('b'));
  shown.add(4s, 0, "A\n");
  shown.add(4s, 0, "C\n");
  CHECK(shown.take(Stream::kOut) == whole_part('a') + "A\n" + whole_part('b'));
  shown.add(4s, 1, "B\n");
  CHECK(shown.take(Stream::kOut) == "B\nC\n");
}

TEST_CASE("rank lines: what a rank writes itself is no mark") {
  Shown shown(bare_style());
  shown.add(0s, 0, "says [line goes on]\n");
  shown.add(0s, 1, whole_part('x') + "\n");
  shown.add(0s, 0, whole_part('y').substr(15) + std::string(keeper::kSplitMark));
  CHECK(shown.take(Stream::kOut) == "says [line goes on]\n" + whole_part('x') + "\n" + whole_part('y').substr(15) +
                                        std::string(keeper::kSplitMark));
  CHECK_FALSE(shown.lines.next_flush());
}

TEST_CASE("rank lines: of logs that come from a cluster, each with its node and its place there") {
  LineStyle style;
  style.prefix = "<${rank}|${local_rank}|${hostname}> ";
  style.ranks = 3;  // Nothing of them is combined.
  cli::RemoteLines remote(style);
  for (const auto& [rank, node] : {std::pair{0, "old"}, std::pair{1, "old"}})
    remote.on_event({{"event", "worker_started"}, {"generation", 1}, {"rank", rank}, {"node", node}});
  for (const auto& [rank, node] : {std::pair{2, "b"}, std::pair{1, "b"}, std::pair{0, "a"}})
    remote.on_event({{"event", "worker_started"}, {"generation", 2}, {"rank", rank}, {"node", node}});
  const auto shown = [&](const char* file, const char* lines) {
    return remote.shown(TimePoint(1s), 0.25, file, lines);
  };
  CHECK(shown("logs/gen-0002/rank-0002.log", "x\ny\n") == "<2|1|b> x\n<2|1|b> y\n");
  CHECK(shown("logs/gen-0002/rank-0000.log", "x\n") == "<0|0|a> x\n");
  style.is_json = true;
  cli::RemoteLines json(style);
  CHECK(json.shown(TimePoint(1s), 0.25, "logs/gen-0001/rank-0012.log", "a\n") ==
        "{\"rank\":12,\"stream\":\"stdout\",\"time\":0.25,\"text\":\"a\"}\n");
}
