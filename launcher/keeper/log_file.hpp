#pragma once
// A file that a rank's output is appended to, every byte: a slow disk holds the writer back. Only a disk that refuses
// bytes loses any, counted. Programs that make their own folder anew take it for one of theirs: a file that was removed
// is made again, with what was in it; where that cannot be, all of it counts as lost.
//
//   in place --its path leads elsewhere--> away --kRestoreAfter, or the rank's end--> copied, in place
//                                                   '--it cannot be made, kRestoresMax times--> given up

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "common/base/result.hpp"
#include "common/base/time.hpp"
#include "common/messages/keeper.hpp"
#include "launcher/process/unique_fd.hpp"

namespace sgd::keeper {

[[nodiscard]] std::int64_t count_lines(std::string_view bytes);

class LogFile {
 public:
  static constexpr Duration kLookInterval = std::chrono::milliseconds(200);
  /// Who has removed its folder may be about to make that anew, and would find it there already.
  static constexpr Duration kRestoreAfter = std::chrono::seconds(1);
  /// Attempts to make it again.
  static constexpr int kRestoresMax = 16;
  /// A longer one is not copied: its rank waits meanwhile.
  static constexpr std::int64_t kRestoredBytesMax = 256 << 20;

  /// None: what is written goes nowhere.
  LogFile() = default;
  /// Opens it for appending, with its folders.
  [[nodiscard]] static Result<LogFile> open(const std::string& path);

  [[nodiscard]] explicit operator bool() const { return static_cast<bool>(file_); }
  void write(std::string_view bytes);
  /// Now and then: whether it is where it was, and has what was written. Not for one that others write to, too.
  void look(TimePoint now);
  /// The same when nothing more is written.
  void look_last();
  /// What is to be told now: that bytes are lost, when it begins, and how many they were, when it ends.
  [[nodiscard]] std::optional<OutputDropped> take_news(Rank rank);
  /// The rest of what is lost.
  [[nodiscard]] std::optional<OutputDropped> take_dropped(Rank rank);

 private:
  [[nodiscard]] bool is_in_place() const;
  void note_cut();
  [[nodiscard]] Status restore();
  void try_to_restore();
  void lose(std::int64_t bytes, std::string why);

  std::string path_;
  process::UniqueFd file_;
  std::int64_t size_ = 0;  ///< It has so many bytes, unless somebody has cut it.
  dev_t device_ = 0;       ///< With inode_ it is known again.
  ino_t inode_ = 0;
  bool is_looked_at_ = false;  ///< It is a file on a disk.
  bool is_given_up_ = false;   ///< What is written is lost.
  int restores_ = 0;
  TimePoint look_at_{};
  std::optional<TimePoint> away_since_;
  std::int64_t lines_ = 0;  ///< Lost and not told.
  std::int64_t bytes_ = 0;
  std::string error_;     ///< Why, the last time; told with them.
  bool refuses_ = false;  ///< The last bytes did not go.
  bool has_news_ = false;
};

}  // namespace sgd::keeper
