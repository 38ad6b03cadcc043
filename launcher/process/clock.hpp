#pragma once
// The clocks of the process shells, in one place: decisions take `now` as an argument, and only
// loops and waits with a deadline call this. Wall time goes into files and is never compared.

#include "common/base/time.hpp"

namespace sgd::process {

[[nodiscard]] TimePoint monotonic_now();
/// Wall time, since 1970.
[[nodiscard]] double unix_seconds();

/// Milliseconds from `now` to `deadline` for poll(): rounded up, never negative, at most one hour.
[[nodiscard]] int poll_timeout_ms(TimePoint now, TimePoint deadline);

}  // namespace sgd::process
