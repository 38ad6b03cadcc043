#include "launcher/shipping/found_files.hpp"

#include <algorithm>
#include <filesystem>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "common/job/read_file.hpp"
#include "common/messages/codec.hpp"
#include "launcher/shipping/file_store.hpp"

namespace sgd::shipping {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kErrorsMax = 20;

class Search {
 public:
  Search(FoundFiles& found, const std::string& source, Diagnostics& diagnostics)
      : found_(found), source_(source), diagnostics_(diagnostics) {}

  void add(const std::string& path) {
    std::error_code error;
    const fs::file_status what = fs::status(path, error);
    if (what.type() == fs::file_type::not_found) return fail(path, "is not there" + job::did_you_mean_file(path));
    if (what.type() == fs::file_type::directory) return add_folder(path);
    if (what.type() != fs::file_type::regular)
      return fail(path, error ? "cannot be read: " + error.message() : "is neither a file nor a folder");
    add_file(path);
  }

  void end() {
    if (errors_ > kErrorsMax)
      diagnostics_.error(source_, 0, 0, fmt::format("\"files\": {} more errors like these", errors_ - kErrorsMax));
  }

 private:
  void fail(const std::string& path, const std::string& why) {
    if (++errors_ <= kErrorsMax) diagnostics_.error(source_, 0, 0, fmt::format("\"files\": {} {}", path, why));
  }

  bool is_too_many(const std::string& path) {
    if (found_.set.files.size() < FileSet::kFilesMax) return false;
    if (!std::exchange(was_too_many_, true))
      fail(path, fmt::format("is one too many: a job brings at most {} files; put data where the nodes have it",
                             FileSet::kFilesMax));
    return true;
  }

  void add_folder(const std::string& folder) {
    std::error_code error;
    const fs::path root = fs::canonical(folder, error);
    fs::recursive_directory_iterator entry(folder, error);
    if (error) return fail(folder, "cannot be read: " + error.message());
    for (; entry != fs::recursive_directory_iterator(); entry.increment(error)) {
      if (error) return fail(folder, "cannot be read: " + error.message());
      const std::string path = entry->path().string();
      const fs::file_type type = entry->symlink_status(error).type();
      if (type == fs::file_type::directory) continue;
      if (is_too_many(path)) return;
      if (type == fs::file_type::symlink) {
        add_link(path, root);
      } else if (type != fs::file_type::regular) {
        fail(path, "is no file, and cannot travel");
      } else {
        add_file(path);
      }
    }
    if (error) fail(folder, "cannot be read: " + error.message());
  }

  void add_link(const std::string& path, const fs::path& root) {
    std::error_code error;
    const fs::path target = fs::canonical(path, error);
    if (error) return fail(path, "is a link that leads nowhere");
    const fs::path inside = target.lexically_relative(root);
    if (inside.empty() || *inside.begin() == "..")
      return fail(
          path, fmt::format("is a link that leads out of its folder, to {}: name that in \"files\"", target.string()));
    if (!fs::is_regular_file(target, error)) return fail(path, "is a link to something else than a file");
    add_file(path);
  }

  void add_file(const std::string& path) {
    if (is_too_many(path)) return;
    if (const std::string fault = fault_of_path(path); !fault.empty()) return fail(path, fault);
    if (nlohmann::json::parse(codec::print(path)) != path) return fail(path, "has a name that is no UTF-8 text");
    // A folder and a file in it may both be named.
    if (!seen_.insert(path).second) return;
    std::error_code error;
    const std::string place = fs::canonical(path, error).string();
    const auto hash = error ? Result<std::string>(Error{error.message()}) : sha256_of_file(place);
    if (!hash) return fail(path, "cannot be read: " + hash.error().message);
    const std::uint64_t bytes = fs::file_size(place, error);
    found_.set.files.push_back({path, static_cast<std::int64_t>(bytes), hash.value()});
    found_.sources.emplace(hash.value(), place);
  }

  FoundFiles& found_;
  const std::string& source_;
  Diagnostics& diagnostics_;
  std::set<std::string> seen_;
  std::size_t errors_ = 0;
  bool was_too_many_ = false;
};

}  // namespace

FoundFiles find_files(const std::vector<std::string>& paths, const std::string& source, Diagnostics& diagnostics) {
  FoundFiles found;
  Search search(found, source, diagnostics);
  for (const std::string& path : paths) search.add(path);
  search.end();
  if (found.set.files.empty() && !diagnostics.has_errors())
    diagnostics.error(source, 0, 0, "\"files\": there is no file in what they name");
  std::sort(found.set.files.begin(), found.set.files.end(),
            [](const ShippedFile& a, const ShippedFile& b) { return a.path < b.path; });
  found.text = encode(found.set);
  found.sha256 = sha256_of(found.text);
  if (found.text.size() > FileSet::kTextBytesMax)
    diagnostics.error(source, 0, 0, "\"files\": their paths are too long together");
  return found;
}

void check_files(const std::vector<std::string>& paths, const std::string& source, Diagnostics& diagnostics) {
  std::error_code error;
  for (const std::string& path : paths)
    if (!fs::exists(path, error))
      diagnostics.error(source, 0, 0, fmt::format("\"files\": {} is not there{}", path, job::did_you_mean_file(path)));
}

}  // namespace sgd::shipping
