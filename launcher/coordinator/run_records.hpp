#pragma once
// What one run leaves behind: its records on their way to the run directory and to whoever watches. With a store no
// line is lost or doubled: records that are made again after a restart are skipped as far as they are in the files
// already, and what cannot be written (a full disk) waits and is tried again. What is too much even for that is left to
// the next restart, which makes it from the store. Without a store it is dropped, and said once.
//
//   event, metrics, admitted, finish ──> waiting ──all that waits──> Disk (a thread) ──written──> observer
//                                           ^                             └── an error: told at once, tried again by
//                                           retry() └── a disk that hangs: as long as it does; unanswered_for() says
//                                           how long

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/time.hpp"
#include "launcher/core/coordinator_io.hpp"
#include "launcher/storage/run_directory.hpp"

namespace sgd::coordinator {

struct RunObserver {
  std::function<void(const nlohmann::ordered_json& event)> on_event;      ///< As written to events.jsonl.
  std::function<void(const nlohmann::ordered_json& metrics)> on_metrics;  ///< As written to metrics.jsonl.
  std::function<void(std::string message)> on_warning;
  std::function<void(const std::vector<std::string>& paths)>
      on_keep;                                                       ///< Of its checkpoints these count. May be absent.
  std::function<void(const core::RunOutcome& outcome)> on_finished;  ///< summary.json is written.
  /// Its files may still grow then: until CoordinatorShell::settle() a restart tells its end again.
  bool is_settled_later = false;
};

class RunRecords {
 public:
  static constexpr std::size_t kWaitingMax = 50'000;
  /// A disk that has not answered for so long is said.
  static constexpr Duration kPatience = std::chrono::seconds(5);

  /// Carries out `work`, then `done` in the event loop, in the order in which it was asked.
  using Disk = std::function<void(std::function<void()> work, std::function<void()> done)>;

  /// Without a `directory` nothing is written. `has_store`: all records can be made again. Without a `disk` records are
  /// written at once.
  RunRecords(std::shared_ptr<storage::RunDirectory> directory, RunObserver observer, bool has_store, Disk disk = {});
  ~RunRecords();
  RunRecords(const RunRecords&) = delete;
  RunRecords& operator=(const RunRecords&) = delete;

  /// Something was written, or could not be: never within a call of this. May be absent.
  std::function<void()> on_change;

  /// The next so many records are in the files.
  void skip(const storage::LineCounts& there) { skip_ = there; }
  /// All stored events are replayed. Lines that nothing was stored for: there should be none.
  [[nodiscard]] storage::LineCounts end_skipping();

  /// `after`: of stored events, up to which all that follows was given here before.
  void event(const nlohmann::ordered_json& event, std::uint64_t after = 0);
  void metrics(const nlohmann::ordered_json& metrics, std::uint64_t after = 0);
  void best(const nlohmann::ordered_json& best, std::uint64_t after = 0);
  void finish(const core::RunOutcome& outcome, std::uint64_t after = 0);
  /// After finish(), here or in an earlier process: the run goes on, in another life. Who was not told of that end yet
  /// is not any more.
  void begin_again(std::uint64_t after = 0);
  /// Of an end that was told: its files are whole. Of another one it says nothing.
  void settle();
  /// After finish(): another outcome stands in its place.
  void rewrite_summary(const core::RunOutcome& outcome);
  void change_job(const nlohmann::json& job, std::uint64_t after = 0);
  /// At once: whoever made it may take it away.
  void take_checkpoint(const std::string& from, const std::string& to);
  /// Another file's lines, in their turn.
  void add(std::function<Status()> write, std::uint64_t after = 0);
  void keep_checkpoints(const std::vector<std::string>& paths);
  void spare_checkpoints(const std::vector<std::string>& paths);
  void warn(const std::string& message);

  /// Something could not be written, and is to be tried again.
  [[nodiscard]] bool waits() const { return is_troubled_ && !waiting_.empty(); }
  /// Lines will be missing in the files until the next start.
  [[nodiscard]] bool leaves_out() const { return leaves_out_; }
  /// Everything that follows from events up to this one is written; nothing: everything is.
  [[nodiscard]] std::optional<std::uint64_t> written_up_to() const;
  void retry();
  /// It has ended, and everything is written.
  [[nodiscard]] bool is_complete() const { return is_finished_ && is_written() && !leaves_out_; }
  /// It has ended, and nobody was told yet: its summary is on its way to the disk.
  [[nodiscard]] bool is_ending() const { return is_finished_ && !is_finish_told_; }
  /// It has ended, and is not settled: the events behind this one tell its end again. Nothing: it need not be.
  [[nodiscard]] std::optional<std::uint64_t> unsettled_after() const { return unsettled_after_; }
  /// How long the disk has been at work on what was given to it last; zero: on nothing.
  [[nodiscard]] Duration unanswered_for(TimePoint now) const;
  /// Says once that the disk does not answer, and that it does again.
  void watch(TimePoint now);

 private:
  struct Record {
    std::function<Status()> write;
    std::function<void()> tell;  ///< The observer; empty: it was told.
    std::uint64_t after = 0;
  };
  struct Batch;
  [[nodiscard]] bool is_written() const { return waiting_.empty() && !in_work_; }
  void add(Record record);
  void write();
  void on_done(Batch& batch);
  void on_trouble(const std::string& message);
  void tell_all();
  void give_up();

  std::shared_ptr<storage::RunDirectory> directory_;  ///< The disk's thread may still hold it.
  RunObserver observer_;
  bool has_store_;
  Disk disk_;
  storage::LineCounts skip_;
  std::deque<Record> waiting_;
  std::shared_ptr<Batch> in_work_;
  bool leaves_out_ = false;   ///< Nothing is written any more in this process.
  bool is_troubled_ = false;  ///< Said already.
  bool is_hanging_ = false;   ///< Said already.
  bool is_finished_ = false;
  bool is_finish_told_ = false;
  std::optional<std::uint64_t> unsettled_after_;
  int life_ = 0;
  std::shared_ptr<bool> is_here_ = std::make_shared<bool>(true);  ///< An answer may come when this is gone.
};

}  // namespace sgd::coordinator
