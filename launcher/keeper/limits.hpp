#pragma once
// Every deadline of the keeper. Each bounds a wait for one named party, far above what a
// healthy one needs.

#include "common/base/time.hpp"

namespace sgd::keeper {

/// The fork server: from exec to Prepared (a first start may unpack a data set).
inline constexpr Duration kPrepareLimit = std::chrono::minutes(10);
/// A fork server that was held ready: until it has looked whether it still fits.
inline constexpr Duration kAdoptLimit = std::chrono::seconds(5);
/// The fork server: from Fork to its answer.
inline constexpr Duration kForkLimit = std::chrono::seconds(10);
/// The fork server: from closing its link to its end.
inline constexpr Duration kLinkClosedLimit = std::chrono::seconds(1);
/// Clear: how long unanswered forks, or anything below the fork server, may hold it up before the fork server
/// is killed.
inline constexpr Duration kClearPatience = std::chrono::seconds(2);
/// Clear: processes that SIGKILL does not end; after this the keeper gives up and the run fails.
inline constexpr Duration kClearLimit = std::chrono::seconds(60);
/// Close: for what ranks that have ended well have left behind, to end by itself.
inline constexpr Duration kLeftTime = std::chrono::milliseconds(100);
/// Clear: between two looks at the process tree when nothing is heard of it.
inline constexpr Duration kPassInterval = std::chrono::milliseconds(10);
/// Without an agent: how long the tree is killed before the keeper leaves anyway.
inline constexpr Duration kOrphanKillLimit = std::chrono::seconds(10);
/// Close: how long the agent may take to read the last messages.
inline constexpr Duration kLastWordsLimit = std::chrono::seconds(5);

/// What is typed for a rank whose terminal is full: until it is tried again.
inline constexpr Duration kInputPause = std::chrono::milliseconds(20);

/// A rank's terminal that nobody has open: until it is looked at again.
inline constexpr Duration kUnusedPause = std::chrono::milliseconds(100);
/// A rank or a fork server that has ended, and whose status a debugger keeps: until it is asked for again.
inline constexpr Duration kHeldPause = std::chrono::milliseconds(100);

/// A rank whose group is waited for: until it is looked at again, where no child of ours has ended in it.
inline constexpr Duration kGroupPause = std::chrono::milliseconds(20);

/// An agent that connects while no descriptor is free: until it is looked for again.
inline constexpr Duration kAcceptPause = std::chrono::milliseconds(100);

}  // namespace sgd::keeper
