// The one way to start a thread, where there is room for one and where there is not.

#include "common/base/thread.hpp"

#include <signal.h>

#include <cerrno>
#include <future>

#include <catch2/catch.hpp>

#include "no_threads.hpp"

using namespace sgd;

TEST_CASE("thread: it does its work, hears no signals, and leaves those of whoever starts it as they were") {
  std::promise<bool> promise;
  auto thread = start_thread([&promise] {
    sigset_t blocked;
    ::pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
    promise.set_value(::sigismember(&blocked, SIGTERM) == 1);
  });
  REQUIRE(thread);
  CHECK(promise.get_future().get());
  thread.value().join();
  sigset_t blocked;
  ::pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
  CHECK(::sigismember(&blocked, SIGTERM) == 0);
}

TEST_CASE("thread: where there is no room for one, that is said, and the next one is tried") {
  bool has_run = false;
  {
    const test::NoThreads none;
    const auto thread = start_thread([&has_run] { has_run = true; });
    REQUIRE_FALSE(thread);
    CHECK(thread.error().code == EAGAIN);
    CHECK(thread.error().message == "no room for another thread: Resource temporarily unavailable");
  }
  auto thread = start_thread([&has_run] { has_run = true; });
  REQUIRE(thread);
  thread.value().join();
  CHECK(has_run);
}
