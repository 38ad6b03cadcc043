#pragma once
// What ranks here say, on its way to the launcher that has started this agent (`agent --output-socket`): it is passed
// on as it comes from keepers, and the keeper is told that it is taken when the launcher has written it. So a console
// that is slow holds ranks up as one on their own machine does.
//
//   no connection --something is said--> connected --the run is gone, and all is written: AllSaid--> closed
//        └─ nobody listens: it is taken at once, and lost for the console (logs have it)  <── the launcher has gone
//
// What is on its way here when this process dies, the keeper gives the next one again.

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>

#include <boost/asio/io_context.hpp>

#include "common/messages/frame.hpp"
#include "launcher/agent/keeper_process.hpp"
#include "launcher/agent/local_stream.hpp"

namespace sgd::agent {

class OutputRelay {
 public:
  static constexpr Duration kConnectLimit = std::chrono::seconds(1);
  static constexpr std::size_t kUntakenBytesMax = 2 << 20;  ///< Sent, and not written. The rest waits here.

  struct Handlers {
    std::function<void(const RunId& run, std::size_t bytes)> on_taken;
    std::function<void(const std::string& message)> on_trouble;
  };

  /// `io` must outlive it.
  OutputRelay(boost::asio::io_context& io, std::string socket, Handlers handlers);
  ~OutputRelay();

  void pass(Output output);
  void warn(const std::string& text);
  /// Of the run nothing more is said.
  void end();

 private:
  struct Piece {
    RunId run;
    std::size_t bytes = 0;
    std::string chunk;  ///< Empty: it is sent.
  };

  [[nodiscard]] bool connect();
  void report_trouble();
  void pump();
  void on_bytes(std::string_view bytes);
  [[nodiscard]] Status take(std::int64_t bytes);
  void on_lost(const std::string& reason);
  void give_up();
  void close_if_done();

  boost::asio::io_context& io_;
  std::string socket_;
  Handlers handlers_;
  std::shared_ptr<LocalStream> stream_;
  FrameReader reader_;
  std::deque<Piece> pieces_;    ///< Not taken; the windows of keepers bound them.
  std::size_t sent_ = 0;        ///< Of them.
  std::size_t sent_bytes_ = 0;  ///< And their bytes, less those of `taken_`.
  std::size_t taken_ = 0;       ///< Bytes of the first one.
  bool is_ending_ = false;
  bool is_in_trouble_ = false;                                  ///< It was said.
  std::string trouble_;                                         ///< Why nobody is connected.
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  ///< A stream ends after this, perhaps.
};

}  // namespace sgd::agent
