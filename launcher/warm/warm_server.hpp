#pragma once
// The program behind `sgd-launch warm`: keepers of one user that hold Python interpreters ready, for the runs that ask.
//
//   Keep ──> Slot: starting ──> ready ──Take that fits──> resting ──its run has ended──> starting
//                     └──> failed, until the next Keep                  └── refused it: a pause ──┘
//
// A run that finds nothing that fits is told so at once, and starts its own. The next interpreter is made when the run
// that took the last one has ended: while it trains, the cores are its own.

#include <map>
#include <memory>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>

#include "common/messages/frame.hpp"
#include "common/messages/warm.hpp"
#include "launcher/agent/local_stream.hpp"
#include "launcher/process/accept_loop.hpp"
#include "launcher/warm/held_keeper.hpp"

namespace sgd::warm {

/// Of this user, in the folder for sockets (runtime_base()).
[[nodiscard]] std::string socket_in(const std::string& base);

class WarmServer {
 public:
  static constexpr std::size_t kSlotsMax = 8;
  static constexpr std::size_t kClientsMax = 64;
  static constexpr Duration kIdle = std::chrono::minutes(30);
  /// After one that did not fit, whose run imports by itself now.
  static constexpr Duration kRest = std::chrono::seconds(10);

  /// `program` is this program's own file.
  explicit WarmServer(std::string program);
  /// Error: another one of this user is there (EADDRINUSE), or there is no place for its socket.
  [[nodiscard]] Status listen(const std::string& base);
  /// Until nobody has wanted anything for long, or it is told to end.
  void run();

 private:
  using ClientId = std::uint64_t;
  struct Client {
    std::shared_ptr<agent::LocalStream> stream;
    FrameReader reader;
    std::vector<process::UniqueFd> descriptors;
    int pid = 0;
  };
  struct Slot {
    Setting setting;
    std::string name;
    std::unique_ptr<HeldKeeper> keeper;  ///< None: it rests, or has failed.
    std::string failure;
    ClientId taker = 0;  ///< Whom its keeper's answer is for.
    int runs = 0;
    double start_s = 0;
    std::unique_ptr<boost::asio::steady_timer> rest;
  };

  /// For a run: its keeper is ready; or none, and why.
  struct Choice {
    Slot* slot = nullptr;
    Refused refused;
  };

  void on_client(process::UniqueFd socket);
  void on_client_gone(ClientId id);
  void on_bytes(ClientId id, std::string_view bytes, std::vector<process::UniqueFd> descriptors);
  void handle(ClientId id, const Seek& seek);
  void handle(ClientId id, const Take& take);
  void handle(ClientId id, const Keep& keep);
  void handle(ClientId id, const Look& look);
  void handle(ClientId id, const End& end);
  [[nodiscard]] Choice choose(ClientId id, const Setting& wanted) const;
  void answer(ClientId id, const FromServer& message);
  /// What the peer would hand down and process `pid` would not; empty: nothing.
  [[nodiscard]] std::string difference(ClientId peer, pid_t pid) const;

  void start(Slot& slot);
  void start_later(Slot& slot);
  void on_answer(Slot& slot, const std::string& reason);
  void on_ended(Slot& slot, const std::string& reason);
  [[nodiscard]] Held held() const;
  [[nodiscard]] static std::string state_of(const Slot& slot);
  void rest_idle();

  std::string program_;
  boost::asio::io_context io_;
  boost::asio::signal_set signals_;
  boost::asio::steady_timer idle_;
  Duration idle_time_ = kIdle;
  process::UniqueFd lock_;
  std::string socket_;
  std::unique_ptr<process::AcceptLoop> accept_loop_;
  std::map<ClientId, Client> clients_;
  ClientId next_client_ = 1;
  std::vector<std::unique_ptr<Slot>> slots_;
};

}  // namespace sgd::warm
