#pragma once
// For a function's backward() that can write a parameter's gradient to where it is wanted, instead
// of returning a tensor that is copied there.

#include <torch/torch.h>

namespace sgd::worker {

/// The place for the gradient of `parameter`, to be overwritten and returned as this gradient. Undefined when there is
/// none, or when it was claimed before in this backward pass: a parameter that is used twice has a sum as its gradient.
[[nodiscard]] at::Tensor claim_gradient_place(const at::Tensor& parameter);

}  // namespace sgd::worker
