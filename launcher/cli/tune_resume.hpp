#pragma once
// `sgd-launch tune --resume RUN`: an experiment goes on, here or on a cluster.

#include <optional>
#include <string>

#include "common/json/diagnostics.hpp"
#include "launcher/cli/run_options.hpp"
#include "launcher/net/dialer.hpp"

namespace sgd::cli {

/// With the trials that its end has interrupted, with more of them (`options` may set "tune.samples", and nothing
/// else), or with another search program. One on a cluster that has not ended is joined: it is followed from here, and
/// its search program is started here. The exit code.
[[nodiscard]] int resume_experiment(const RunOptions& options, const std::string& name,
                                    const std::optional<net::Address>& coordinator, Diagnostics diagnostics);

}  // namespace sgd::cli
