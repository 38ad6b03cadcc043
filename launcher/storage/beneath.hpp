#pragma once
// Files below one folder, by names that came over a network. Whatever a name says and whatever links somebody
// has put into the folder, nothing outside of it is opened: every step from the folder's descriptor on
// refuses links and "..", by openat2 where the system has it, else component by component. Blocks; keeps no
// state but descriptors.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.hpp"

namespace sgd::storage {

/// A descriptor that closes once.
class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept;
  Descriptor& operator=(Descriptor&& other) noexcept;
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor();
  [[nodiscard]] int get() const { return fd_; }

 private:
  int fd_;
};

/// A regular file that is open.
class OpenFile {
 public:
  OpenFile(Descriptor fd, std::string name) : fd_(std::move(fd)), name_(std::move(name)) {}

  [[nodiscard]] Result<std::uint64_t> size() const;
  /// After an error, a full disk for example, the first part of `bytes` may be there.
  [[nodiscard]] Status write_at(std::uint64_t offset, std::string_view bytes) const;
  /// The same behind the end of the file. Whole blocks of zeros take no room on the disk: they are left out.
  [[nodiscard]] Status write_behind(std::uint64_t end, std::string_view bytes) const;
  /// Less than `bytes` where the file ends.
  [[nodiscard]] Result<std::string> read_at(std::uint64_t offset, std::size_t bytes) const;
  [[nodiscard]] Status truncate(std::uint64_t bytes) const;
  /// The disk begins to write what was written here, so that a later sync() is short.
  void start_writing(std::uint64_t offset, std::uint64_t bytes) const;
  [[nodiscard]] Status sync() const;

 private:
  Descriptor fd_;
  std::string name_;
};

struct FolderEntry {
  std::string name;
  bool is_folder = false;
  std::uint64_t bytes = 0;
};

class Beneath {
 public:
  /// How names are resolved: kSteps is what happens where openat2 is missing.
  enum class Way { kBest, kSteps };

  /// `folder` itself is trusted.
  [[nodiscard]] static Result<Beneath> open(const std::string& folder, Way way = Way::kBest);

  [[nodiscard]] Result<OpenFile> read(const std::string& name) const;
  /// Created when it is missing, its folders too.
  [[nodiscard]] Result<OpenFile> write(const std::string& name) const;
  /// Regular files and folders, by name; links and the rest are left out. A missing folder is empty; of one that the
  /// disk does not give whole nothing is told. `most`: whoever can write there may have made millions; which of them
  /// are left out is the file system's choice.
  [[nodiscard]] Result<std::vector<FolderEntry>> list(const std::string& folder, std::size_t most) const;
  [[nodiscard]] bool exists(const std::string& name) const;
  /// Both in `folder`; what has the name `to` already is not replaced unless it is an empty folder.
  [[nodiscard]] Status rename(const std::string& folder, const std::string& from, const std::string& to) const;
  [[nodiscard]] Status sync_folder(const std::string& folder) const;
  /// A folder and the files and links in it; folders in it stay, and then the folder does. A missing one is
  /// no error.
  [[nodiscard]] Status remove_folder(const std::string& folder) const;

 private:
  Beneath(Descriptor root, std::string folder, Way way)
      : root_(std::move(root)), folder_(std::move(folder)), way_(way) {}
  [[nodiscard]] Descriptor open_below(const std::string& name, int flags) const;
  [[nodiscard]] Descriptor open_by_steps(const std::string& name, int flags) const;
  [[nodiscard]] Result<std::vector<FolderEntry>> scan(const std::string& folder, std::size_t most,
                                                      bool links_too) const;
  [[nodiscard]] Status make_folders(const std::string& name) const;
  [[nodiscard]] Result<OpenFile> regular(Descriptor fd, const std::string& name) const;
  [[nodiscard]] Error failure(const char* what, const std::string& name) const;

  Descriptor root_;
  std::string folder_;
  Way way_;
};

}  // namespace sgd::storage
