#pragma once
// What a worker's program does, ours or a user's: one rank of a training run, or the fork server that makes ranks,
// started by sgd-launch; everything it must know comes over its link. By hand: what it has to offer, or a rank alone.

namespace sgd::worker {

/// The words of the command line, to the process's end.
[[noreturn]] int run_program(int argc, char** argv);

}  // namespace sgd::worker
