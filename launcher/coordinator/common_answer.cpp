#include "launcher/coordinator/common_answer.hpp"

#include <string>
#include <utility>

#include <boost/asio/post.hpp>

namespace sgd::coordinator {

CommonAnswer::CommonAnswer(boost::asio::io_context& io, storage::FileThread& thread, Duration limit,
                           std::function<Source()> begin)
    : io_(io), thread_(thread), limit_(limit), begin_(std::move(begin)) {}

CommonAnswer::~CommonAnswer() {
  *is_here_ = false;
}

void CommonAnswer::ask(ClientService::Reply reply) {
  waiting_.push_back(std::move(reply));
  if (!is_making_) begin();
}

void CommonAnswer::begin() {
  is_making_ = true;
  gathered_for_ = std::exchange(waiting_, {});
  gather(begin_());
}

void CommonAnswer::gather(Source source) {
  if (!source.gather()) return make(std::move(source.make));
  boost::asio::post(io_, [this, is_here = is_here_, source = std::move(source)]() mutable {
    if (*is_here) gather(std::move(source));
  });
}

/// Who has asked while values were gathered waits for the next answer: some of these were taken before that.
void CommonAnswer::make(Make text) {
  const auto replies = std::make_shared<Replies>(std::exchange(gathered_for_, {}));
  const auto made_once = [make = std::move(text)]() mutable -> Result<std::string> {
    return std::exchange(make, nullptr)();  // What it owns goes there, too.
  };
  thread_.ask_within(limit_, made_once, [this, replies](Result<std::string>&& made) {
    auto answer = made ? ClientService::Answer::of_text(std::move(made).value())
                       : ClientService::Answer(refused("busy", made.error().message));
    deliver(std::make_shared<const ClientService::Answer>(std::move(answer)), replies);
  });
}

/// One a turn: a hundred large answers at once would hold up everybody else.
void CommonAnswer::deliver(std::shared_ptr<const ClientService::Answer> answer, std::shared_ptr<Replies> replies) {
  const ClientService::Reply reply = std::move(replies->front());
  replies->pop_front();
  reply(*answer);
  if (!replies->empty()) {
    boost::asio::post(io_,
                      [this, is_here = is_here_, answer = std::move(answer), replies = std::move(replies)]() mutable {
                        if (*is_here) deliver(std::move(answer), std::move(replies));
                      });
    return;
  }
  is_making_ = false;
  if (!waiting_.empty()) begin();
}

}  // namespace sgd::coordinator
