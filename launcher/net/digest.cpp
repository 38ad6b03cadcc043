#include "launcher/net/digest.hpp"

#include <limits>

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/rand.h>

#include "common/base/assert.hpp"

namespace sgd::net {
namespace {

constexpr std::string_view kLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
constexpr std::string_view kHex = "0123456789abcdef";

}  // namespace

Digest sha256(std::span<const std::uint8_t> bytes) {
  Digest digest{};
  unsigned length = 0;
  SGD_ASSERT(EVP_Digest(bytes.data(), bytes.size(), digest.data(), &length, EVP_sha256(), nullptr) == 1);
  return digest;
}

struct Sha256::State {
  std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> context{EVP_MD_CTX_new(), EVP_MD_CTX_free};
};

Sha256::Sha256() : state_(std::make_shared<State>()) {
  SGD_ASSERT(EVP_DigestInit_ex(state_->context.get(), EVP_sha256(), nullptr) == 1);
}

void Sha256::add(std::string_view bytes) {
  SGD_ASSERT(EVP_DigestUpdate(state_->context.get(), bytes.data(), bytes.size()) == 1);
}

Digest Sha256::end() {
  Digest digest{};
  unsigned length = 0;
  SGD_ASSERT(EVP_DigestFinal_ex(state_->context.get(), digest.data(), &length) == 1);
  return digest;
}

bool equal_in_constant_time(const Digest& a, const Digest& b) {
  return CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

void fill_random(std::span<std::uint8_t> bytes) {
  SGD_ASSERT(bytes.size() <= std::numeric_limits<int>::max());
  SGD_ASSERT(RAND_priv_bytes(bytes.data(), static_cast<int>(bytes.size())) == 1);
}

std::string to_hex(std::span<const std::uint8_t> bytes) {
  std::string text;
  for (const std::uint8_t byte : bytes) {
    text.push_back(kHex[byte >> 4]);
    text.push_back(kHex[byte & 15]);
  }
  return text;
}

std::optional<Digest> digest_from_hex(std::string_view text) {
  Digest digest{};
  if (text.size() != 2 * digest.size()) return std::nullopt;
  for (std::size_t index = 0; index < text.size(); ++index) {
    const std::size_t value = kHex.find(text[index]);
    if (value == std::string_view::npos) return std::nullopt;
    digest[index / 2] = static_cast<std::uint8_t>(digest[index / 2] << 4 | value);
  }
  return digest;
}

std::string to_base64url(std::span<const std::uint8_t> bytes) {
  std::string text;
  std::uint32_t bits = 0;
  int held = 0;
  for (const std::uint8_t byte : bytes) {
    bits = bits << 8 | byte;
    for (held += 8; held >= 6; held -= 6) text.push_back(kLetters[bits >> (held - 6) & 63]);
  }
  if (held > 0) text.push_back(kLetters[bits << (6 - held) & 63]);
  return text;
}

std::optional<std::vector<std::uint8_t>> from_base64url(std::string_view text) {
  std::vector<std::uint8_t> bytes;
  std::uint32_t bits = 0;
  int held = 0;
  for (const char letter : text) {
    const std::size_t value = kLetters.find(letter);
    if (value == std::string_view::npos) return std::nullopt;
    bits = bits << 6 | static_cast<std::uint32_t>(value);
    held += 6;
    if (held >= 8) {
      held -= 8;
      bytes.push_back(static_cast<std::uint8_t>(bits >> held));
    }
  }
  if (held >= 6 || (bits & ((1U << held) - 1)) != 0) return std::nullopt;  // Two texts must not mean the same.
  return bytes;
}

}  // namespace sgd::net
