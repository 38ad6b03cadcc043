#pragma once
// What ranks on this machine say, in a run of several launchers. The agent is another process: it passes on what comes
// from the keeper, and is told what is written.
//
//   keeper ── output ──> agent (agent/output_relay) ══ chunks, Warning, AllSaid ══> RankConsole ──> Console
//                                                   <══════ Taken ═══════════════
// What an agent has passed on before it was killed comes again by the next one, and is shown once.

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <boost/asio/io_context.hpp>

#include "common/messages/frame.hpp"
#include "launcher/agent/local_stream.hpp"
#include "launcher/cli/rank_console.hpp"
#include "launcher/net/timer.hpp"
#include "launcher/process/accept_loop.hpp"

namespace sgd::cli {

/// Where the agent finds it, and how it is shown.
struct OwnOutputPlace {
  std::string socket;
  LineStyle style;
  int workers_here = 1;
};

class OwnOutput {
 public:
  /// The run is over, the agent has more to say, and so long nothing came and nothing was written.
  static constexpr Duration kQuietLimit = std::chrono::seconds(5);

  /// Makes `place.socket`; `io` and `console` must outlive it.
  [[nodiscard]] static Result<std::unique_ptr<OwnOutput>> listen(boost::asio::io_context& io, Console& console,
                                                                 OwnOutputPlace place);
  ~OwnOutput();
  OwnOutput(const OwnOutput&) = delete;
  OwnOutput& operator=(const OwnOutput&) = delete;

  /// Nothing new is said any more: `then` is called, once, when all that was is given to the console.
  void finish(std::function<void()> then);
  /// What has come and waits for the same line of others.
  void flush();

 private:
  struct Agent {
    std::shared_ptr<agent::LocalStream> stream;
    FrameReader reader;
  };

  OwnOutput(boost::asio::io_context& io, Console& console, OwnOutputPlace place);
  [[nodiscard]] Status open();
  void take(process::UniqueFd socket);
  void on_bytes(int id, std::string_view bytes);
  [[nodiscard]] Status on_frame(int id, const Frame& frame);
  [[nodiscard]] bool was_shown(const keeper::OutputHead& head);
  void on_written(int id, std::size_t bytes);
  [[nodiscard]] bool has_all() const;
  void look();

  boost::asio::io_context& io_;
  Console& console_;
  OwnOutputPlace place_;
  RankConsole ranks_;
  int listener_ = -1;  ///< Of accepting_.
  std::optional<process::AcceptLoop> accepting_;
  std::map<int, Agent> agents_;  ///< One, or a new one beside the rest of a killed one.
  int next_id_ = 0;
  /// How far the last keepers' output has come.
  std::deque<std::pair<std::uint64_t, std::uint64_t>> shown_;
  bool lacks_rest_ = false;  ///< An agent was here, and no later one has said all.
  TimePoint moved_at_{};
  std::function<void()> then_;
  net::Timer look_timer_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  ///< The console may write something when this is gone.
};

}  // namespace sgd::cli
