// HTTP requests of the probes. The first byte says in which pieces the rest arrives: whatever they are, the
// answers are the same; each is a whole response, and the stream ends at the first that is no request.

#include <algorithm>
#include <string>

#include "launcher/http/probe_reply.hpp"
#include "launcher/http/request_reader.hpp"
#include "test/fuzz/target.hpp"

namespace {

std::string answers_to(std::string_view bytes, std::size_t piece) {
  const sgd::http::ProbeSources sources{[] { return std::string("up 1\n"); },
                                        [] {
                                          return sgd::http::Health{true, false, "starts"};
                                        }};
  std::string answers;
  sgd::http::RequestReader reader;
  while (!bytes.empty()) {
    reader.append(bytes.substr(0, piece));
    bytes.remove_prefix(std::min(piece, bytes.size()));
    for (;;) {
      const auto next = reader.next();
      if (!next.ok()) {
        FUZZ_CHECK(next.error().code >= 400 && next.error().code < 500);
        return answers + sgd::http::refusal(next.error().code, "refused");
      }
      if (!next.value()) break;
      FUZZ_CHECK(!next.value()->method.empty());
      answers += sgd::http::reply_to(*next.value(), sources, next.value()->keep_alive);
    }
  }
  return answers;
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view bytes = sgd::fuzz::text_of(data, size).substr(1);
  // The shortest request that can be has 18 bytes, its answer 250; two lists of answers that grow.
  const sgd::fuzz::MemoryBound bound(size, 128);
  const std::string whole = answers_to(bytes, std::max<std::size_t>(bytes.size(), 1));
  FUZZ_CHECK(whole == answers_to(bytes, data[0] % 64 + 1));
  FUZZ_CHECK(whole.empty() || whole.starts_with("HTTP/1.1 "));
  return 0;
}
