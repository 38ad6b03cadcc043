#pragma once
// Accounts looked up beside an event loop: the library's calls wait for a directory service for as long as that
// likes. Each look-up has a thread of its own, which stays behind if nobody answers, and a deadline.

#include <functional>
#include <memory>
#include <string>

#include "common/base/result.hpp"
#include "common/base/time.hpp"
#include "launcher/process/account.hpp"

namespace boost::asio {
class io_context;
}

namespace sgd::process {

class AccountLookup {
 public:
  /// Look-ups that nobody has answered yet, those given up too; one more is refused.
  static constexpr int kPendingMax = 32;
  using OnFound = std::function<void(Result<Account>)>;
  using LookUp = std::function<Result<Account>(const std::string& name)>;

  /// `io` must outlive this. `look_up` is called on threads, and may take for ever.
  explicit AccountLookup(boost::asio::io_context& io, LookUp look_up = look_up_account);
  /// Nobody is told any more.
  ~AccountLookup();
  AccountLookup(const AccountLookup&) = delete;
  AccountLookup& operator=(const AccountLookup&) = delete;

  /// `on_found` is called once, on the loop, never inside. Errors as of find_account().
  void find(const std::string& name, Duration limit, OnFound on_found);

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace sgd::process
