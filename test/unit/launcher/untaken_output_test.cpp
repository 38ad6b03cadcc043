#include "launcher/keeper/untaken_output.hpp"

#include <catch2/catch.hpp>

using namespace sgd;
using keeper::UntakenOutput;

namespace {

/// The frames that a new agent gets, in one.
std::string resent(UntakenOutput& output) {
  std::string frames;
  for (const UntakenOutput::Chunk& chunk : output.resend()) frames += chunk.frame;
  return frames;
}

}  // namespace

TEST_CASE("untaken output: a chunk is kept until all of it is taken") {
  UntakenOutput output;
  output.push({"[one]", 3, false});
  output.push({"[three]", 5, false});
  output.push({"[four]", 4, false});
  output.taken(2);
  CHECK(output.memory() == 18 + 3 * UntakenOutput::kMemoryOfChunk);
  output.taken(1 + 5 + 3);
  CHECK(resent(output) == "[four]");
  output.taken(3);
  CHECK(resent(output) == "[four]");
  output.taken(4);
  CHECK(resent(output).empty());
  CHECK(output.memory() == 0);
}

TEST_CASE("untaken output: lines that are being written count as taken, and are not sent again") {
  UntakenOutput output;
  output.push({"[a]", 1, false});
  output.push({"[bar]", 3, true});
  output.push({"[b]", 1, false});
  output.taken(3);
  CHECK(resent(output) == "[b]");
  output.push({"[c]", 1, false});
  output.taken(1);
  CHECK(resent(output) == "[c]");
}

TEST_CASE(
    "untaken output: what is more than can be kept goes first, and is waited for all the same; limit kMemoryMax") {
  UntakenOutput output;
  const std::string large(UntakenOutput::kMemoryMax / 2, 'x');
  output.push({"[early]", 5, false});
  output.push({large, 100, false});
  CHECK(output.memory() <= UntakenOutput::kMemoryMax);
  output.push({large, 100, false});
  output.push({"[late]", 4, false});
  CHECK(output.memory() <= UntakenOutput::kMemoryMax);
  output.taken(5 + 100 + 99);
  CHECK(resent(output) == large + "[late]");
  output.taken(100);
  CHECK(resent(output) == "[late]");
}

TEST_CASE("untaken output: who takes more than there was is owed nothing less") {
  UntakenOutput output;
  output.push({"[a]", 1, false});
  output.taken(1000);
  output.taken(-5);
  output.push({"[b]", 1, false});
  CHECK(resent(output) == "[b]");
}
