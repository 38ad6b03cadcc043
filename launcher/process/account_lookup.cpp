#include "launcher/process/account_lookup.hpp"

#include <cerrno>
#include <cstdint>
#include <map>
#include <mutex>

#include <fmt/format.h>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

#include "common/base/thread.hpp"

namespace sgd::process {

namespace asio = boost::asio;

struct AccountLookup::State : std::enable_shared_from_this<State> {
  struct Asked {
    OnFound on_found;
    std::unique_ptr<asio::steady_timer> deadline;
  };

  void find(asio::io_context& loop, const std::string& name, Duration limit, OnFound on_found) {
    const std::uint64_t number = ++asked_last;
    Asked& one = asked[number];
    one.on_found = std::move(on_found);
    one.deadline = std::make_unique<asio::steady_timer>(loop, limit);
    one.deadline->async_wait([self = shared_from_this(), number, name, limit](const boost::system::error_code& error) {
      if (!error) self->answer(number, no_answer(name, limit));
    });
    if (pending >= kPendingMax)
      return answer_soon(number,
                         Error{fmt::format("{} look-ups wait for this machine's account service", pending), ETIMEDOUT});
    // The library's calls wait for a directory service without a limit.
    auto lookup = start_thread([self = shared_from_this(), number, name] { self->look_up(number, name); });
    if (!lookup) return answer_soon(number, not_looked_up(name, lookup.error()));
    ++pending;
    // tidy: allow detach: they cannot be interrupted either; the thread owns all that it touches.
    lookup.value().detach();
  }

  /// On the look-up's thread.
  void look_up(std::uint64_t number, const std::string& name) {
    auto found = ask(name);
    const std::lock_guard lock(mutex);
    if (io == nullptr) return;
    asio::post(*io, [self = shared_from_this(), number, found = std::move(found)]() mutable {
      --self->pending;
      self->answer(number, std::move(found));
    });
  }

  void answer_soon(std::uint64_t number, Result<Account> found) {
    asio::post(*io, [self = shared_from_this(), number, found = std::move(found)]() mutable {
      self->answer(number, std::move(found));
    });
  }

  /// The first answer counts.
  void answer(std::uint64_t number, Result<Account> found) {
    const auto one = asked.extract(number);
    if (one.empty()) return;
    one.mapped().deadline->cancel();
    one.mapped().on_found(std::move(found));
  }

  std::mutex mutex;                ///< Of `io`, which threads that stay behind must not use.
  asio::io_context* io = nullptr;  ///< Null: nobody is told any more.
  LookUp ask;
  std::map<std::uint64_t, Asked> asked;
  std::uint64_t asked_last = 0;
  int pending = 0;
};

AccountLookup::AccountLookup(asio::io_context& io, LookUp look_up) : state_(std::make_shared<State>()) {
  state_->io = &io;
  state_->ask = std::move(look_up);
}

AccountLookup::~AccountLookup() {
  state_->asked.clear();
  const std::lock_guard lock(state_->mutex);
  state_->io = nullptr;
}

void AccountLookup::find(const std::string& name, Duration limit, OnFound on_found) {
  state_->find(*state_->io, name, limit, std::move(on_found));
}

}  // namespace sgd::process
