// Lines of the worker link; every input goes through both directions. A line that was decoded may be longer
// when it is encoded again (escapes, fields that were left out), and then does not fit the link any more.

#include "common/messages/link.hpp"

#include "test/fuzz/target.hpp"

namespace {

template <class Decode, class Encode>
void check(std::string_view line, Decode decode, Encode encode) {
  const auto message = decode(line);
  if (!message.ok() || encode(message.value()).size() > sgd::link::kLineBytesMax) return;
  const auto without_newline = [&](const auto& value) {
    std::string text = encode(value);
    text.pop_back();
    return text;
  };
  sgd::fuzz::check_stable(line, decode, without_newline);
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view line = sgd::fuzz::text_of(data, size);
  const sgd::fuzz::MemoryBound bound(size, 512);
  check(line, sgd::link::decode_from_worker,
        [](const sgd::link::FromWorker& message) { return sgd::link::encode(message); });
  check(line, sgd::link::decode_to_worker,
        [](const sgd::link::ToWorker& message) { return sgd::link::encode(message); });
  return 0;
}
