#pragma once
// Paths of many files in little memory: the name of a folder once, names of files one behind the other. A million
// photographs take some 40 MB.

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/assert.hpp"

namespace sgd::data {

class FileNames {
 public:
  /// Files that are added from now on lie in this folder.
  void enter(std::string folder) { folders_.push_back(std::move(folder)); }
  void add(std::string_view name) {
    SGD_ASSERT(!folders_.empty());
    entries_.push_back({names_.size(), static_cast<std::uint32_t>(folders_.size() - 1)});
    names_ += name;
  }

  [[nodiscard]] std::int64_t count() const { return static_cast<std::int64_t>(entries_.size()); }
  [[nodiscard]] std::string path(std::int64_t index) const {
    SGD_ASSERT(index >= 0 && index < count());
    const auto at = static_cast<std::size_t>(index);
    const std::size_t end = at + 1 < entries_.size() ? entries_[at + 1].name : names_.size();
    std::string path = folders_[entries_[at].folder];
    path += '/';
    path.append(names_, entries_[at].name, end - entries_[at].name);
    return path;
  }

 private:
  struct Entry {
    std::uint64_t name;  ///< Where it begins; it ends where the next begins.
    std::uint32_t folder;
  };
  std::vector<std::string> folders_;
  std::string names_;
  std::vector<Entry> entries_;
};

}  // namespace sgd::data
