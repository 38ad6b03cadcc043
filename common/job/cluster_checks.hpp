#pragma once
// What a job may ask for on this machine and not of a cluster, whose coordinator starts no program of a job, writes to
// no folder that a job names and reads none. Asked by the client, which knows the places in the file, and by the
// coordinator, which believes no client.

#include "common/job/load.hpp"

namespace sgd::job {

/// Appends an error for each; with one there is no job any more.
void check_for_cluster(LoadResult& loaded);

}  // namespace sgd::job
