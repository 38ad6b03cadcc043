#pragma once
// The cosine that schedules use. The C library's differs in its last bit between CPUs with and without fused
// multiply-add, and between versions: ranks on two hosts would train with two learning rates. This one has the same
// bits on every x86-64 host, and is the correctly rounded value but for one argument in a thousand.

namespace sgd::worker {

/// Of radians, from -1e10 to 1e10.
[[nodiscard]] double cosine(double x);

}  // namespace sgd::worker
