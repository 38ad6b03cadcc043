#pragma once
// Plays the commands of a transcript in a World. The words of a command are in story.cpp's table.

#include <map>
#include <string>
#include <vector>

#include "test/scenario/world.hpp"

namespace sgd::test {

class Story {
 public:
  /// One line of a transcript's input; the text that comes back is all that happened.
  [[nodiscard]] std::string play(const std::string& line);

 private:
  using Words = std::vector<std::string>;
  void submit(const Words& words);
  void keeper(const Words& words);
  void worker(const Words& words);
  [[nodiscard]] std::string token_of(int rank) const;

  World world_;
  std::map<int, std::string> tokens_;  ///< By rank, of the newest generation.
};

/// Replays the commands of a transcript and returns the text with the outputs of now.
[[nodiscard]] std::string replay(const std::string& transcript);

}  // namespace sgd::test
