#pragma once
// Plays the commands of a transcript. README.md lists them.

#include <string>

#include "test/scenario/crew.hpp"

namespace sgd::test {

class Story {
 public:
  /// One line of a transcript's input; the text that comes back is all that happened.
  [[nodiscard]] std::string play(const std::string& line);

 private:
  bool play_nodes(const std::string& verb, const Words& words);
  bool play_ranks(const std::string& verb, const Words& words);
  void add_node(const Words& words);
  [[nodiscard]] std::string status(const RunId& run);
  [[nodiscard]] std::string nodes();
  [[nodiscard]] std::string plan(const Words& words);
  void stop(const Words& words);

  Crew crew_;
};

/// Replays the commands of a transcript and returns the text with the outputs of now.
[[nodiscard]] std::string replay(const std::string& transcript);

}  // namespace sgd::test
