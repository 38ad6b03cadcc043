#pragma once
// Beside a machine goes one that was made of its saved state: it must answer every event as the first does. Each few
// events it is made anew, so that every state is one that a restart could begin with.

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/base/time.hpp"
#include "test/sim/world.hpp"

namespace sgd::sim {

template <class Core, class Event, class Command>
class Twin {
 public:
  /// A prime, so that it falls on every kind of event.
  static constexpr int kEvery = 13;

  /// Makes a machine of what `core` would be saved as. Absent: there are no twins.
  static inline std::function<std::unique_ptr<Core>(const Core& core)> copy;
  static inline std::function<std::string(const Command& command)> words;

  void reset() { twin_.reset(); }
  /// `core` has answered `event` with `commands`.
  void on(TimePoint now, const Event& event, const Core& core, const std::vector<Command>& commands) {
    if (!copy) return;
    if (twin_) {
      std::vector<Command> answers;
      twin_->on(now, event, answers);
      compare(commands, answers);
      if (twin_->next_wakeup() != core.next_wakeup()) violated("a restored machine wants to be woken at another time");
    }
    if (++events_ % kEvery == 0) twin_ = copy(core);
  }

 private:
  static void compare(const std::vector<Command>& commands, const std::vector<Command>& answers) {
    for (std::size_t index = 0; index < std::max(commands.size(), answers.size()); ++index) {
      const std::string one = index < commands.size() ? words(commands[index]) : "nothing";
      const std::string other = index < answers.size() ? words(answers[index]) : "nothing";
      if (one != other) violated("a restored machine answers {}\nthe one it was restored from {}", other, one);
    }
  }

  std::unique_ptr<Core> twin_;
  std::uint64_t events_ = 0;
};

/// From here on there are twins.
void make_twins();

}  // namespace sgd::sim
