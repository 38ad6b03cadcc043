#include "common/checkpoint/manifest.hpp"

#include <charconv>
#include <set>

#include <fmt/format.h>

#include "common/json/nlohmann.hpp"
#include "common/messages/codec.hpp"

namespace sgd::checkpoint {
namespace {

constexpr int kFormat = 1;
constexpr int kDepthMax = 8;

/// manifest.json as it is written.
struct FileEntry {
  std::string name;
  std::uint64_t bytes = 0;
  std::string crc32c;  ///< Either this one, or the other.
  std::string crc32;
};
struct Entries {
  std::int64_t step = 0;
  int epoch = 0;
  Generation generation = 0;
  int world_size = 0;
  std::vector<FileEntry> files;
};

}  // namespace
}  // namespace sgd::checkpoint

namespace sgd::codec {

template <>
inline constexpr auto kMessage<checkpoint::FileEntry> = message("", required("name", &checkpoint::FileEntry::name),
                                                                required("bytes", &checkpoint::FileEntry::bytes),
                                                                optional("crc32c", &checkpoint::FileEntry::crc32c),
                                                                optional("crc32", &checkpoint::FileEntry::crc32));
template <>
inline constexpr auto kMessage<checkpoint::Entries> = message("", required("step", &checkpoint::Entries::step),
                                                              required("epoch", &checkpoint::Entries::epoch),
                                                              required("generation", &checkpoint::Entries::generation),
                                                              optional("world_size", &checkpoint::Entries::world_size),
                                                              required("files", &checkpoint::Entries::files));

}  // namespace sgd::codec

namespace sgd::checkpoint {
namespace {

template <class Number>
bool parse_digits(std::string_view text, Number& number) {
  for (const char letter : text) {
    if (letter < '0' || letter > '9') return false;
  }
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), number);
  return parsed.ec == std::errc() && parsed.ptr == text.data() + text.size();
}

}  // namespace

const char* name_of(Checksum checksum) {
  return checksum == Checksum::kCrc32c ? "CRC-32C" : "CRC-32";
}

std::string directory_name(std::int64_t step, Generation generation, int number) {
  return fmt::format("step-{:012}-gen-{:04}{}", step, generation, number == 1 ? "" : fmt::format("-{}", number));
}

std::optional<DirectoryName> parse_directory_name(std::string_view name) {
  constexpr std::string_view kStep = "step-";
  constexpr std::string_view kGeneration = "-gen-";
  if (name.substr(0, kStep.size()) != kStep) return std::nullopt;
  const std::size_t middle = name.find(kGeneration);
  if (middle == std::string_view::npos) return std::nullopt;
  DirectoryName parsed;
  std::string_view generation = name.substr(middle + kGeneration.size());
  if (const std::size_t dash = generation.find('-'); dash != std::string_view::npos) {
    if (!parse_digits(generation.substr(dash + 1), parsed.number) || parsed.number < 2) return std::nullopt;
    generation = generation.substr(0, dash);
  }
  if (!parse_digits(name.substr(kStep.size(), middle - kStep.size()), parsed.step) ||
      !parse_digits(generation, parsed.generation))
    return std::nullopt;
  // Leading zeros are part of the name: no two names stand for one checkpoint.
  if (directory_name(parsed.step, parsed.generation, parsed.number) != name) return std::nullopt;
  return parsed;
}

std::string encode(const Manifest& manifest) {
  nlohmann::ordered_json out;
  out["format"] = kFormat;
  out["step"] = manifest.step;
  out["epoch"] = manifest.epoch;
  out["generation"] = manifest.generation;
  out["world_size"] = manifest.world_size;
  out["files"] = nlohmann::ordered_json::array();
  for (const ManifestFile& file : manifest.files) {
    nlohmann::ordered_json entry;
    entry["name"] = file.name;
    entry["bytes"] = file.bytes;
    entry[file.checksum == Checksum::kCrc32c ? "crc32c" : "crc32"] = fmt::format("{:08x}", file.crc);
    out["files"].push_back(std::move(entry));
  }
  return out.dump(2) + "\n";
}

Result<Manifest> parse_manifest(std::string_view text) {
  if (text.size() > kManifestBytesMax) return Error{"the manifest is larger than 1 MiB"};
  const auto bad = [](const Error& error) { return Error{"bad manifest: " + error.message}; };
  const Result<codec::Json> json = codec::parse_object(text, kDepthMax);
  if (!json.ok()) return bad(json.error());
  // A later format may have other fields, so it is looked at before them.
  const auto format = json.value().find("format");
  if (format == json.value().end() || *format != kFormat)
    return Error{"manifest format " + (format == json.value().end() ? "none" : codec::print(*format)) +
                 " is not known"};
  Entries entries;
  const Status read = codec::read_fields(json.value(), entries);
  if (!read.ok()) return bad(read.error());
  if (entries.step < 0 || entries.epoch < 0 || entries.world_size < 0)
    return Error{"a count in the manifest is negative"};
  Manifest manifest{entries.step, entries.epoch, entries.generation, entries.world_size, {}};
  std::set<std::string> names;
  for (const FileEntry& entry : entries.files) {
    ManifestFile file{entry.name, entry.bytes, 0, entry.crc32.empty() ? Checksum::kCrc32c : Checksum::kCrc32};
    if (!entry.crc32.empty() && !entry.crc32c.empty()) return Error{file.name + " has two checksums"};
    const std::string& crc = entry.crc32.empty() ? entry.crc32c : entry.crc32;
    const auto parsed = std::from_chars(crc.data(), crc.data() + crc.size(), file.crc, 16);
    if (parsed.ec != std::errc() || parsed.ptr != crc.data() + crc.size() || crc.size() != 8)
      return Error{fmt::format("{} of {} is no number of 8 hexadecimal digits",
                               entry.crc32.empty() ? "crc32c" : "crc32", file.name)};
    // A name is opened below the checkpoint's directory: it may not lead out of it.
    if (file.name.empty() || file.name.find('/') != std::string::npos || file.name.front() == '.')
      return Error{"\"" + file.name + "\" is no name of a checkpoint's file"};
    if (!names.insert(file.name).second) return Error{file.name + " is listed twice"};
    manifest.files.push_back(std::move(file));
  }
  return manifest;
}

}  // namespace sgd::checkpoint
