#pragma once
// Values that nobody may guess, for a machine that has no chance of its own: one after the other from a key that its
// shell has from the kernel's generator (ChaCha20, RFC 8439). Whoever knows some of them, and not the key, knows
// nothing of the others. Equal keys give equal values, so a replay makes the same ones; the key stays with whoever
// may know them all.

#include <array>
#include <cstdint>
#include <string>

namespace sgd::core {

using SecretKey = std::array<std::uint64_t, 4>;

class Secrets {
 public:
  Secrets() : Secrets(SecretKey{}) {}
  /// `drawn`: values of this key that were drawn before.
  explicit Secrets(const SecretKey& key, std::uint64_t drawn = 0) : key_(key), drawn_(drawn) {}

  /// 32 hexadecimal digits.
  [[nodiscard]] std::string next();
  [[nodiscard]] const SecretKey& key() const { return key_; }
  [[nodiscard]] std::uint64_t drawn() const { return drawn_; }

 private:
  SecretKey key_;
  std::uint64_t drawn_;
};

/// The block function of RFC 8439, section 2.3, in its words.
[[nodiscard]] std::array<std::uint32_t, 16> chacha20_block(const std::array<std::uint32_t, 8>& key,
                                                           std::uint32_t counter,
                                                           const std::array<std::uint32_t, 3>& nonce);

}  // namespace sgd::core
