#pragma once
// The process between a launcher and the program that is run after a checkpoint: the hidden verb `sgd-launch callback`
// with kAfterSave as its second word. It ends the program with everything that it has started, at its deadline and when
// the launcher is gone, and tells the launcher how it has ended: one JSON object, {"state", "message"}.

#include <string>
#include <vector>

namespace sgd::callbacks {

inline constexpr const char* kAfterSave = "after-save";

/// What a guard says of a program that did not begin.
[[nodiscard]] std::string failed_report(const std::string& message);

/// `words`: the run's folder, kAfterSave, the run's id, and the checkpoint: its path there, its step, its epoch. The
/// launcher's socket is descriptor 3. Returns the exit status.
[[nodiscard]] int after_save_guard(const std::vector<std::string>& words);

}  // namespace sgd::callbacks
