#pragma once
// LibTorch's CUDA part, opened at run time.

namespace sgd::worker {

/// Opens LibTorch's CUDA part, and touches no device: a process may fork after it. Before anything else of LibTorch.
/// Throws ConfigurationError, which says what is missing and what to do.
void open_device_library();

}  // namespace sgd::worker
