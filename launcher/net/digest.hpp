#pragma once
// SHA-256, random bytes for keys and tokens, and the two text forms that they travel in.

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sgd::net {

using Digest = std::array<std::uint8_t, 32>;

[[nodiscard]] Digest sha256(std::span<const std::uint8_t> bytes);
/// The same of bytes that come piece by piece.
class Sha256 {
 public:
  Sha256();
  void add(std::string_view bytes);
  /// Of all that was added; once.
  [[nodiscard]] Digest end();

 private:
  struct State;
  std::shared_ptr<State> state_;
};
/// In time that does not depend on the contents.
[[nodiscard]] bool equal_in_constant_time(const Digest& a, const Digest& b);

/// From the system's generator; asserts that it works.
void fill_random(std::span<std::uint8_t> bytes);

/// Lower-case digits.
[[nodiscard]] std::string to_hex(std::span<const std::uint8_t> bytes);
/// Exactly one digest in hexadecimal digits, or nothing.
[[nodiscard]] std::optional<Digest> digest_from_hex(std::string_view text);

/// RFC 4648 section 5, without padding.
[[nodiscard]] std::string to_base64url(std::span<const std::uint8_t> bytes);
/// Nothing for any text that to_base64url does not make.
[[nodiscard]] std::optional<std::vector<std::uint8_t>> from_base64url(std::string_view text);

}  // namespace sgd::net
