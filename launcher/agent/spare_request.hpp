#pragma once
// Asks the warm server of this user, where there is one, for a keeper that holds a fork server ready
// (common/messages/warm.hpp): first whether it has one, then for it, with the run's standard streams. Whatever goes
// wrong, the answer is that there is none: then a run starts its own.

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "common/base/time.hpp"
#include "common/messages/frame.hpp"
#include "common/messages/keeper.hpp"
#include "common/messages/warm.hpp"
#include "launcher/agent/local_stream.hpp"
#include "launcher/process/unique_fd.hpp"

namespace sgd::agent {

/// A keeper that has become this process's.
struct SpareKeeper {
  process::UniqueFd link;
  int pid = 0;
  std::string mark;  ///< NAME=value in the environment of all below it.
};

class SpareRequest : public std::enable_shared_from_this<SpareRequest> {
 public:
  static constexpr Duration kConnectLimit = std::chrono::milliseconds(100);
  static constexpr Duration kAnswerLimit = std::chrono::seconds(2);

  /// `refusal`: why there is none that nearly fits, for people; empty: nobody keeps one.
  using OnAnswer = std::function<void(std::optional<SpareKeeper>, std::string refusal)>;

  explicit SpareRequest(boost::asio::io_context& io) : io_(io), limit_(io) {}
  /// `socket`: the warm server's. `input`: the run's standard input; -1: none. Answers once, never inside this call.
  void ask(const std::string& socket, const keeper::StartForkServer& wanted, int input, OnAnswer on_answer);

 private:
  [[nodiscard]] Status seek(const std::string& socket, const keeper::StartForkServer& wanted);
  [[nodiscard]] Status take();
  void on_bytes(std::string_view bytes);
  void answer(std::optional<SpareKeeper> spare, std::string refusal);

  boost::asio::io_context& io_;
  boost::asio::steady_timer limit_;
  std::shared_ptr<LocalStream> stream_;
  FrameReader reader_;
  process::UniqueFd link_;
  std::string mark_;
  warm::Setting setting_;
  process::SharedFd input_;  ///< Null: none.
  OnAnswer on_answer_;
};

}  // namespace sgd::agent
