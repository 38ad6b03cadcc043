#include "launcher/coordinator/common_answer.hpp"

#include <string>
#include <utility>

#include <boost/asio/post.hpp>

namespace sgd::coordinator {

CommonAnswer::CommonAnswer(boost::asio::io_context& io, storage::FileThread& thread, Duration limit,
                           std::function<Make()> snapshot)
    : io_(io), thread_(thread), limit_(limit), snapshot_(std::move(snapshot)) {}

CommonAnswer::~CommonAnswer() {
  *is_here_ = false;
}

void CommonAnswer::ask(ClientDesk::Reply reply) {
  waiting_.push_back(std::move(reply));
  if (!is_making_) make();
}

void CommonAnswer::make() {
  is_making_ = true;
  const auto replies = std::make_shared<Replies>(std::exchange(waiting_, {}));
  const auto text = [make = snapshot_()]() mutable -> Result<std::string> {
    const ClientDesk::Json json = std::exchange(make, nullptr)();
    return json.dump(-1, ' ', false, ClientDesk::Json::error_handler_t::replace);
  };
  thread_.ask_within(limit_, text, [this, replies](Result<std::string>&& made) {
    auto answer = made ? ClientDesk::Answer::of_text(std::move(made).value())
                       : ClientDesk::Answer(refused("busy", made.error().message));
    tell(std::make_shared<const ClientDesk::Answer>(std::move(answer)), replies);
  });
}

/// One a turn: a hundred large answers at once would hold up everybody else.
void CommonAnswer::tell(std::shared_ptr<const ClientDesk::Answer> answer, std::shared_ptr<Replies> replies) {
  const ClientDesk::Reply reply = std::move(replies->front());
  replies->pop_front();
  reply(*answer);
  if (!replies->empty()) {
    boost::asio::post(io_,
                      [this, is_here = is_here_, answer = std::move(answer), replies = std::move(replies)]() mutable {
                        if (*is_here) tell(std::move(answer), std::move(replies));
                      });
    return;
  }
  is_making_ = false;
  if (!waiting_.empty()) make();
}

}  // namespace sgd::coordinator
