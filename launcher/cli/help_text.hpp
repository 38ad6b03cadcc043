#pragma once
// Help as a terminal has room for it. A line that is too long goes on below the text of its column. Pages and
// completions are made of the same text, unwrapped (COLUMNS, scripts/generate.py).

#include <cstddef>
#include <string>

namespace sgd::cli {

/// Lines longer than `width` broken between words; a text behind a column too far right stands on lines of its own.
[[nodiscard]] std::string wrapped(const std::string& text, std::size_t width);

/// COLUMNS where it is set, else the terminal's width up to 100, else 80.
[[nodiscard]] std::size_t help_width();

/// `text` on stdout, as wide as help_width(). `verb`: what it is for is said first; empty: nobody's.
void print_help(const std::string& verb, const std::string& text);

}  // namespace sgd::cli
