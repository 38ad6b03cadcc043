#include "launcher/rendezvous/secret.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include <fmt/format.h>

#include "common/base/bytes.hpp"
#include "launcher/net/digest.hpp"
#include "launcher/net/private_files.hpp"

namespace sgd::rendezvous {
namespace {

constexpr std::size_t kFileBytesMax = 64 << 10;
constexpr const char* kRemedy = "make one with: (umask 077; head -c 32 /dev/urandom | base64 > FILE)";

Result<std::string> checked(std::string text, const std::string& file) {
  const char* spaces = " \t\r\n";
  text.erase(text.find_last_not_of(spaces) + 1);
  text.erase(0, text.find_first_not_of(spaces));
  if (text.size() >= kSecretBytesMin) return text;
  return Error{fmt::format("{} holds a secret of {} bytes, and fewer than {} can be guessed: {}", file, text.size(),
                           kSecretBytesMin, kRemedy)};
}

}  // namespace

std::string usual_secret_file() {
  const char* base = std::getenv("XDG_CONFIG_HOME");
  if (base != nullptr && *base != '\0') return std::string(base) + "/sgd-launch/rendezvous-secret";
  const char* home = std::getenv("HOME");
  return home == nullptr || *home == '\0' ? "" : std::string(home) + "/.config/sgd-launch/rendezvous-secret";
}

/// As its owner has made it: Kubernetes mounts secrets as links to files of root's that a group may read, or all in the
/// pod. Of a person's own file all others would be as good as that person.
Result<std::string> read_secret(const std::string& file) {
  struct stat about {};
  const bool is_known = ::stat(file.c_str(), &about) == 0;
  if (is_known && about.st_uid != 0 && (about.st_mode & 06) != 0)
    return Error{fmt::format("every account of this machine can {} the secret {}: chmod 600 it, and make a new one if "
                             "others may have seen it",
                             (about.st_mode & 04) != 0 ? "read" : "write", file),
                 EACCES};
  std::ifstream stream(file, std::ios::binary);
  if (!stream) return Error{fmt::format("cannot read the secret {}: {}", file, std::strerror(errno)), errno};
  std::string text(kFileBytesMax + 1, '\0');
  stream.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(stream.gcount()));
  if (text.size() > kFileBytesMax)
    return Error{fmt::format("{} is no secret: it has more than {}", file, format_bytes(kFileBytesMax))};
  return checked(std::move(text), file);
}

Result<std::string> read_or_make_secret(const std::string& file) {
  const auto there = net::read_file(file, kFileBytesMax, net::Readers::kOwner);
  if (there) return checked(there.value(), file);
  if (there.error().code != ENOENT) return there.error();
  if (const Status made = net::make_private_folder(std::filesystem::path(file).parent_path().string()); !made)
    return made.error();
  std::array<std::uint8_t, 32> bytes{};
  net::fill_random(bytes);
  std::array<std::uint8_t, 8> name{};
  net::fill_random(name);
  const std::string temporary = fmt::format("{}.{}", file, net::to_hex(name));
  if (const Status written = net::write_file(temporary, net::to_base64url(bytes) + "\n", net::Readers::kOwner);
      !written)
    return written.error();
  const bool is_linked = ::link(temporary.c_str(), file.c_str()) == 0;  // On NFS, too, only one of them can.
  const int code = errno;
  (void)::unlink(temporary.c_str());
  if (!is_linked && code != EEXIST)
    return Error{fmt::format("cannot make the secret {}: {}", file, std::strerror(code)), code};
  const auto made = net::read_file(file, kFileBytesMax, net::Readers::kOwner);
  return made ? checked(made.value(), file) : made;
}

}  // namespace sgd::rendezvous
