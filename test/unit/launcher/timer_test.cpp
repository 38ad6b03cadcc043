#include "launcher/net/timer.hpp"

#include <chrono>
#include <functional>
#include <memory>

#include <catch2/catch.hpp>

#include <boost/asio/io_context.hpp>

using namespace std::chrono_literals;

namespace sgd::net {
namespace {

/// Two times that have come both before the loop looks: `first` is done at the first one's turn, when the second one
/// waits for its own already.
void run_both(boost::asio::io_context& io, std::unique_ptr<Timer>& second, const std::function<void()>& first,
              const std::function<void()>& then) {
  Timer timer(io);
  const TimePoint now = std::chrono::steady_clock::now();
  timer.at(now - 2ms, first);
  second->at(now - 1ms, then);
  io.run();
}

}  // namespace

TEST_CASE("timer: what has been given up is not done, also where its time has come already") {
  boost::asio::io_context io;
  auto timer = std::make_unique<Timer>(io);
  int done = 0;
  int newer = 0;
  const auto count = [&done] { ++done; };
  SECTION("by nobody") {
    run_both(
        io, timer, [] {}, count);
    CHECK(done == 1);
  }
  SECTION("by cancel()") {
    run_both(
        io, timer, [&] { timer->cancel(); }, count);
    CHECK(done == 0);
  }
  SECTION("by its end") {
    run_both(
        io, timer, [&] { timer.reset(); }, count);
    CHECK(done == 0);
  }
  SECTION("by a newer wait") {
    run_both(
        io, timer, [&] { timer->after(1ms, [&newer] { ++newer; }); }, count);
    CHECK(done == 0);
    CHECK(newer == 1);
  }
}

TEST_CASE("timer: what is done may end the timer, or wait again") {
  boost::asio::io_context io;
  auto timer = std::make_unique<Timer>(io);
  int done = 0;
  timer->after(0ms, [&] {
    ++done;
    timer->after(0ms, [&] {
      ++done;
      timer.reset();
    });
  });
  io.run();
  CHECK(done == 2);
  CHECK_FALSE(timer);
}

}  // namespace sgd::net
