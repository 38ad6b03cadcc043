#pragma once
// One large answer for everybody who asks for the same: while one is being made, who asks waits for the next one, which
// shows what is then. However many ask, there is one copy of what is shown, and one text of it.
//
//   ask ──> waiting ──snapshot, text made beside the loop──> told, one a turn of the loop
//              └── while that lasts: the next one's

#include <deque>
#include <functional>
#include <memory>

#include <boost/asio/io_context.hpp>

#include "common/base/time.hpp"
#include "common/json/nlohmann.hpp"
#include "launcher/coordinator/client_desk.hpp"
#include "launcher/storage/file_thread.hpp"

namespace sgd::coordinator {

class CommonAnswer {
 public:
  /// Makes the answer of values that it owns, on the thread.
  using Make = std::function<ClientDesk::Json()>;

  /// `snapshot` is called on the event loop. Who asks is told within twice `limit`, of an error at the latest. `io` and
  /// `thread` must outlive it.
  CommonAnswer(boost::asio::io_context& io, storage::FileThread& thread, Duration limit,
               std::function<Make()> snapshot);
  ~CommonAnswer();
  CommonAnswer(const CommonAnswer&) = delete;
  CommonAnswer& operator=(const CommonAnswer&) = delete;

  void ask(ClientDesk::Reply reply);

 private:
  using Replies = std::deque<ClientDesk::Reply>;
  void make();
  void tell(std::shared_ptr<const ClientDesk::Answer> answer, std::shared_ptr<Replies> replies);

  boost::asio::io_context& io_;
  storage::FileThread& thread_;
  Duration limit_;
  std::function<Make()> snapshot_;
  Replies waiting_;
  bool is_making_ = false;
  std::shared_ptr<bool> is_here_ = std::make_shared<bool>(true);
};

}  // namespace sgd::coordinator
