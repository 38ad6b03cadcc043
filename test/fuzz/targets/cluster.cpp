// Messages between coordinator and agents; every input goes through both directions.

#include "common/messages/cluster.hpp"

#include "test/fuzz/target.hpp"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text = sgd::fuzz::text_of(data, size);
  const sgd::fuzz::MemoryBound bound(size, 512);
  sgd::fuzz::check_stable(text, sgd::cluster::decode_to_agent,
                          [](const sgd::cluster::ToAgent& m) { return sgd::cluster::encode(m); });
  sgd::fuzz::check_stable(text, sgd::cluster::decode_from_agent,
                          [](const sgd::cluster::FromAgent& m) { return sgd::cluster::encode(m); });
  return 0;
}
