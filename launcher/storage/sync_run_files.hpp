#pragma once
// What ended runs have written reaches the disk, for as many at a time as there are.

#include <string>
#include <vector>

namespace sgd::storage {

/// Lines are written without waiting for the disk, as long as the events that they are made of are stored. What cannot
/// be opened or brought there is left out: the folder is the user's, and what counts of it is in the run's row.
void sync_run_files(const std::vector<std::string>& run_dirs);

}  // namespace sgd::storage
