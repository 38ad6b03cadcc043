#pragma once
// A rank's end of the link to its agent. One thread reads lines and sends heartbeats, so that an
// agent hears of a training thread that stands still; the training thread sends facts and takes
// assignments. A closed link ends the process at once: whoever lost its agent may not train on.
//
// Where the agent comes back (a time to wait for it was given), training goes on meanwhile: the link thread
// connects again, says hello with how much it has, and facts that the agent has not acknowledged are sent
// again. Only when no agent has come for that time does the process end.
//
//   open --closed--> away --connected, hello--> greeting --Received--> open
//                     ^'--no agent in time--> exit       '--closed--> away
//
// Lines are written whole, in order. A fact is written by its sender when the socket takes it,
// else it waits in an outbox of bounded size that the link thread empties: a launcher that is
// stopped for a while never holds training. Heartbeats are dropped instead of queued.

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "common/base/result.hpp"
#include "common/base/time.hpp"
#include "common/json/nlohmann.hpp"
#include "common/messages/link.hpp"
#include "common/messages/resend_queue.hpp"
#include "worker/link/progress.hpp"
#include "worker/link/socket.hpp"

namespace sgd::worker {

/// An assignment and the descriptors that came with it; -1 where none came.
struct ReceivedAssignment {
  link::Assignment assignment;
  UniqueFd shared_region;
  UniqueFd memory_checkpoint;
};

class LinkClient {
 public:
  static constexpr Duration kConnectDeadline = std::chrono::seconds(10);
  static constexpr std::size_t kOutboxBytesMax = 4 << 20;
  static constexpr std::size_t kExchangeKeysMax = 64;
  /// Facts without acknowledgement, of an agent that comes back.
  static constexpr std::size_t kKeptBytesMax = 32 << 20;

  /// Connects, says hello and starts the link thread. Call in a process that will not fork any more.
  /// `agent_wait`: how long an agent that has died is waited for; zero: not at all.
  [[nodiscard]] static Result<std::unique_ptr<LinkClient>> connect(const std::string& path, const std::string& token,
                                                                   Duration deadline = kConnectDeadline,
                                                                   Duration agent_wait = {});
  ~LinkClient();
  LinkClient(const LinkClient&) = delete;
  LinkClient& operator=(const LinkClient&) = delete;

  /// The next assignment; a newer one replaces one that nobody has taken. One that comes forgets stop requests and
  /// exchanges of earlier generations; taking it forgets their abort, and sets the heartbeat's interval from the job.
  [[nodiscard]] Result<ReceivedAssignment> next_assignment(Duration deadline);

  /// Never blocks. An error means that the agent has read nothing, or is away, for so long that no more can be kept.
  [[nodiscard]] Status send(const link::FromWorker& message);

  /// Gives this rank's value and waits for those of all ranks, in rank order.
  [[nodiscard]] Result<std::vector<nlohmann::json>> exchange(const std::string& key, const nlohmann::json& value,
                                                             Duration deadline);

  /// Asks for a checkpoint that is to be resumed from and is not on this node; one at a time.
  [[nodiscard]] Status ask_for(const std::string& path);
  /// What became of it; nothing while it is on its way. The agent decides how long that may take.
  [[nodiscard]] std::optional<link::Fetched> wait_fetched(Duration longest);
  /// Bytes of it that have come.
  [[nodiscard]] std::int64_t fetched_bytes() const;

  /// Called by the link thread when the taken generation is aborted; at once if it already was. Empty: nobody.
  void on_abort(std::function<void()> handler);

  [[nodiscard]] bool stop_requested() const { return stop_.load(std::memory_order_relaxed); }
  [[nodiscard]] bool stop_wants_checkpoint() const { return stop_checkpoint_.load(std::memory_order_relaxed); }
  [[nodiscard]] bool stop_at_epoch_requested() const { return stop_at_epoch_.load(std::memory_order_relaxed); }
  [[nodiscard]] bool stop_at_checkpoint_requested() const {
    return stop_at_checkpoint_.load(std::memory_order_relaxed);
  }
  /// Something that was sent has not reached the agent's socket yet, or may have died with the agent.
  [[nodiscard]] bool has_unsent() const;
  [[nodiscard]] Progress& progress() { return progress_; }

  /// Waits until the outbox is empty or `deadline` has passed, then ends the link thread; from here on a closed link
  /// does not end the process any more. Of an agent that comes back, what was sent is waited for until it has it, for
  /// as long as the agent is waited for. Idempotent.
  void finish(Duration deadline);

 private:
  struct ExchangeState {
    std::map<int, nlohmann::json> values;  // By rank.
    int count = 0;                         // Ranks in all; 0: no value has come yet.
  };

  enum class Link {
    kOpen,
    kGreeting,  ///< Connected again; the agent has not said yet what it has.
    kAway,      ///< Closed; it is connected again.
  };

  LinkClient(UniqueFd socket, std::string path, std::string token, Duration agent_wait);
  void run();
  [[nodiscard]] int wait_ms() const;
  bool read_lines();
  void handle(link::ToWorker&& message);
  void lose();  // The link is closed, and there will be another one.
  void connect_again();
  void note(const link::Received& received);  // With mutex_ held.
  void acknowledge();
  [[nodiscard]] link::Hello hello() const;
  [[nodiscard]] bool is_all_taken() const;  // With mutex_ held.
  [[nodiscard]] bool returns() const { return agent_wait_ > Duration::zero(); }
  void write_outbox();  // With mutex_ held.
  void send_heartbeat();
  void wake();
  [[nodiscard]] std::string missing_ranks(const ExchangeState& state) const;

  const std::string path_;
  const std::string token_;
  const Duration agent_wait_;
  UniqueFd socket_;
  UniqueFd wake_;                               // An eventfd: something to write, or time to finish.
  std::string input_;                           // Bytes of an unfinished line; the link thread's own.
  std::vector<UniqueFd> received_descriptors_;  // Waiting for their assignment's line.

  mutable std::mutex mutex_;  // Guards all below up to the atomics.
  std::condition_variable changed_;
  std::string outbox_;
  Link link_ = Link::kOpen;
  ResendQueue sent_;           // Facts, where the agent comes back.
  std::int64_t received_ = 0;  // Counted lines from the agent.
  std::int64_t told_received_ = 0;
  TimePoint away_since_;
  std::optional<ReceivedAssignment> assignment_;
  std::map<std::string, ExchangeState> exchanges_;
  std::string asked_for_;  // Path of the checkpoint that is to be fetched.
  std::int64_t fetched_bytes_ = 0;
  std::optional<link::Fetched> fetched_;
  std::function<void()> abort_handler_;
  Generation taken_ = 0;    // Generation of the assignment in work.
  Generation aborted_ = 0;  // Newest generation that the agent aborted.
  bool finishing_ = false;

  std::atomic<bool> stop_{false};
  std::atomic<bool> stop_checkpoint_{true};
  std::atomic<bool> stop_at_epoch_{false};
  std::atomic<bool> stop_at_checkpoint_{false};
  std::atomic<std::int64_t> heartbeat_interval_ns_;
  std::atomic<std::uint64_t> unknown_lines_{0};
  Progress progress_;
  std::int64_t samples_at_beat_ = 0;
  TimePoint last_beat_;
  std::thread thread_;
};

}  // namespace sgd::worker
