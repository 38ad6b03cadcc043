#pragma once
// The updates of worker/core/optimizers on a device: the same formulas, one operation of LibTorch after the other, in
// the same order. The bits are those of the host as far as the device rounds each operation as IEEE 754 says; a test
// compares the two.

#include <memory>
#include <vector>

#include "worker/core/step_optimizer.hpp"
#include "worker/torch/device.hpp"

namespace sgd::worker {

/// As make_step_optimizer(); all spans are addresses of the device.
[[nodiscard]] std::unique_ptr<StepOptimizer> make_device_optimizer(const std::vector<job::Optimizer>& groups,
                                                                   std::size_t count, const Device& device);

}  // namespace sgd::worker
