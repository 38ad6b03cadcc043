#pragma once
// Cuts a stream of bytes into what the console may show: whole lines only, and none longer
// than a limit; a longer one is split at a character and marked. The log file is written
// elsewhere, byte for byte, and never sees marks.
// Invariant: the pieces in order, without marks, followed by the rest, are exactly the input.

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace sgd::keeper {

/// Ends every part of a split line but the last.
inline constexpr std::string_view kSplitMark = " [line goes on]\n";

struct ConsolePiece {
  std::string_view bytes;  ///< Whole lines, or a part of one line that needs a mark after it.
  bool split = false;      ///< kSplitMark follows.
};

struct ConsoleCut {
  std::vector<ConsolePiece> pieces;
  std::string_view rest;  ///< The begin of an unfinished line, at most `line_bytes_max` bytes.
};

/// `bytes` starts at the begin of a line. The views point into `bytes`.
void cut_lines(std::string_view bytes, std::size_t line_bytes_max, ConsoleCut& out);

/// `out` becomes what is seen of lines over which their writer goes back with \r: of each the newest frame. An
/// unfinished line of this kind begins with \r, so that it is known as one when it goes on.
void newest_frames(std::string_view bytes, std::string& out);

/// Where to end at most `bytes_max` bytes of `text` without cutting a UTF-8 character.
[[nodiscard]] std::size_t character_end(std::string_view text, std::size_t bytes_max);

}  // namespace sgd::keeper
