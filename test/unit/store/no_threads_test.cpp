// Where there is no room for a thread: files are worked on all the same, and a store says what it lacks.

#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <catch2/catch.hpp>

#include "launcher/storage/event_store.hpp"
#include "launcher/storage/file_thread.hpp"
#include "state_folder.hpp"
#include "test/unit/common/no_threads.hpp"

using namespace sgd;
using namespace std::chrono_literals;

namespace {

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += word + " ";
  return text;
}

}  // namespace

TEST_CASE("file thread: where there is no room for it, the event loop does its work, in the same order") {
  boost::asio::io_context io;
  std::vector<std::string> said;
  const auto order = [&](storage::FileThread& files, const std::string& name) {
    files.run([&said, name] { said.push_back("work " + name); }, [&said, name] { said.push_back("done " + name); });
  };
  storage::FileThread files(io);
  {
    const test::NoThreads none;
    order(files, "1");
    order(files, "2");
    CHECK(said.empty());  // Never inside run().
    io.run();
    CHECK(joined(said) == "work 1 work 2 done 1 done 2 ");
    said.clear();
    std::string answer;
    const auto ask = []() -> Result<std::string> { return std::string("yes"); };
    files.ask_within(60s, ask, [&answer](const Result<std::string>& got) { answer = got ? got.value() : "late"; });
    io.restart();
    io.run();
    CHECK(answer == "yes");
  }
  order(files, "3");
  io.restart();
  io.run();
  CHECK(joined(said) == "work 3 done 3 ");
}

TEST_CASE("file thread: without a thread, what was ordered is carried out before the end, and dropped without one") {
  boost::asio::io_context io;
  const test::NoThreads none;
  int done = 0;
  {
    storage::FileThread files(io);
    files.run([&done] { done += 1; }, [&done] { done += 10; });
    files.finish();
    CHECK(done == 1);
    files.run([&done] { done += 100; }, [&done] { done += 1000; });
  }
  io.run();
  CHECK(done == 1);
}

TEST_CASE("event store: without room for its threads it does not start; without one for a cut, that waits") {
  const test::StateFolder folder;
  std::vector<std::string> cuts;
  storage::EventStore::Handlers handlers;
  handlers.on_cut = [&](const Result<std::shared_ptr<const storage::StateCut>>& cut) {
    cuts.push_back(cut ? "cut" : cut.error().message);
  };
  auto store = storage::EventStore::open(folder.state());
  REQUIRE(store.ok());
  {
    const test::NoThreads none;
    const Status started = store.value()->start(handlers);
    REQUIRE_FALSE(started);
    CHECK_THAT(started.error().message, Catch::StartsWith("no room for another thread"));
    store.value()->compact(1, {});
    REQUIRE(cuts.size() == 1);
    CHECK_THAT(cuts.front(), Catch::StartsWith("no room for another thread"));
  }
}
