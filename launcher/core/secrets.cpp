#include "launcher/core/secrets.hpp"

#include <bit>
#include <cstddef>

#include <fmt/format.h>

namespace sgd::core {
namespace {

constexpr int kDoubleRounds = 10;

using State = std::array<std::uint32_t, 16>;

void quarter_round(State& state, std::size_t a, std::size_t b, std::size_t c, std::size_t d) {
  state[a] += state[b];
  state[d] = std::rotl(state[d] ^ state[a], 16);
  state[c] += state[d];
  state[b] = std::rotl(state[b] ^ state[c], 12);
  state[a] += state[b];
  state[d] = std::rotl(state[d] ^ state[a], 8);
  state[c] += state[d];
  state[b] = std::rotl(state[b] ^ state[c], 7);
}

}  // namespace

std::array<std::uint32_t, 16> chacha20_block(const std::array<std::uint32_t, 8>& key, std::uint32_t counter,
                                             const std::array<std::uint32_t, 3>& nonce) {
  State state{0x61707865, 0x3320646e, 0x79622d32, 0x6b206574};  // "expand 32-byte k".
  for (std::size_t i = 0; i < key.size(); ++i) state[4 + i] = key[i];
  state[12] = counter;
  for (std::size_t i = 0; i < nonce.size(); ++i) state[13 + i] = nonce[i];
  const State begin = state;
  for (int round = 0; round < kDoubleRounds; ++round) {
    for (std::size_t i = 0; i < 4; ++i) quarter_round(state, i, 4 + i, 8 + i, 12 + i);
    for (std::size_t i = 0; i < 4; ++i) quarter_round(state, i, 4 + (i + 1) % 4, 8 + (i + 2) % 4, 12 + (i + 3) % 4);
  }
  for (std::size_t i = 0; i < state.size(); ++i) state[i] += begin[i];
  return state;
}

std::string Secrets::next() {
  std::array<std::uint32_t, 8> key{};
  for (std::size_t i = 0; i < key.size(); ++i) key[i] = static_cast<std::uint32_t>(key_[i / 2] >> (i % 2 * 32));
  const std::uint64_t number = drawn_++;
  const auto block =
      chacha20_block(key, static_cast<std::uint32_t>(number), {static_cast<std::uint32_t>(number >> 32), 0, 0});
  return fmt::format("{:08x}{:08x}{:08x}{:08x}", block[0], block[1], block[2], block[3]);
}

}  // namespace sgd::core
