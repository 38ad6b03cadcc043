// A copy that is held is part of the saved state: a machine that is made of that makes it.

#include <catch2/catch.hpp>

#include "../core/experiment_bench.hpp"
#include "launcher/storage/event_codec.hpp"
#include "launcher/storage/state_codec.hpp"

namespace sgd::storage {
namespace {

/// What a machine that was saved and read again would copy in this event.
std::vector<std::string> copied_by_twin(const core::Coordinator& machine, const core::CoordinatorEvent& event) {
  auto state = decode_state(encode_state(machine.state()));
  REQUIRE(state.ok());
  core::Coordinator twin({}, std::move(state).value());
  core::CoordinatorCommands commands;
  twin.on({}, event, commands);
  std::vector<std::string> paths;
  for (const core::CoordinatorCommand& command : commands)
    if (const auto* take = std::get_if<core::coordinator_command::TakeCheckpoint>(&command))
      paths.push_back(take->from);
  return paths;
}

}  // namespace

TEST_CASE("held copy: it outlives the process, and is made when the state that was compared is stored") {
  core::ExperimentBench bench;
  bench.begin({{"samples", 2}, {"scheduler", {{"type", "pbt"}, {"quantile", 0.5}, {"interval_epochs", 1}}}});
  for (const int trial : {0, 1}) bench.start(trial);
  bench.save(0, 1);
  bench.report(0, 1, 0.8);
  bench.report(0, 2, 0.9);
  bench.report(1, 1, 0.1);
  REQUIRE(bench.experiment().copies_.size() == 1);
  std::vector<std::string> copied;
  bench.before = [&](const core::CoordinatorEvent& event) { copied = copied_by_twin(bench.coordinator(), event); };
  bench.save(0, 2);
  CHECK(copied == std::vector<std::string>{"/x/trials/0000/" + bench.path_of(0, 2)});
  CHECK(bench.experiment().copies_.empty());
}

}  // namespace sgd::storage
