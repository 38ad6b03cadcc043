#pragma once
// One large answer for everybody who asks for the same: while one is being made, who asks waits for the next one, which
// shows what is then. However many ask, there is one copy of what is shown, and one text of it.
//
//   ask ──> waiting ──gathered, a part a turn of the loop; text made beside it──> told, one a turn of the loop
//              └── while that lasts: the next one's

#include <deque>
#include <functional>
#include <memory>
#include <string>

#include <boost/asio/io_context.hpp>

#include "common/base/time.hpp"
#include "launcher/coordinator/client_service.hpp"
#include "launcher/storage/file_thread.hpp"

namespace sgd::coordinator {

class CommonAnswer {
 public:
  /// The text of the answer, made on the thread of values that it owns.
  using Make = std::function<std::string()>;
  struct Source {
    /// Takes a part of those values, on the event loop: ten thousand rows at once would hold up everybody. False: that
    /// was the last one.
    std::function<bool()> gather;
    Make make;
  };

  /// `begin` is called on the event loop. Who asks is told within twice `limit`, of an error at the latest. `io` and
  /// `thread` must outlive it, and what its sources look at, too.
  CommonAnswer(boost::asio::io_context& io, storage::FileThread& thread, Duration limit, std::function<Source()> begin);
  ~CommonAnswer();
  CommonAnswer(const CommonAnswer&) = delete;
  CommonAnswer& operator=(const CommonAnswer&) = delete;

  void ask(ClientService::Reply reply);

 private:
  using Replies = std::deque<ClientService::Reply>;
  void begin();
  void gather(Source source);
  void make(Make text);
  void deliver(std::shared_ptr<const ClientService::Answer> answer, std::shared_ptr<Replies> replies);

  boost::asio::io_context& io_;
  storage::FileThread& thread_;
  Duration limit_;
  std::function<Source()> begin_;
  Replies waiting_;
  Replies gathered_for_;
  bool is_making_ = false;
  std::shared_ptr<bool> is_here_ = std::make_shared<bool>(true);
};

}  // namespace sgd::coordinator
