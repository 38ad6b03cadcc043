#pragma once
// A run's files out of a store, by links.
//
//   coordinator:  store of the owner ── keep_with_run ──> RUN/files/<hash>..., manifest.json      the run's, as long as
//   it is node:         fetcher ── RunTree::append ──> the node's store ── finish ──> FOLDER/home/ada/job/train.py
//
// A folder is made under another name, and has its own when everything is in it.

#include <memory>
#include <optional>
#include <string>

#include "common/base/result.hpp"
#include "launcher/shipping/file_set.hpp"
#include "launcher/shipping/file_store.hpp"
#include "launcher/storage/file_owner.hpp"
#include "launcher/storage/incoming.hpp"

namespace sgd::shipping {

/// What the set with the hash `sha256` names becomes files of the run in `run_dir`, on the disk. Error with code
/// ENOENT: some of it is not in the store (any more).
[[nodiscard]] Status keep_with_run(const FileStore& store, const std::string& sha256, const std::string& run_dir);
/// The same of what another run has, if it has any.
[[nodiscard]] Status keep_with_run_as(const std::string& other_run_dir, const std::string& run_dir);

/// Of one run on one node: what comes goes into the store; at the end there is `folder`, in which each file has its
/// whole path. Folders in it are the owner's, who may write beside the files; those are read-only, and were proven.
class RunTree : public storage::Incoming {
 public:
  RunTree(std::shared_ptr<FileStore> store, std::string folder, std::optional<storage::FileOwner> owner)
      : store_(std::move(store)), folder_(std::move(folder)), owner_(owner) {}

  [[nodiscard]] storage::Held held(const std::string& file) const override;
  [[nodiscard]] storage::Held append(const std::string& file, std::uint64_t offset, std::string_view bytes) override;
  [[nodiscard]] bool is_stored(const std::string& path) const override;
  [[nodiscard]] Status finish(const std::string& path) override;

 private:
  [[nodiscard]] Status plant(const FileSet& set) const;

  std::shared_ptr<FileStore> store_;
  std::string folder_;
  std::optional<storage::FileOwner> owner_;
  std::string text_;  ///< The set's, as far as it has come.
};

/// What a folder's name ends with until everything is in it.
inline constexpr const char* kHalf = ".half";

}  // namespace sgd::shipping
