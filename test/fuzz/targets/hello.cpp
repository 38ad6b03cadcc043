// The first frame of a connection, from anyone who can reach the port.

#include "common/messages/hello.hpp"

#include <algorithm>

#include "test/fuzz/target.hpp"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text = sgd::fuzz::text_of(data, size);
  const sgd::fuzz::MemoryBound bound(size, 512);
  sgd::fuzz::check_stable(text, sgd::hello::decode, sgd::hello::encode);
  const auto other = sgd::hello::decode(text);
  if (!other.ok()) return 0;
  const auto agreed = sgd::hello::agree({}, other.value());
  const auto mirrored = sgd::hello::agree(other.value(), {});
  FUZZ_CHECK(agreed.ok() == mirrored.ok());
  if (!agreed.ok()) return 0;
  FUZZ_CHECK(agreed.value() == mirrored.value());
  FUZZ_CHECK(agreed.value() >= std::max(sgd::hello::kProtocolMin, other.value().protocol_min));
  FUZZ_CHECK(agreed.value() <= std::min(sgd::hello::kProtocolMax, other.value().protocol_max));
  return 0;
}
