#pragma once
// The first process of a container. The kernel keeps signals from it that it has no handler for, and hands it the
// orphans of everybody there (docker exec, probes of Kubernetes), which stay as zombies unless it collects them. What
// is not made for that works in a child, as it does beneath docker run --init.

namespace sgd::process {

/// In the first process of a PID namespace: goes on in a child alone. The first process passes signals on to it,
/// collects all that end, and exits as the child has. Elsewhere, or where no child can be started, nothing happens.
/// To be called before there are threads, with SIGCHLD at its default.
void work_below_init();

}  // namespace sgd::process
