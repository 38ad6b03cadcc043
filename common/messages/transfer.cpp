// Keys and type names of file transfers, and which names may travel.

#include "common/messages/transfer.hpp"

#include <algorithm>
#include <array>
#include <span>

#include "common/checkpoint/crc32c.hpp"
#include "common/checkpoint/manifest.hpp"
#include "common/messages/codec.hpp"

namespace sgd::codec {

template <>
inline constexpr auto kMessage<transfer::Files> = message("files", required("node", &transfer::Files::node),
                                                          required("incarnation", &transfer::Files::incarnation));
template <>
inline constexpr auto kMessage<transfer::Put> = message("put", required("run", &transfer::Put::run),
                                                        required("file", &transfer::Put::file),
                                                        required("offset", &transfer::Put::offset),
                                                        required("bytes", &transfer::Put::bytes),
                                                        required("crc32c", &transfer::Put::crc32c),
                                                        optional("last", &transfer::Put::last));
template <>
inline constexpr auto kMessage<transfer::Query> = message("query", required("run", &transfer::Query::run),
                                                          required("file", &transfer::Query::file));
template <>
inline constexpr auto kMessage<transfer::CheckpointDone> = message("checkpoint_done",
                                                                   required("run", &transfer::CheckpointDone::run),
                                                                   required("path", &transfer::CheckpointDone::path));
template <>
inline constexpr auto kMessage<transfer::Get> = message("get", required("run", &transfer::Get::run),
                                                        required("path", &transfer::Get::path),
                                                        optional("file", &transfer::Get::file),
                                                        optional("offset", &transfer::Get::offset),
                                                        optional("bytes", &transfer::Get::bytes));
template <>
inline constexpr auto kMessage<transfer::Lacks> = message("lacks", required("run", &transfer::Lacks::run),
                                                          required("path", &transfer::Lacks::path),
                                                          optional("reason", &transfer::Lacks::reason));

template <>
inline constexpr auto kMessage<transfer::Have> = message("have", required("run", &transfer::Have::run),
                                                         required("file", &transfer::Have::file),
                                                         required("offset", &transfer::Have::offset),
                                                         optional("rewind", &transfer::Have::rewind),
                                                         optional("last", &transfer::Have::last),
                                                         optional("reason", &transfer::Have::reason));
template <>
inline constexpr auto kMessage<transfer::Stored> = message("stored", required("run", &transfer::Stored::run),
                                                           required("path", &transfer::Stored::path));
template <>
inline constexpr auto kMessage<transfer::Refused> = message("refused", required("run", &transfer::Refused::run),
                                                            required("path", &transfer::Refused::path),
                                                            optional("reason", &transfer::Refused::reason),
                                                            optional("unknown_run", &transfer::Refused::unknown_run));
template <>
inline constexpr auto kMessage<transfer::ListedFile> = message("", required("name", &transfer::ListedFile::name),
                                                               required("bytes", &transfer::ListedFile::bytes));
template <>
inline constexpr auto kMessage<transfer::Listing> = message("listing", required("run", &transfer::Listing::run),
                                                            required("path", &transfer::Listing::path),
                                                            required("files", &transfer::Listing::files));
template <>
inline constexpr auto kMessage<transfer::Data> = message("data", required("run", &transfer::Data::run),
                                                         required("path", &transfer::Data::path),
                                                         required("file", &transfer::Data::file),
                                                         required("offset", &transfer::Data::offset),
                                                         required("bytes", &transfer::Data::bytes),
                                                         required("crc32c", &transfer::Data::crc32c));
template <>
inline constexpr auto kMessage<transfer::Pending> = message("pending", required("run", &transfer::Pending::run),
                                                            required("path", &transfer::Pending::path),
                                                            optional("bytes", &transfer::Pending::bytes));
template <>
inline constexpr auto kMessage<transfer::Ship> = message("ship", required("run", &transfer::Ship::run),
                                                         required("path", &transfer::Ship::path));
template <>
inline constexpr auto kMessage<transfer::Keep> = message("keep", required("run", &transfer::Keep::run),
                                                         required("paths", &transfer::Keep::paths));
template <>
inline constexpr auto kMessage<transfer::AllSent> = message("all_sent", required("run", &transfer::AllSent::run));
template <>
inline constexpr auto kMessage<transfer::Taken> = message("taken", required("run", &transfer::Taken::run));

}  // namespace sgd::codec

namespace sgd::transfer {
namespace {

constexpr std::size_t kShownBytesMax = 80;

std::vector<std::string_view> parts_of(std::string_view path) {
  std::vector<std::string_view> parts;
  while (parts.size() <= static_cast<std::size_t>(kPartsMax)) {
    const std::size_t slash = path.find('/');
    parts.push_back(path.substr(0, slash));
    if (slash == std::string_view::npos) break;
    path.remove_prefix(slash + 1);
  }
  return parts;
}

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

}  // namespace

std::string encode(const FromNode& message) {
  return codec::print(codec::write_variant(message));
}
std::string encode(const ToNode& message) {
  return codec::print(codec::write_variant(message));
}
Result<FromNode> decode_from_node(std::string_view json) {
  return codec::decode<FromNode>(json);
}
Result<ToNode> decode_to_node(std::string_view json) {
  return codec::decode<ToNode>(json);
}

std::string shown(std::string_view name) {
  std::string text(name.substr(0, kShownBytesMax));
  for (char& letter : text)
    if (letter < ' ' || letter > '~') letter = '?';
  return "\"" + text + (name.size() > kShownBytesMax ? "...\"" : "\"");
}

bool is_part(std::string_view name) {
  if (name.empty() || name.size() > kPartBytesMax || name.front() == '.') return false;
  return std::all_of(name.begin(), name.end(), [](char letter) {
    return (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') || (letter >= '0' && letter <= '9') ||
           letter == '.' || letter == '_' || letter == '-';
  });
}

Status check_file(std::string_view file) {
  const std::vector<std::string_view> parts = parts_of(file);
  const bool has_good_parts = parts.size() >= 2 && parts.size() <= static_cast<std::size_t>(kPartsMax) &&
                              std::all_of(parts.begin(), parts.end(), is_part);
  if (!has_good_parts) return Error{shown(file) + " is no name of a run's file"};
  const bool is_of_checkpoint = parts[0] == checkpoint::kDirectory;
  if (is_of_checkpoint && (parts.size() != 3 || !checkpoint::parse_directory_name(parts[1])))
    return Error{shown(file) + " is no name of a checkpoint's file"};
  if (!is_of_checkpoint && parts[0] != "logs" && parts[0] != "errors")
    return Error{shown(file) + " is not below logs/, errors/ or checkpoints/"};
  return {};
}

Status check_checkpoint(std::string_view path) {
  const std::vector<std::string_view> parts = parts_of(path);
  if (parts.size() == 2 && parts[0] == checkpoint::kDirectory && is_part(parts[1]) &&
      checkpoint::parse_directory_name(parts[1]))
    return {};
  return Error{shown(path) + " is no name of a checkpoint"};
}

Status check_taken(std::string_view path) {
  const std::vector<std::string_view> parts = parts_of(path);
  if (parts.size() == 3 && parts[0] == kTakenFolder && is_part(parts[1]) && is_part(parts[2]) &&
      checkpoint::parse_directory_name(parts[2]))
    return {};
  return Error{shown(path) + " is no name of a checkpoint that was taken from another run"};
}

Status check_restorable(std::string_view path) {
  return check_taken(path) ? Status() : check_checkpoint(path);
}

Status check_gettable(std::string_view path) {
  return path == kFilesFolder ? Status() : check_restorable(path);
}

std::string checkpoint_of(std::string_view file) {
  const std::size_t slash = file.rfind('/');
  if (slash == std::string_view::npos || !check_restorable(file.substr(0, slash))) return {};
  return std::string(file.substr(0, slash));
}

std::uint32_t checksum(std::string_view run, std::string_view file, std::int64_t offset, std::string_view bytes) {
  std::array<char, 10> ends{};  // Parts end with a zero, which no name contains.
  for (std::size_t byte = 0; byte < 8; ++byte) ends[byte + 1] = static_cast<char>(offset >> (8 * byte) & 0xff);
  std::uint32_t crc = checkpoint::crc32c(0, bytes_of(run));
  crc = checkpoint::crc32c(crc, bytes_of({ends.data(), 1}));
  crc = checkpoint::crc32c(crc, bytes_of(file));
  crc = checkpoint::crc32c(crc, bytes_of({ends.data(), ends.size()}));
  return checkpoint::crc32c(crc, bytes_of(bytes));
}

}  // namespace sgd::transfer
