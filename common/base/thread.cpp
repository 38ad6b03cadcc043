#include "common/base/thread.hpp"

#include <pthread.h>
#include <signal.h>

#include <system_error>
#include <utility>

namespace sgd {
namespace {

class NoSignals {
 public:
  NoSignals() {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~NoSignals() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  NoSignals(const NoSignals&) = delete;
  NoSignals& operator=(const NoSignals&) = delete;

 private:
  sigset_t before_{};
};

}  // namespace

Result<std::thread> start_thread(std::function<void()> work) {
  const NoSignals while_it_begins;
  try {
    return std::thread(std::move(work));
  } catch (const std::system_error& refused) {
    return Error{"no room for another thread: " + refused.code().message(), refused.code().value()};
  }
}

}  // namespace sgd
