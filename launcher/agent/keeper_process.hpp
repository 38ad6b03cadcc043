#pragma once
// One keeper, seen from its agent: starts it (this program again, verb "keeper", its socket as
// descriptor 3), cuts its stream into frames, keeps the two descriptors it hands over, and
// reports its end once its socket is closed and its process reaped.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

#include "common/base/ids.hpp"
#include "common/base/result.hpp"
#include "common/messages/frame.hpp"
#include "common/messages/keeper.hpp"
#include "launcher/agent/local_stream.hpp"
#include "launcher/process/unique_fd.hpp"

namespace sgd::agent {

/// Console output of one rank: whole lines.
struct Output {
  RunId run;
  Generation generation = 0;
  Rank rank = 0;
  std::string bytes;
};

class KeeperProcess {
 public:
  struct Handlers {
    std::function<void(keeper::FromKeeper)> on_message;
    std::function<void(Output)> on_output;                        ///< `run` is filled in by the owner.
    std::function<void(int signal, std::string reason)> on_closed;  ///< Last.
  };

  KeeperProcess(boost::asio::io_context& io, Handlers handlers);
  /// `program` is this program's own file.
  [[nodiscard]] Status start(const std::string& program);
  void send(const keeper::ToKeeper& message);
  /// The shared region and the memory checkpoint; empty before Started.
  [[nodiscard]] std::vector<int> descriptors() const;
  [[nodiscard]] int pid() const { return pid_; }

 private:
  void on_bytes(std::string_view bytes, std::vector<process::UniqueFd> descriptors);
  void on_frame(Frame frame);
  void on_stream_closed(std::string reason);
  void wait_for_end();
  void reap();

  Handlers handlers_;
  boost::asio::io_context& io_;
  std::shared_ptr<LocalStream> stream_;
  boost::asio::posix::stream_descriptor pidfd_;
  FrameReader reader_;
  std::vector<process::UniqueFd> descriptors_;
  std::string close_reason_;
  int pid_ = -1;
};

}  // namespace sgd::agent
