#include "common/checkpoint/scan.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <tuple>
#include <vector>

#include <fmt/format.h>

#include "common/checkpoint/crc32c.hpp"
#include "common/json/json_file.hpp"

namespace sgd::checkpoint {
namespace {

namespace fs = std::filesystem;

Result<std::string> manifest_text(const std::string& path) {
  std::error_code error;
  const std::uintmax_t bytes = fs::file_size(path, error);
  if (error == std::errc::no_such_file_or_directory) return Error{path + " is missing: the checkpoint is incomplete"};
  if (error) return Error{fmt::format("{}: {}", path, error.message()), error.value()};
  if (bytes > kManifestBytesMax) return Error{fmt::format("{} is larger than 1 MiB", path)};
  return json::text_of_file(path);
}

Result<std::uint32_t> checksum_of(const std::string& path, Checksum checksum) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return system_error("cannot open " + path);
  std::vector<char> buffer(1 << 20);
  std::uint32_t crc = 0;
  while (file) {
    file.read(buffer.data(), static_cast<std::streamsize>(buffer.size()));
    const auto bytes = std::as_bytes(std::span(buffer.data(), static_cast<std::size_t>(file.gcount())));
    crc = checksum == Checksum::kCrc32c ? crc32c(crc, bytes) : crc32(crc, bytes);
  }
  if (!file.eof()) return system_error("cannot read " + path);
  return crc;
}

Status verify_file(const std::string& dir, const ManifestFile& file, Proof proof) {
  const std::string path = (fs::path(dir) / file.name).string();
  std::error_code error;
  const std::uintmax_t bytes = fs::file_size(path, error);
  if (error) return Error{fmt::format("{}: {}", path, error.message()), error.value()};
  if (bytes != file.bytes) {
    return Error{fmt::format("{} has {} bytes, its manifest says {}", path, bytes, file.bytes)};
  }
  if (proof == Proof::kSizes) return {};
  const Result<std::uint32_t> crc = checksum_of(path, file.checksum);
  if (!crc.ok()) return crc.error();
  if (crc.value() != file.crc) {
    return Error{fmt::format("{} is damaged: its {} is {:08x}, its manifest says {:08x}", path, name_of(file.checksum),
                             crc.value(), file.crc)};
  }
  return {};
}

}  // namespace

Result<Manifest> read_manifest(const std::string& dir) {
  const std::string path = (fs::path(dir) / kManifestFile).string();
  const Result<std::string> text = manifest_text(path);
  if (!text.ok()) return text.error();
  Result<Manifest> manifest = parse_manifest(text.value());
  if (!manifest.ok()) return Error{fmt::format("{}: {}", path, manifest.error().message)};
  return manifest;
}

Result<Manifest> verify(const std::string& dir, Proof proof) {
  Result<Manifest> manifest = read_manifest(dir);
  if (!manifest.ok()) return manifest;
  for (const ManifestFile& file : manifest.value().files) {
    const Status status = verify_file(dir, file, proof);
    if (!status.ok()) return status.error();
  }
  return manifest;
}

Result<std::vector<Found>> list_checkpoints(const std::string& dir, Proof proof) {
  std::vector<Found> found;
  std::error_code error;
  fs::directory_iterator entries(dir, error);
  if (error == std::errc::no_such_file_or_directory) return found;
  for (; !error && entries != fs::directory_iterator(); entries.increment(error)) {
    const auto name = parse_directory_name(entries->path().filename().string());
    if (!name) continue;
    const std::string path = entries->path().string();
    const Result<Manifest> manifest = verify(path, proof);
    std::string damage = manifest.ok() ? "" : manifest.error().message;
    if (manifest.ok() && (manifest.value().step != name->step || manifest.value().generation != name->generation)) {
      damage = path + " has the manifest of another checkpoint";
    }
    found.push_back({path, *name, std::move(damage)});
  }
  if (error) return Error{fmt::format("cannot list {}: {}", dir, error.message()), error.value()};
  std::sort(found.begin(), found.end(), [](const Found& a, const Found& b) { return a.name > b.name; });
  return found;
}

}  // namespace sgd::checkpoint
