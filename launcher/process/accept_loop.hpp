#pragma once
// Takes the connections of a listening socket on an event loop, for as long as it lives. Where there is no descriptor
// for one (EMFILE, ENFILE, ENOMEM), whoever waits goes on waiting in the kernel's queue and is served when there is one
// again: it looks again after a pause, so that a lack neither ends it nor makes it spin.

#include <functional>
#include <memory>
#include <string>

#include "common/base/result.hpp"
#include "common/base/time.hpp"
#include "launcher/process/unique_fd.hpp"

namespace boost::asio {
class io_context;
}

namespace sgd::process {

class AcceptLoop {
 public:
  static constexpr Duration kPause = std::chrono::milliseconds(100);

  struct Handlers {
    std::function<void(UniqueFd)> on_socket;           ///< Non-blocking, close-on-exec.
    std::function<void(std::string)> on_trouble = {};  ///< Once, until one is taken again.
  };
  /// `listener` is non-blocking and listens. `io` must outlive this.
  AcceptLoop(boost::asio::io_context& io, UniqueFd listener, Handlers handlers);
  /// Nothing is called any more.
  ~AcceptLoop();
  AcceptLoop(const AcceptLoop&) = delete;
  AcceptLoop& operator=(const AcceptLoop&) = delete;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

/// accept4(): close-on-exec and non-blocking. Error code EAGAIN: nobody waits.
[[nodiscard]] Result<UniqueFd> accept_one(int listener);
/// Whether accepting, or opening anything, failed for lack of descriptors or memory: it may work later.
[[nodiscard]] bool is_shortage(int code);

}  // namespace sgd::process
