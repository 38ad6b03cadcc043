#pragma once
// Puts the command line's values into a document before the schema sees it, so that a wrong path
// or value gets the same errors as in a file, under the override's own name.

#include "common/job/load.hpp"
#include "common/json/reader.hpp"

namespace sgd::job {

void apply_overrides(const Overrides& overrides, json::Document& document, Diagnostics& diagnostics);

}  // namespace sgd::job
