// The lines of a search program, which may be anything: bytes become the same lines in whatever pieces they come, and
// what is accepted of them is what was asked for.

#include "launcher/tune/search_protocol.hpp"

#include <algorithm>

#include "test/fuzz/target.hpp"

namespace {

using sgd::tune::TrialId;

sgd::tune::Parameters parameters() {
  sgd::tune::Parameters out;
  out.domains["lr"] = {sgd::tune::DomainKind::kUniform, {}, 0, 1, 0};
  return out;
}

/// All lines up to the first that is too long, taken in pieces of so many bytes.
std::vector<std::string> lines_of(std::string_view bytes, std::size_t piece) {
  sgd::tune::SearchLines lines;
  std::vector<std::string> all;
  for (std::size_t at = 0; at < bytes.size(); at += piece) {
    auto part = lines.take(bytes.substr(at, piece));
    if (!part.ok()) {
      FUZZ_CHECK(!part.error().message.empty());
      break;
    }
    for (std::string& line : part.value()) all.push_back(std::move(line));
  }
  return all;
}

void talk(const std::vector<std::string>& lines) {
  sgd::tune::SearchProtocol protocol(parameters());
  protocol.on_asked({0, 1, 2});
  std::set<TrialId> given;
  for (const std::string& line : lines) {
    FUZZ_CHECK(line.size() <= sgd::tune::kSearchLineBytesMax);
    const auto answer = protocol.take(line);
    if (!answer.ok()) {
      FUZZ_CHECK(answer.error().message.starts_with("the search program "));
    } else if (const auto* trial = std::get_if<sgd::tune::Trial>(&answer.value())) {
      FUZZ_CHECK(trial->id >= 0 && trial->id <= 2 && given.insert(trial->id).second);
      FUZZ_CHECK(parameters().misfit(trial->values).empty());
    } else if (const auto* kill = std::get_if<sgd::tune::KillTrial>(&answer.value())) {
      FUZZ_CHECK(given.contains(kill->trial));
      if (kill->trial == 0) protocol.on_end(0);
    } else {
      FUZZ_CHECK(protocol.no_more() && protocol.owed().empty());
    }
  }
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes = sgd::fuzz::text_of(data, size);
  const sgd::fuzz::MemoryBound bound(size, 2048, 1 << 20);
  const std::vector<std::string> lines = lines_of(bytes, std::max<std::size_t>(size, 1));
  for (const std::size_t piece : {std::size_t{1}, std::size_t{7}}) {
    const std::vector<std::string> same = lines_of(bytes, piece);
    // Where a line is too long, those before it in the same piece are not given out.
    FUZZ_CHECK(same.size() >= lines.size() && std::equal(lines.begin(), lines.end(), same.begin()));
  }
  talk(lines);
  return 0;
}
