// A stop does not wait for ever for a store that takes nothing.

#include <vector>

#include <catch2/catch.hpp>

#include "launcher/cli/stop_watch.hpp"

namespace sgd::cli {
namespace {

using std::chrono::milliseconds;

/// A store that answers when a test says so.
struct WatchedStop {
  boost::asio::io_context io;
  bool answers = true;
  int asked = 0;
  std::vector<std::string> given_up;
  StopWatch watch{io, StopWatch::Handlers{[this](std::function<void()> stored) {
                                            ++asked;
                                            if (answers) stored();
                                          },
                                          [this](const std::string& trouble) { given_up.push_back(trouble); }}};
  void run_for(Duration time) {
    io.restart();
    io.run_for(time);
  }
};

}  // namespace

TEST_CASE("stop watch: who asks for the end at once waits for no store that lacks room") {
  WatchedStop stop;
  stop.answers = false;
  stop.watch.on_trouble("no room");
  stop.watch.on_stop(std::chrono::hours(1), false);
  stop.run_for(2 * StopWatch::kTroubled);
  CHECK(stop.given_up.empty());  // The first one has the time that trials have.
  stop.watch.on_stop(std::chrono::hours(1), true);
  CHECK(stop.given_up.empty());
  stop.run_for(3 * StopWatch::kTroubled);
  CHECK(stop.given_up == std::vector<std::string>{"no room"});
}

TEST_CASE("stop watch: after the grace it waits for no store, either, whose trouble may come later") {
  WatchedStop stop;
  stop.answers = false;
  stop.watch.on_stop(milliseconds(1), false);
  stop.run_for(milliseconds(50));
  CHECK(stop.asked == 1);
  CHECK(stop.given_up.empty());
  stop.watch.on_trouble("no room");
  stop.run_for(3 * StopWatch::kTroubled);
  CHECK(stop.given_up == std::vector<std::string>{"no room"});
}

TEST_CASE("stop watch: a store that answers is asked again, and never given up") {
  WatchedStop stop;
  stop.watch.on_trouble("no room");
  stop.watch.on_stop(milliseconds(1), true);
  stop.run_for(5 * StopWatch::kTroubled);
  CHECK(stop.asked > 1);
  CHECK(stop.given_up.empty());
  stop.watch.on_stored();
  CHECK(stop.watch.trouble().empty());
  stop.watch.cancel();
  stop.run_for(milliseconds(10));
  CHECK(stop.given_up.empty());
}

}  // namespace sgd::cli
