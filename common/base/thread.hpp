#pragma once
// The one way to start a thread: where the system has no room for another one (a fork bomb at the limit of processes),
// std::thread throws, and who was about to clear up would end of it.

#include <functional>
#include <thread>

#include "common/base/result.hpp"

namespace sgd {

/// A thread that does `work` and hears no signals: those are for the main thread. Error: there is no room for one
/// (EAGAIN), which may pass.
[[nodiscard]] Result<std::thread> start_thread(std::function<void()> work);

}  // namespace sgd
