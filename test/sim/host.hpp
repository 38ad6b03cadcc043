#pragma once
// The process around a machine of the core: hands it events one at a time, wakes it when it asks to be
// woken, and carries out its commands. It can stand still for a while (a stopped process, a machine that
// sleeps): then everything waits, and comes late in the order of arrival, with the tick anywhere among it.

#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "test/sim/twin.hpp"
#include "test/sim/world.hpp"

namespace sgd::sim {

template <class Core, class Event, class Tick, class Command>
class Host {
 public:
  /// `observe` sees each event when the machine does; `note`, with what came of it, when nothing is carried out yet.
  Host(World& world, std::function<void(const Event&)> observe, std::function<void(Command&&)> carry_out,
       std::function<void(const Event&, const std::vector<Command>&)> note)
      : world_(world), observe_(std::move(observe)), carry_out_(std::move(carry_out)), note_(std::move(note)) {}
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;

  template <class... Arguments>
  void start(Arguments&&... arguments) {
    end();
    core_ = std::make_unique<Core>(std::forward<Arguments>(arguments)...);
  }
  void end() {
    core_.reset();
    twin_.reset();
    backlog_.clear();
    armed_.reset();
    paused_until_.reset();
    ++life_;
  }
  [[nodiscard]] bool alive() const { return core_ != nullptr; }
  [[nodiscard]] const Core& core() const { return *core_; }
  /// For a replay before the first event.
  [[nodiscard]] Core& machine() { return *core_; }
  [[nodiscard]] bool paused() const { return paused_until_.has_value(); }

  void tell(Event event) {
    if (!core_) return;
    if (paused_until_) {
      backlog_.push_back(std::move(event));
    } else {
      run(event);
    }
  }

  void pause(Duration duration) {
    if (!core_ || paused_until_) return;
    paused_until_ = world_.queue.now() + duration;
    world_.queue.at(*paused_until_, [this, life = life_] {
      if (life == life_) resume();
    });
  }

 private:
  /// More wake-ups than this without time going on: the machine asks for a time that it does nothing at.
  static constexpr int kSpinMax = 1000;

  void run(const Event& event) {
    commands_.clear();
    observe_(event);
    core_->on(world_.queue.now(), event, commands_);
    twin_.on(world_.queue.now(), event, *core_, commands_);
    if (note_) note_(event, commands_);
    // Nothing here speaks to this machine again before it is done: everything else has a delay.
    for (Command& command : commands_) carry_out_(std::move(command));
    arm();
  }

  void resume() {
    paused_until_.reset();
    std::vector<Event> late = std::exchange(backlog_, {});
    const auto place = static_cast<std::size_t>(world_.chance.between(0, static_cast<int>(late.size())));
    for (std::size_t index = 0; index <= late.size() && core_; ++index) {
      if (index == place) tick_if_due();
      if (index < late.size() && core_) run(late[index]);
    }
    if (core_) arm();
  }

  void tick_if_due() {
    const std::optional<TimePoint> next = core_->next_wakeup();
    if (next && *next <= world_.queue.now()) run(Event{Tick{}});
  }

  void arm() {
    const std::optional<TimePoint> next = core_->next_wakeup();
    if (!next || (armed_ && *armed_ <= *next)) return;
    armed_ = *next;
    world_.queue.at(*next, [this, life = life_] {
      if (life == life_) wake();
    });
  }

  void wake() {
    if (!armed_ || *armed_ > world_.queue.now()) return;
    armed_.reset();
    if (paused_until_) return;
    spins_ = world_.queue.now() == woken_at_ ? spins_ + 1 : 0;
    woken_at_ = world_.queue.now();
    if (spins_ > kSpinMax) violated("a machine asks again and again to be woken at once");
    tick_if_due();
    if (core_) arm();
  }

  World& world_;
  std::function<void(const Event&)> observe_;
  std::function<void(Command&&)> carry_out_;
  std::function<void(const Event&, const std::vector<Command>&)> note_;
  std::unique_ptr<Core> core_;
  Twin<Core, Event, Command> twin_;
  std::vector<Command> commands_;
  std::vector<Event> backlog_;
  std::optional<TimePoint> paused_until_;
  std::optional<TimePoint> armed_;
  std::uint64_t life_ = 0;
  TimePoint woken_at_{};
  int spins_ = 0;
};

}  // namespace sgd::sim
