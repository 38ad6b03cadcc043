#pragma once
// The program behind the hidden verb `sgd-launch keeper`. Sets up the process, then hands over
// to Keeper. The agent starts it with its socket as descriptor 3, in a session of its own and
// without a death signal: the keeper outlives the agent by as long as it takes to kill its tree, or, where
// the descriptor listens, until another agent has not come for `agent_wait`.

#include "common/base/time.hpp"
#include "launcher/keeper/console_window.hpp"

namespace sgd::keeper {

/// Returns the exit status: 0 closed, 1 the agent is gone or could not be served, 2 not started by an agent.
/// `console_patience`, in place of ConsoleWindow's, is for the only agent of a socket that does not listen.
[[nodiscard]] int keeper_main(Duration agent_wait = {}, Duration console_patience = ConsoleWindow::kPatience);

/// One that waits for its run (spare.hpp): descriptor 3 is the socket of who holds it. Returns as keeper_main().
[[nodiscard]] int spare_keeper_main();

}  // namespace sgd::keeper
