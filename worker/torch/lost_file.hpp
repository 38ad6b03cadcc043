#pragma once
// A mapped file that is cut while it is in use, or whose disk fails, ends the process by SIGBUS at whatever line reads
// its bytes. This says which file it was, and what to do.

namespace sgd::worker {

/// From now on such a signal ends the process with a message and one of worker_exit: a cut file is the user's mistake
/// (final), a disk that fails is the machine's. Any other SIGBUS ends it as before.
void explain_lost_files();

}  // namespace sgd::worker
