#include "test/sim/worker.hpp"

#include <csignal>

#include "common/exit_codes.hpp"
#include "test/sim/cluster.hpp"
#include "test/sim/group.hpp"
#include "test/sim/keeper.hpp"
#include "test/sim/node.hpp"
#include "test/sim/run_state.hpp"

namespace sgd::sim {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr const char* kExchange = "shm";

}  // namespace

Worker::Worker(World& world, RunState& run, Keeper& keeper, Identity identity)
    : world_(world),
      run_(run),
      keeper_(keeper),
      identity_(std::move(identity)),
      to_agent_(world.queue, [this](core::AgentEvent&& event) { keeper_.tell_agent(std::move(event)); }),
      from_agent_(world.queue, [this](link::ToWorker&& message) { hear(std::move(message)); }) {
  progress_.phase = "starting";
}

Node& Worker::node() {
  return keeper_.node();
}

LastWords::Speaker Worker::speaker() const {
  return {run_.plan.definition.id, generation(), rank()};
}

Duration Worker::start_up() {
  if (!world_.calm && world_.chance.with(world_.plan.slow_start)) {
    world_.count(Fault::kSlowStart);
    return world_.chance.between(seconds(5), seconds(90));
  }
  if (identity_.by_fork_server) return world_.chance.between(milliseconds(2), milliseconds(30));
  return world_.chance.between(milliseconds(100), milliseconds(800));
}

void Worker::begin() {
  const bool is_command = !run_.plan.definition.job.training;
  const Duration time = start_up();
  if (!world_.calm && world_.chance.with(world_.plan.crash_at_start)) {
    world_.count(Fault::kCrashAtStart);
    const bool by_signal = world_.chance.with(0.7);
    world_.queue.after(world_.chance.between(Duration{0}, time), [this, by_signal] {
      end(by_signal ? -1 : worker_exit::kEnvironment, by_signal ? SIGSEGV : 0, false);
    });
  }
  if (!world_.calm && node().plan().broken.contains(identity_.gpu))
    world_.queue.after(time + world_.chance.between(Duration{0}, seconds(20)), [this] { fail_by_gpu(); });
  if (is_command) return exit_soon(0, run_.plan.command_time + time);
  world_.queue.after(time, [this] { say_hello(); });
}

/// As CUDA words it: on standard error, and in training over the link.
void Worker::fail_by_gpu() {
  if (!alive_ || frozen_ || stalled_ || world_.calm) return;
  world_.count(Fault::kBrokenGpu);
  node().cluster().gpus().on_broken(run_, identity_);
  last_lines_ = {"CUDA error: uncorrectable ECC error encountered"};
  const bool is_training = run_.plan.definition.job.training.has_value();
  if (is_training) say(link::Failed{last_lines_.front(), ""});
  end(is_training ? worker_exit::kEnvironment : 1, 0, false);
}

void Worker::say_hello() {
  if (!alive_ || frozen_) return;
  if (node().is_away()) {  // Somebody will listen there again.
    world_.queue.after(milliseconds(10), [this] { say_hello(); });
    return;
  }
  connection_ = node().connect(*this);
  if (connection_ == 0) return exit_soon(worker_exit::kEnvironment, milliseconds(1));
  say(link::Hello{identity_.token, identity_.pid, link::kProtocol, "sim"});
  beat();
}

void Worker::say(link::FromWorker message) {
  if (!alive_ || frozen_ || connection_ == 0) return;
  const Duration delay = world_.chance.with(world_.plan.late_word)
                             ? world_.chance.between(milliseconds(1), milliseconds(190))
                             : world_.chance.between(microseconds(20), milliseconds(2));
  const bool is_heard = node().incarnation() == keeper_.incarnation();
  if (is_heard && std::holds_alternative<link::Report>(message)) node().last_words().on_said(speaker());
  const bool is_news =
      std::holds_alternative<link::Report>(message) || std::holds_alternative<link::CheckpointSaved>(message);
  to_agent_.send(core::agent_event::FromWorker{connection_, identity_.pid, std::move(message), run_.plan.definition.id},
                 delay);
  if (!is_news || world_.calm || !world_.chance.with(world_.plan.dies_speaking)) return;
  world_.count(Fault::kKillRank);
  world_.queue.after(world_.chance.between(milliseconds(1), milliseconds(190)), [this] { end(-1, SIGKILL, false); });
}

void Worker::beat() {
  if (!alive_ || frozen_) return;
  say(progress_);
  world_.queue.after(run_.plan.definition.job.heartbeat.interval, [this] { beat(); });
}

void Worker::tell(link::ToWorker message) {
  from_agent_.send(std::move(message), world_.chance.between(microseconds(20), milliseconds(1)));
}

void Worker::hear(link::ToWorker message) {
  if (!alive_ || frozen_) return;
  if (auto* assignment = std::get_if<link::Assignment>(&message)) {
    take(std::move(*assignment));
  } else if (const auto* value = std::get_if<link::ExchangeValue>(&message)) {
    take(*value);
  } else if (std::holds_alternative<link::Stop>(message)) {
    wants_stop_ = true;
  } else if (const auto* leave = std::get_if<link::StopAtEpoch>(&message)) {
    wants_leave_ = true;
    leaves_at_checkpoint_ = leave->at_checkpoint;
  }
}

void Worker::take(link::Assignment message) {
  if (message.generation != generation() || message.rank != rank() || assigned_)
    violated("{}: rank {} of generation {} was given the assignment of rank {} of generation {}", message.run, rank(),
             generation(), message.rank, message.generation);
  assigned_ = true;
  assignment_ = std::move(message);
  world_.queue.after(world_.chance.between(milliseconds(1), milliseconds(60)), [this] {
    say(link::ExchangePut{kExchange, exchange_value(rank())});
  });
}

std::string Worker::exchange_value(Rank rank) const {
  return fmt::format("{}.{}", generation(), rank);
}

void Worker::take(const link::ExchangeValue& message) {
  if (group_ != nullptr) return;  // Told again after a reconnect.
  if (message.rank != values_ || message.count != assignment_.world_size || message.value != exchange_value(values_))
    violated("{}: rank {} of generation {} got {} of {} values as number {}: {}", assignment_.run, rank(), generation(),
             message.rank, message.count, values_, message.value.dump());
  if (++values_ < message.count) return;
  auto& group = run_.groups[generation()];
  // A generation that its coordinator has forgotten may come again.
  if (group && run_.check.is_forgotten(generation()) && group->is_over()) run_.past_groups.push_back(std::move(group));
  if (!group) group = std::make_unique<Group>(world_, run_, generation(), assignment_.world_size);
  group_ = group.get();
  group_->join(*this);
}

void Worker::lose_link() {
  world_.queue.after(microseconds(100), [this] {
    if (!frozen_) end(worker_exit::kEnvironment, 0, false);
  });
}

void Worker::terminate() {
  if (frozen_ || run_.plan.ignores_stop) return;
  const bool handles_it = world_.chance.with(0.5);
  world_.queue.after(world_.chance.between(milliseconds(1), milliseconds(500)), [this, handles_it] {
    if (!frozen_) end(handles_it ? 0 : -1, handles_it ? 0 : SIGTERM, false);
  });
}

void Worker::exit_soon(int exit_code, Duration delay) {
  world_.queue.after(delay, [this, exit_code] {
    if (!frozen_ && !stalled_) end(exit_code, 0, false);
  });
}

void Worker::stall() {
  stalled_ = true;
  if (group_ != nullptr) group_->look_for_waiting();
}

void Worker::say_first_step(std::int64_t step) {
  first_step_said_ = true;
  say(link::FirstStep{step});
}

void Worker::end(int exit_code, int signal, bool is_order) {
  if (!alive_) return;
  alive_ = false;
  std::erase(run_.alive, this);
  run_.check.on_process_end(node().id(), {generation(), rank(), exit_code, signal, is_order});
  if (connection_ != 0) {
    to_agent_.send(core::agent_event::LinkClosed{connection_},
                   world_.chance.between(microseconds(20), milliseconds(3)));
    node().disconnect(connection_);
  }
  if (group_ != nullptr) group_->on_end(*this);
  keeper_.on_end(*this, exit_code, signal);
}

}  // namespace sgd::sim
