#pragma once
// What the coordinator's shell does with its store (coordinator_shell, event_store): an event is on the disk some
// time after it was given, together with those that were given meanwhile, and the commands behind it wait for that.
// A process that dies loses what was not committed; a disk that lies, the end of what was.

#include <deque>
#include <functional>
#include <memory>
#include <variant>
#include <vector>

#include "launcher/core/coordinator_io.hpp"
#include "test/sim/world.hpp"

namespace sgd::sim {

class Log {
 public:
  using Store = core::coordinator_command::Store;
  /// Longer than any commit takes.
  static constexpr Duration kCommitMost = std::chrono::seconds(3);
  /// From an event until what follows from it is carried out: the commit that is in work, and its own.
  static constexpr Duration kEventMost = 2 * kCommitMost;

  /// `note` hears of an event when all that came before it has been carried out.
  Log(World& world, std::function<void(const Store&)> note, std::function<void(core::CoordinatorCommand&&)> carry_out)
      : world_(world), note_(std::move(note)), carry_out_(std::move(carry_out)) {}

  void push(core::CoordinatorCommand&& command);
  /// Nothing waits any more, nor is carried out. What was being written may be whole.
  void die();
  /// Of the newest events some are gone: none that a client or an operator has given, who would notice. False: there
  /// was nothing to lose.
  bool lose_tail();
  /// `known` takes the place of all events.
  void cut(Store known);
  [[nodiscard]] const std::vector<std::shared_ptr<const Store>>& stored() const { return stored_; }
  [[nodiscard]] bool is_idle() const { return waiting_.empty(); }

 private:
  struct Barrier {
    std::uint64_t number = 0;
    std::shared_ptr<const Store> store;
  };

  void write();
  void commit(std::uint64_t up_to);
  void drain();

  World& world_;
  std::function<void(const Store&)> note_;
  std::function<void(core::CoordinatorCommand&&)> carry_out_;
  std::vector<std::shared_ptr<const Store>> stored_;
  std::deque<Barrier> written_;  ///< Given, and not committed.
  std::deque<std::variant<Barrier, core::CoordinatorCommand>> waiting_;
  std::uint64_t given_ = 0;
  std::uint64_t committed_ = 0;
  std::uint64_t in_work_ = 0;  ///< What is being committed; 0: nothing.
  std::uint64_t life_ = 0;
  bool is_draining_ = false;
};

}  // namespace sgd::sim
