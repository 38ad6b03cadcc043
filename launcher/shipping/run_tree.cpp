#include "launcher/shipping/run_tree.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <set>

#include <fmt/format.h>

#include "common/messages/transfer.hpp"
#include "launcher/storage/remove_tree.hpp"
#include "launcher/storage/sync_names.hpp"

namespace sgd::shipping {
namespace {

namespace fs = std::filesystem;

/// "files/ab12...": the part behind the slash.
std::string name_of(const std::string& file) {
  return file.substr(file.rfind('/') + 1);
}

Status make_folder(const std::string& folder) {
  // Whatever the umask is.
  if (::mkdir(folder.c_str(), 0700) == 0) return {};
  return errno == EEXIST ? Status() : Status(system_error("cannot create " + folder));
}

/// All that is missing between `root`, which is there, and the file `root` + `path`.
Status make_folders(const std::string& root, const std::string& path, std::set<std::string>& made) {
  for (std::size_t slash = path.find('/', 1); slash != std::string::npos; slash = path.find('/', slash + 1)) {
    const std::string folder = root + path.substr(0, slash);
    if (!made.insert(folder).second) continue;
    if (const Status one = make_folder(folder); !one) return one;
  }
  return {};
}

Status take_name(const std::string& half, const std::string& folder) {
  if (::rename(half.c_str(), folder.c_str()) != 0) return system_error("cannot rename " + half);
  return {};
}

}  // namespace

Status keep_with_run(const FileStore& store, const std::string& sha256, const std::string& run_dir) {
  const auto text = store.read(sha256, FileSet::kTextBytesMax);
  if (!text) return text.error();
  const auto set = parse_file_set(text.value());
  if (!set) return set.error();
  const std::string folder = fmt::format("{}/{}", run_dir, transfer::kFilesFolder);
  const std::string half = folder + kHalf;
  if (const Status made = make_folder(half); !made) return made;
  std::set<std::string> kept;
  for (const ShippedFile& file : set.value().files) {
    if (!store.has(file.sha256, file.bytes))
      return Error{fmt::format("the bytes of {} are not here (any more)", file.path), ENOENT};
    if (!kept.insert(file.sha256).second) continue;
    if (const Status linked = store.link(file.sha256, half + "/" + file.sha256); !linked) return linked;
  }
  if (const Status linked = store.link(sha256, half + "/" + kSetFile); !linked) return linked;
  if (const Status named = take_name(half, folder); !named) return named;
  if (const Status synced = storage::sync_names(folder); !synced) return synced;
  return storage::sync_path(fs::path(run_dir).parent_path().string());  // The run's folder is new.
}

Status keep_with_run_as(const std::string& other_run_dir, const std::string& run_dir) {
  const fs::path from = fs::path(other_run_dir) / transfer::kFilesFolder;
  const fs::path to = fs::path(run_dir) / transfer::kFilesFolder;
  std::error_code error;
  if (!fs::exists(from, error)) return {};
  fs::copy(from, to, fs::copy_options::recursive | fs::copy_options::create_hard_links, error);
  if (error)
    return Error{fmt::format("cannot take the files of {}: {}", other_run_dir, error.message()), error.value()};
  return storage::sync_names(to.string());
}

// ---- on a node ----

storage::Held RunTree::held(const std::string& file) const {
  const std::string name = name_of(file);
  if (is_sha256(name)) return store_->held(name);
  storage::Held held;
  if (name == kSetFile)
    held.bytes = text_.size();
  else
    held.error = name + " is no file of a job";
  return held;
}

storage::Held RunTree::append(const std::string& file, std::uint64_t offset, std::string_view bytes) {
  const std::string name = name_of(file);
  if (is_sha256(name)) return store_->append(name, offset, bytes);
  storage::Held held = this->held(file);
  held.is_gap = offset > held.bytes;
  if (!held.error.empty() || held.is_gap || offset + bytes.size() <= held.bytes) return held;
  if (offset + bytes.size() > FileSet::kTextBytesMax) {
    held.error = "the list of the job's files is too long";
    return held;
  }
  held.added = offset + bytes.size() - held.bytes;
  text_ += bytes.substr(held.bytes - offset);
  held.bytes = text_.size();
  return held;
}

bool RunTree::is_stored(const std::string&) const {
  struct stat info {};
  return ::lstat(folder_.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

/// All that is damaged is found at once, so that one more attempt is enough.
Status RunTree::finish(const std::string& path) {
  if (is_stored(path)) return {};
  const auto set = parse_file_set(std::exchange(text_, {}));
  if (!set) return set.error();
  Status proven;
  std::set<std::string> seen;
  for (const ShippedFile& file : set.value().files) {
    if (!seen.insert(file.sha256).second) continue;
    if (const Status one = store_->prove(file.sha256); !one && proven.ok()) proven = one;
  }
  return proven.ok() ? plant(set.value()) : proven;
}

/// Nobody else gets into the folder before it is complete.
Status RunTree::plant(const FileSet& set) const {
  const std::string half = folder_ + kHalf;
  if (const std::error_code left = storage::remove_tree(half); left)
    return Error{fmt::format("cannot remove {}: {}", half, left.message()), left.value()};
  if (const Status made = make_folder(half); !made) return made;
  std::set<std::string> folders;
  for (const ShippedFile& file : set.files) {
    if (const Status made = make_folders(half, file.path, folders); !made) return made;
    if (!store_->has(file.sha256, file.bytes))
      return Error{fmt::format("{} has not so many bytes as the list of the job's files says", file.path)};
    if (const Status linked = store_->link(file.sha256, half + file.path); !linked) return linked;
  }
  folders.insert(half);  // As the first of them; it is given away last.
  for (auto folder = folders.rbegin(); folder != folders.rend(); ++folder)
    if (owner_ && ::lchown(folder->c_str(), owner_->uid, owner_->gid) != 0)
      return system_error("cannot give " + *folder + " to its owner");
  return take_name(half, folder_);
}

}  // namespace sgd::shipping
