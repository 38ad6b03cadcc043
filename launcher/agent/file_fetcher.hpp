#pragma once
// Gets what this node lacks, checkpoints or the files of jobs, one after the other: asks what it consists of, asks for
// its bytes as far as the window goes, and has it proven by its manifest. What has come stays over a lost connection
// and over the end of this process. Has no deadline of its own while the coordinator cannot be reached: a rank that
// waits here is watched, and a checkpoint is not given up for a network that is down.

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launcher/agent/file_link.hpp"
#include "launcher/storage/file_thread.hpp"
#include "launcher/storage/incoming.hpp"

namespace sgd::agent {

class FileFetcher {
 public:
  /// Times that damaged bytes are asked for again, and that a whole checkpoint is.
  static constexpr int kDamagedChunksMax = 1000;
  static constexpr int kAttemptsMax = 2;
  /// Questions without an answer; the coordinator takes so many, and more.
  static constexpr int kAskedMax = 256;

  struct Fetched {
    std::string error;        ///< Empty: it is here, whole.
    bool is_missing = false;  ///< Nobody has it whole; else this node, or the way to it, is in trouble.
  };
  struct Handlers {
    std::function<void(std::int64_t bytes)> on_bytes;        ///< That have come so far, here or at the coordinator.
    std::function<void(const Fetched& fetched)> on_fetched;  ///< Last.
  };

  /// All of them must outlive it.
  FileFetcher(storage::FileThread& thread, FileLink& link) : thread_(thread), link_(link) {}

  /// `path` is "checkpoints/step-..." or "files"; `files` is where it is put together.
  void fetch(const RunId& run, const std::string& path, std::shared_ptr<storage::Incoming> files, Handlers handlers);
  /// Fetches of the run end without a word.
  void forget(const RunId& run);

  void on_open();
  void on(const transfer::Listing& listing);
  void on(const transfer::Pending& pending);
  /// False: it is not about what is fetched.
  [[nodiscard]] bool on(const transfer::Refused& refused);
  void on(const transfer::Data& data, std::string bytes);

 private:
  struct Part {
    transfer::ListedFile file;
    std::int64_t asked = 0;    ///< Bytes that were asked for.
    std::int64_t written = 0;  ///< Bytes that are here, or on the thread.
  };
  struct Fetch {
    RunId run;
    std::string path;
    std::shared_ptr<storage::Incoming> files;
    std::vector<Handlers> handlers;
    std::vector<Part> parts;     ///< Empty: the listing has not come.
    std::int64_t in_flight = 0;  ///< Bytes asked for that have not come,
    int unanswered = 0;          ///< and in how many questions.
    int damaged = 0;
    int attempts = 0;
    bool is_finishing = false;
    std::uint64_t number = 0;  ///< Tells what the thread answers to one fetch from another.
  };

  void begin();
  void ask_more();
  void on_written(std::uint64_t number, const storage::Held& held, std::int64_t expected);
  void finish();
  void end(const Fetched& fetched);
  [[nodiscard]] bool is_current(const RunId& run, const std::string& path) const;

  storage::FileThread& thread_;
  FileLink& link_;
  std::deque<Fetch> queue_;  ///< The first one is in work.
  std::uint64_t next_number_ = 1;
};

}  // namespace sgd::agent
