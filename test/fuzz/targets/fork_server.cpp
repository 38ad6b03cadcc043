// Messages between keeper and fork server; every input goes through both directions.

#include "common/messages/fork_server.hpp"

#include "test/fuzz/target.hpp"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text = sgd::fuzz::text_of(data, size);
  const sgd::fuzz::MemoryBound bound(size, 512);
  sgd::fuzz::check_stable(text, sgd::fork_server::decode_to_fork_server,
                          [](const sgd::fork_server::ToForkServer& m) { return sgd::fork_server::encode(m); });
  sgd::fuzz::check_stable(text, sgd::fork_server::decode_from_fork_server,
                          [](const sgd::fork_server::FromForkServer& m) { return sgd::fork_server::encode(m); });
  return 0;
}
