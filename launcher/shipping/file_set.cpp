#include "launcher/shipping/file_set.hpp"

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "common/json/lenient.hpp"
#include "common/messages/codec.hpp"
#include "common/messages/transfer.hpp"

namespace sgd::shipping {
namespace {

constexpr int kFormat = 1;
constexpr int kDepthMax = 4;

}  // namespace
}  // namespace sgd::shipping

namespace sgd::codec {

template <>
inline constexpr auto kMessage<shipping::ShippedFile> = message("", required("path", &shipping::ShippedFile::path),
                                                                required("bytes", &shipping::ShippedFile::bytes),
                                                                required("sha256", &shipping::ShippedFile::sha256));
template <>
inline constexpr auto kMessage<shipping::FileSet> = message("", required("files", &shipping::FileSet::files));

}  // namespace sgd::codec

namespace sgd::shipping {
namespace {

std::string fault_of(const FileSet& set) {
  if (set.files.empty() || set.files.size() > FileSet::kFilesMax)
    return fmt::format("it names {} files; at most {}", set.files.size(), FileSet::kFilesMax);
  std::set<std::string_view> paths;
  for (const ShippedFile& file : set.files) {
    const std::string fault = fault_of_path(file.path);
    if (!fault.empty()) return fmt::format("{} {}", transfer::shown(file.path), fault);
    if (!is_sha256(file.sha256)) return fmt::format("the hash of {} is none", transfer::shown(file.path));
    if (file.bytes < 0) return fmt::format("{} has less than no bytes", transfer::shown(file.path));
    if (!paths.insert(file.path).second) return fmt::format("{} is there twice", transfer::shown(file.path));
  }
  for (const std::string_view path : paths)
    for (std::size_t slash = path.rfind('/'); slash > 0; slash = path.rfind('/', slash - 1))
      if (paths.contains(path.substr(0, slash)))
        return fmt::format("{} is a file, and a folder of another", transfer::shown(path.substr(0, slash)));
  return {};
}

/// `path` is `folder`, or in it.
bool is_in(std::string_view path, std::string_view folder) {
  return path == folder || (path.starts_with(folder) && (folder == "/" || path[folder.size()] == '/'));
}

void move_paths(nlohmann::json& value, const std::vector<std::string>& files, const std::string& folder) {
  if (value.is_string()) {
    const auto& text = value.get_ref<const std::string&>();
    if (std::any_of(files.begin(), files.end(), [&](const std::string& file) { return is_in(text, file); }))
      value = folder + text;
  } else if (value.is_structured()) {
    for (nlohmann::json& each : value) move_paths(each, files, folder);
  }
}

}  // namespace

std::string encode(const FileSet& set) {
  nlohmann::json out = codec::write(set);
  out["format"] = kFormat;
  return codec::print(out);
}

Result<FileSet> parse_file_set(std::string_view text) {
  const auto bad = [](const std::string& why) { return Error{"the list of the job's files is wrong: " + why}; };
  if (text.size() > FileSet::kTextBytesMax) return bad(fmt::format("it has {} bytes", text.size()));
  const Result<codec::Json> json = codec::parse_object(text, kDepthMax);
  if (!json) return bad(json.error().message);
  if (read_or(json.value(), "format", 0) != kFormat) return bad("its format is not known here");
  FileSet set;
  if (const Status read = codec::read_fields(json.value(), set); !read) return bad(read.error().message);
  const std::string fault = fault_of(set);
  if (!fault.empty()) return bad(fault);
  return set;
}

std::string fault_of_path(std::string_view path) {
  if (path.size() > FileSet::kPathBytesMax)
    return fmt::format("is a path of {} bytes; at most {}", path.size(), FileSet::kPathBytesMax);
  if (!path.starts_with('/')) return "is no whole path";
  if (path.find('\0') != std::string_view::npos) return "has a zero in it";
  for (std::size_t begin = 1; begin <= path.size();) {
    const std::size_t end = std::min(path.find('/', begin), path.size());
    const std::string_view name = path.substr(begin, end - begin);
    if (name.empty() || name == "." || name == "..") return "does not only lead down";
    if (name.size() > FileSet::kNameBytesMax)
      return fmt::format("has a name of {} bytes in it; at most {}", name.size(), FileSet::kNameBytesMax);
    begin = end + 1;
  }
  return {};
}

bool is_sha256(std::string_view text) {
  return text.size() == 64 && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

/// Files of equal bytes count once.
std::int64_t bytes_of(const FileSet& set) {
  std::set<std::string_view> seen;
  std::int64_t bytes = 0;
  for (const ShippedFile& file : set.files)
    if (seen.insert(file.sha256).second) bytes += std::min(file.bytes, INT64_MAX - bytes);
  return bytes;
}

nlohmann::json with_files_below(nlohmann::json job, const std::string& folder) {
  const nlohmann::json& named = member(job, "files");
  if (!named.is_array()) return job;
  std::vector<std::string> files;
  for (const nlohmann::json& file : named)
    if (file.is_string()) files.push_back(file.get<std::string>());
  const std::string workdir = read_or(job, "workdir", "");
  for (auto& [key, value] : job.items())
    if (key != "files" && key != "name") move_paths(value, files, folder);
  const auto is_inside = [&](const std::string& file) { return is_in(file, workdir); };
  if (!workdir.empty() && std::any_of(files.begin(), files.end(), is_inside)) job["workdir"] = folder + workdir;
  return job;
}

}  // namespace sgd::shipping
