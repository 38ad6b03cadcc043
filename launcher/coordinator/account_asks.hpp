#pragma once
// Asks nodes, before a run is submitted, what they would say to its owner: the same function of an agent that decides
// when the run is to start. Who does not answer in time is told of as that.

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "common/base/ids.hpp"
#include "common/base/time.hpp"
#include "common/messages/cluster.hpp"

namespace sgd::coordinator {

class AccountAsks {
 public:
  static constexpr std::size_t kAsksMax = 256;  ///< Questions of clients that are open.
  static constexpr Duration kDeadline = std::chrono::seconds(3);

  struct Answers {
    std::map<NodeId, std::string> refusals;  ///< Why these would not start it.
    std::vector<NodeId> silent;              ///< They have not answered.
  };
  using Send = std::function<void(const NodeId& node, const cluster::AccountAsk& ask)>;
  using Done = std::function<void(const Answers& answers)>;

  explicit AccountAsks(boost::asio::io_context& io) : io_(io) {}

  /// `done` is called once, and not after stop(); inside where there is nobody to ask, or no room for a question more:
  /// then all are silent.
  void ask(const std::vector<NodeId>& nodes, cluster::AccountAsk question, const Send& send, Done done);
  void on_answer(const NodeId& node, const cluster::AccountAnswer& answer);
  void stop();

 private:
  struct Open;
  void end(std::int64_t number);

  boost::asio::io_context& io_;
  std::map<std::int64_t, std::shared_ptr<Open>> open_;
  std::int64_t next_ = 1;
};

}  // namespace sgd::coordinator
