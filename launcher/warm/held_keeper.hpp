#pragma once
// One keeper that is held ready (launcher/keeper/spare.hpp), seen from the warm server: started, prepared, and handed
// to a run. It is this process's child to its end, whoever has taken it.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

#include "common/base/time.hpp"
#include "common/messages/frame.hpp"
#include "common/messages/warm.hpp"
#include "launcher/agent/local_stream.hpp"

namespace sgd::warm {

class HeldKeeper {
 public:
  enum class State { kStarting, kReady, kAsked, kTaken, kUseless };
  struct Handlers {
    std::function<void()> on_ready;
    /// Adopted, or with a reason: it was not.
    std::function<void(const std::string& reason)> on_answer;
    /// Its process has ended; `reason`: why it was of no use, else empty. Last.
    std::function<void(const std::string& reason)> on_ended;
  };

  HeldKeeper(boost::asio::io_context& io, Handlers handlers);
  ~HeldKeeper();
  HeldKeeper(const HeldKeeper&) = delete;
  HeldKeeper& operator=(const HeldKeeper&) = delete;

  /// `program` is this program's own file.
  [[nodiscard]] Status start(const std::string& program, const Setting& setting);
  /// Of one that is ready.
  void adopt(const Setting& setting, std::vector<process::UniqueFd> descriptors);
  void kill();

  [[nodiscard]] State state() const { return state_; }
  [[nodiscard]] int pid() const { return pid_; }
  [[nodiscard]] double start_s() const { return start_s_; }

 private:
  void on_bytes(std::string_view bytes);
  void on_ready(const std::string& reason);
  void wait_for_end();

  boost::asio::io_context& io_;
  Handlers handlers_;
  std::shared_ptr<agent::LocalStream> stream_;
  boost::asio::posix::stream_descriptor pidfd_;
  FrameReader reader_;
  State state_ = State::kStarting;
  std::string reason_;
  int pid_ = 0;
  TimePoint begin_{};
  double start_s_ = 0;
};

}  // namespace sgd::warm
