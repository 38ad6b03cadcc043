#include "launcher/core/secrets.hpp"

#include <set>

#include <catch2/catch.hpp>

using namespace sgd::core;

TEST_CASE("chacha20: the block of RFC 8439, section 2.3.2") {
  const std::array<std::uint32_t, 8> key{0x03020100, 0x07060504, 0x0b0a0908, 0x0f0e0d0c,
                                         0x13121110, 0x17161514, 0x1b1a1918, 0x1f1e1d1c};
  const std::array<std::uint32_t, 16> expected{0xe4e7f110, 0x15593bd1, 0x1fdd0f50, 0xc47120a3, 0xc7f4d1c7, 0x0368c033,
                                               0x9aaa2204, 0x4e6cd4c3, 0x466482d2, 0x09aa9f07, 0x05d7c214, 0xa2028bd9,
                                               0xd19c12b5, 0xb94e16de, 0xe883d0cb, 0x4e3c50a2};
  CHECK(chacha20_block(key, 1, {0x09000000, 0x4a000000, 0}) == expected);
}

TEST_CASE("secrets: one key gives one sequence, which goes on where it was left") {
  const SecretKey key{1, 2, 3, 4};
  Secrets first(key);
  std::set<std::string> seen;
  std::string last;
  for (int count = 0; count < 1000; ++count) seen.insert(last = first.next());
  CHECK(seen.size() == 1000);
  CHECK(last.size() == 32);
  CHECK(Secrets(key, 999).next() == last);
  CHECK(first.drawn() == 1000);
  CHECK(Secrets({1, 2, 3, 5}).next() != Secrets(key).next());
  CHECK(Secrets(key, 1ULL << 32).next() != Secrets(key).next());
}
