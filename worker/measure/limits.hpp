#pragma once
// How much of a value by class fits a report, which is one line of 64 KiB on its way to the launcher.

#include <cstdint>

namespace sgd::worker {

/// Classes of a list in a report.
inline constexpr std::int64_t kListedClassesMax = 256;
/// Classes of a matrix in a report.
inline constexpr std::int64_t kMatrixClassesMax = 64;

}  // namespace sgd::worker
