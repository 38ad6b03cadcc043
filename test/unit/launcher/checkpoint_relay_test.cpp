// Which node is asked for a checkpoint that the coordinator lacks, and for how long.

#include "launcher/coordinator/checkpoint_relay.hpp"

#include <catch2/catch.hpp>

using namespace sgd;
using namespace std::chrono_literals;
using coordinator::CheckpointRelay;
using What = coordinator::RelayAction::What;

namespace {

const coordinator::CheckpointId kWanted{"run1", "checkpoints/step-000000000100-gen-0001"};

/// The relay with peers 1, 2, 3; 3 asks.
struct Asked {
  coordinator::PeerId foreign = 0;  ///< Has had no rank of the run.
  CheckpointRelay relay{[this](coordinator::PeerId peer, const RunId&) { return peer != foreign; }};
  coordinator::RelayActions out;
  TimePoint now{};

  Asked() {
    for (const coordinator::PeerId peer : {1, 2, 3}) relay.on_peer(now, peer, out);
  }
  /// "ship 1, refuse 3": what was to be done since the last call.
  std::string words() {
    std::string text;
    for (const auto& action : std::exchange(out, {})) {
      const char* what = action.what == What::kShip ? "ship " : action.what == What::kPending ? "pending " : "refuse ";
      text += (text.empty() ? "" : ", ") + std::string(what) + std::to_string(action.peer);
    }
    return text;
  }
  void ask() { relay.on_wanted(now, 3, kWanted, out); }
  void tick(Duration time) {
    now += time;
    relay.on_tick(now, out);
  }
};

}  // namespace

TEST_CASE("relay: one after the other is asked, never the one who wants it") {
  Asked at;
  at.ask();
  CHECK(at.words() == "ship 1");
  at.relay.on_lacks(at.now, 2, kWanted, "not asked", at.out);
  CHECK(at.words().empty());
  at.relay.on_lacks(at.now, 1, kWanted, "no", at.out);
  CHECK(at.words() == "ship 2");
  CHECK(at.relay.on_stored(kWanted) == std::set<coordinator::PeerId>{3});
  CHECK_FALSE(at.relay.next_wakeup());
}

TEST_CASE("relay: a node that never had a rank of the run is not asked") {
  Asked at;
  at.foreign = 1;
  at.ask();
  CHECK(at.words() == "ship 2");
  at.relay.on_lacks(at.now, 2, kWanted, "no", at.out);
  CHECK(at.words().empty());
}

TEST_CASE("relay: who is putting it already is asked first") {
  Asked at;
  at.relay.on_bytes(at.now, 2, kWanted, 10);
  at.ask();
  CHECK(at.words() == "ship 2");
}

TEST_CASE("relay: a source that is gone or silent gives way to the next") {
  Asked at;
  at.ask();
  (void)at.words();
  SECTION("gone") {
    at.relay.on_gone(at.now, 1, at.out);
  }
  SECTION("silent") {
    at.tick(CheckpointRelay::kSilence - 1s);
    at.relay.on_bytes(at.now, 1, kWanted, 10);
    at.tick(CheckpointRelay::kSilence - 1s);
    CHECK(at.words() == "pending 3, pending 3");
    at.tick(1s);
    CHECK(at.words().find("ship 2") != std::string::npos);
    return;
  }
  CHECK(at.words() == "ship 2");
}

TEST_CASE("relay: when nobody has it, those who come within the patience are asked, then it is refused") {
  Asked at;
  at.ask();
  for (const coordinator::PeerId peer : {1, 2}) at.relay.on_lacks(at.now, peer, kWanted, "no", at.out);
  CHECK(at.words() == "ship 1, ship 2");
  at.tick(CheckpointRelay::kPatience - 1s);
  CHECK(at.words() == "pending 3");
  SECTION("somebody comes") {
    at.relay.on_peer(at.now, 4, at.out);
    CHECK(at.words() == "ship 4");
  }
  SECTION("nobody comes") {
    at.tick(1s);
    REQUIRE(at.out.size() == 1);
    CHECK(at.out.front().reason == "nobody can give it: no");
    CHECK(at.words() == "refuse 3");
    CHECK_FALSE(at.relay.next_wakeup());
  }
}

TEST_CASE("relay: nobody is asked for one who is gone") {
  Asked at;
  at.ask();
  at.relay.on_gone(at.now, 3, at.out);
  CHECK(at.words() == "ship 1");
  CHECK_FALSE(at.relay.next_wakeup());
}

TEST_CASE("relay: for one peer no more are looked for at a time than it may want; limit kWantedMax") {
  Asked at;
  const auto want = [&](coordinator::PeerId peer, int step) {
    at.relay.on_wanted(at.now, peer, {"run1", "checkpoints/" + std::to_string(step)}, at.out);
    return at.words();
  };
  constexpr int kMost = CheckpointRelay::kWantedMax;
  for (int step = 0; step < kMost; ++step) CHECK(want(3, step) == "ship 1");
  CHECK(want(3, kMost) == "refuse 3");
  CHECK(want(3, 0).empty());  // It is looked for.
  CHECK(want(2, kMost) == "ship 1");
  (void)at.relay.on_stored({"run1", "checkpoints/0"});
  CHECK(want(3, kMost + 1) == "ship 1");
  CHECK(want(3, kMost + 2) == "refuse 3");
  at.tick(CheckpointRelay::kSilence + CheckpointRelay::kPatience);
  at.tick(CheckpointRelay::kSilence + CheckpointRelay::kPatience);
  (void)at.words();
  CHECK(want(3, kMost + 2) == "ship 1");  // All others were refused in the end.
  at.relay.on_gone(at.now, 3, at.out);
  at.relay.on_peer(at.now, 3, at.out);
  (void)at.words();
  for (int step = 0; step < kMost; ++step) CHECK(want(3, step) == "ship 1");
}

TEST_CASE("relay: of all that a peer puts, the newest is what it is asked for first") {
  Asked at;
  for (int step = 0; step < 100; ++step)
    at.relay.on_bytes(at.now, 2, {"run1", "checkpoints/" + std::to_string(step)}, 5);
  at.relay.on_wanted(at.now, 3, {"run1", "checkpoints/98"}, at.out);
  CHECK(at.words() == "ship 1");
  at.relay.on_wanted(at.now, 3, {"run1", "checkpoints/99"}, at.out);
  CHECK(at.words() == "ship 2");
}
