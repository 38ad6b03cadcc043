#pragma once
// One keeper, seen from its agent: starts it (this program again, verb "keeper", a socket as descriptor 3),
// cuts its stream into frames, keeps the two descriptors it hands over, and reports its end once its socket
// is closed and its process gone.
//
//   one agent:        start() ── socket pair, ends with it
//   agents come back: start() ── listening socket ── connect, Attach ──> Started ──> both send what the other lacks
//                     (replay: send(), note_*()) resume() ─┘
//
// With ReattachOptions, whatever is sent is kept until the keeper has it, so that the next life of this agent, which
// replays what this one sent, can send the rest.

#include <sys/types.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

#include "common/base/ids.hpp"
#include "common/base/result.hpp"
#include "common/base/time.hpp"
#include "common/messages/frame.hpp"
#include "common/messages/keeper.hpp"
#include "common/messages/resend_queue.hpp"
#include "launcher/agent/agent_shell_state.hpp"
#include "launcher/agent/local_stream.hpp"
#include "launcher/agent/spare_request.hpp"
#include "launcher/net/timer.hpp"
#include "launcher/process/account.hpp"
#include "launcher/process/kept_stderr.hpp"
#include "launcher/process/unique_fd.hpp"
#include "launcher/storage/file_owner.hpp"

namespace sgd::agent {

/// Console output of one rank: whole lines, or with `head.is_open` the line that it is writing.
struct Output {
  RunId run;
  keeper::OutputHead head;
  std::string chunk;  ///< As it came, with the head in front.

  [[nodiscard]] std::string_view bytes() const { return std::string_view(chunk).substr(keeper::kOutputHeaderBytes); }
};

class KeeperProcess {
 public:
  /// From the connection to Started.
  static constexpr Duration kAttachLimit = std::chrono::seconds(10);
  /// From the end of its socket to its own.
  static constexpr Duration kEndLimit = std::chrono::seconds(2);
  static constexpr Duration kConnectLimit = std::chrono::seconds(1);
  /// From AgentEnds to its own end: it gives ranks 10 s to die, and then reads what they have written.
  static constexpr Duration kLeaveLimit = std::chrono::seconds(12);
  /// From the order to end all ranks, or itself, to the word that it is done: somewhat longer than a keeper takes that
  /// cannot end a rank, and says so. One that stands still, held by a disk, is killed then.
  static constexpr Duration kClearLimit = std::chrono::seconds(70);
  /// Between two looks whether a signal has stopped it, as a rank of the same user can: then it is made to go on.
  static constexpr Duration kLookInterval = std::chrono::seconds(1);
  /// From the same order on: one that is stopped again and again is killed then.
  static constexpr Duration kStoppedLimit = std::chrono::seconds(2);

  struct Handlers {
    std::function<void(keeper::FromKeeper)> on_message;
    std::function<void(Output)> on_output;                          ///< `run` is filled in by the owner.
    std::function<void(int signal, std::string reason)> on_closed;  ///< Last.
    std::function<void()> on_attached = {};  ///< With ReattachOptions: it is there, and so are its descriptors.
    /// With ReattachOptions, before on_closed: all that it wrote to its standard error. The last line is in the reason,
    /// too.
    std::function<void(const std::string& text)> on_words = {};
    /// A signal has stopped it, and what is done about it; each told once.
    std::function<void(const std::string& what)> on_stopped = {};
  };
  /// Of a keeper that waits for the next life of its agent.
  struct ReattachOptions {
    std::string socket;
    std::string mark;         ///< NAME=value in the environment of all below it.
    Duration wait{};          ///< How long it does.
    std::string cgroup = {};  ///< Name of the control group of all below it, where one can be made.
    bool inherits_environment = false;
    std::uint64_t number = 0;
  };

  KeeperProcess(boost::asio::io_context& io, Handlers handlers, std::optional<ReattachOptions> reattach = std::nullopt);
  /// `program` is this program's own file. With an account, the keeper and all below it are that user's. `input`, above
  /// 2, becomes the keeper's standard input, unless agents come back; -1: none.
  [[nodiscard]] Status start(const std::string& program, const std::optional<process::Account>& account = std::nullopt,
                             int input = -1);
  /// In place of start(), without ReattachOptions: one that was held ready, and is ours from now on.
  [[nodiscard]] Status adopt(SpareKeeper spare);
  void send(const keeper::ToKeeper& message);
  /// With ReattachOptions, when this process is about to end: whether the keeper has ended by then. It is killed if
  /// not.
  [[nodiscard]] bool ends_by(TimePoint until);
  /// The shared region and the memory checkpoint; empty before Started.
  [[nodiscard]] const std::vector<process::SharedFd>& descriptors() const { return descriptors_; }
  /// 0: not known, or none.
  [[nodiscard]] int pid() const { return pid_; }
  [[nodiscard]] const ReattachOptions& reattach_options() const { return *reattach_; }
  /// This process has started it: what it leaves behind comes to us.
  [[nodiscard]] bool is_our_child() const { return is_our_child_; }
  /// NAME=value in the environment of all below one that somebody else has started; else empty.
  [[nodiscard]] const std::string& mark() const { return mark_; }

  // With ReattachOptions, in a replay:
  void note_started() { was_started_ = true; }
  void note_message(const keeper::FromKeeper& message);
  [[nodiscard]] bool was_started() const { return was_started_; }
  /// With ReattachOptions: what the next life needs of it, and in that life, before resume().
  [[nodiscard]] KeptKeeper kept() const;
  void restore(const KeptKeeper& kept);
  /// And after it; `owner`: whose it must be, where that is not our own. False: nobody is there.
  [[nodiscard]] bool resume(const std::optional<storage::FileOwner>& owner = std::nullopt);
  [[nodiscard]] bool is_attached() const { return is_attached_; }

  Duration attach_limit = kAttachLimit;
  Duration clear_limit = kClearLimit;
  Duration look_interval = kLookInterval;
  Duration stopped_limit = kStoppedLimit;

 private:
  [[nodiscard]] Status start_listening(const std::string& program, const std::optional<process::Account>& account);
  void connect(process::UniqueFd socket);
  void on_bytes(std::string_view bytes, std::vector<process::UniqueFd> descriptors);
  void on_frame(Frame frame);
  [[nodiscard]] Status on_started(const keeper::Started& started);
  void on_stream_closed(std::string reason);
  void expect_done(Duration limit, bool is_last);
  void note_done(const keeper::FromKeeper& message);
  void look_again();
  void look();
  void make_go_on();
  void kill();
  void wait_for_end();
  void reap();

  Handlers handlers_;
  std::optional<ReattachOptions> reattach_;
  boost::asio::io_context& io_;
  std::shared_ptr<LocalStream> stream_;
  boost::asio::posix::stream_descriptor pidfd_;
  net::Timer limit_;  ///< With ReattachOptions: of the attaching, then of the end.
  net::Timer clear_timer_;
  net::Timer look_timer_;
  std::optional<TimePoint> told_to_end_at_;
  bool was_stopped_ = false;  ///< And that is told.
  bool awaits_done_ = false;  ///< It is to end all ranks, or itself.
  bool is_closing_ = false;   ///< Itself.
  FrameReader reader_;
  std::vector<process::SharedFd> descriptors_;
  std::string close_reason_;
  std::optional<process::KeptStderr> words_;  ///< With ReattachOptions: why it ends, if it can still say that.
  int pid_ = 0;
  std::string mark_;
  std::optional<uid_t> user_;
  ResendQueue sent_;
  std::int64_t received_ = 0;  ///< Counted messages, of all lives of this agent.
  std::int64_t told_received_ = 0;
  bool was_started_ = false;  ///< Its owner knows that it is up.
  bool is_attached_ = false;
  bool is_our_child_ = false;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  ///< For handlers that may outlive this.
};

}  // namespace sgd::agent
