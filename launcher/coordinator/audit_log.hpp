#pragma once
// Who has asked for what that changes something: `audit.jsonl` in the state folder. When it is large it becomes
// `audit.jsonl.1`, that one `audit.jsonl.2`, and so on; the oldest one goes, so that nobody fills the disk by asking.
// One line an action:
//   {"time":S,"who":"eva","certificate":SERIAL,"peer":"10.0.0.2:41822","action":"stop","run":R,"refused":WHY}
// Submissions, stops, resumptions, orders to nodes, also those that are refused; who reads the logs or the job of a run
// that is not its own; tokens made and revoked, members that join and are revoked ("process P" is a verb on this
// machine). "who" is "anybody" in plain text over TCP (--insecure-loopback). "refused" stands only where it was; "uid"
// where the kernel has said who it is, over a Unix socket. Who has become a member is in `issued.jsonl` beside it.

#include <functional>
#include <memory>
#include <string>

#include <boost/asio/io_context.hpp>

#include "common/base/result.hpp"
#include "common/json/nlohmann.hpp"
#include "launcher/coordinator/requester.hpp"
#include "launcher/storage/file_thread.hpp"
#include "launcher/storage/line_file.hpp"

namespace sgd::coordinator {

class AuditLog {
 public:
  using Json = nlohmann::ordered_json;

  static constexpr std::int64_t kFileBytesMax = 16 << 20;  ///< Then a new file is begun.
  static constexpr int kFilesMax = 16;                     ///< With the one that is written.

  static constexpr std::size_t kLinesMax = 8192;  ///< That wait for the disk.

  std::int64_t file_bytes_max = kFileBytesMax;
  std::size_t lines_max = kLinesMax;

  /// `on_trouble` is told when a line cannot be written: the action has happened all the same.
  explicit AuditLog(std::function<void(const std::string& message)> on_trouble) : on_trouble_(std::move(on_trouble)) {}

  ~AuditLog();
  AuditLog(const AuditLog&) = delete;
  AuditLog& operator=(const AuditLog&) = delete;

  /// Lines are written by a thread from here on: the disk holds up nobody. `io` must outlive this.
  void write_beside(boost::asio::io_context& io) { files_ = std::make_unique<storage::FileThread>(io); }
  /// What is wrong with lines of the newest file, in words for the log; empty: nothing.
  [[nodiscard]] static std::string damage_in(const std::string& state_dir);
  /// Before add(). Creates the file if it is missing.
  [[nodiscard]] Status open(const std::string& state_dir);
  /// `about`: further keys, as the run.
  void add(const Requester& who, const std::string& action, const Json& about, const std::string& refused = {});

 private:
  [[nodiscard]] Status reopen();
  [[nodiscard]] Status rotate();

  std::function<void(const std::string& message)> on_trouble_;
  std::string path_;
  std::shared_ptr<storage::LineFile> file_;
  std::unique_ptr<storage::FileThread> files_;
  bool is_full_ = false;           ///< Too many lines wait; said already.
  std::uint64_t file_number_ = 0;  ///< Of file_, on its disk: verbs of this machine may have begun another one.
};

}  // namespace sgd::coordinator
