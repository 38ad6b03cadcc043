#pragma once
// y = relu?(x * W^T + b) with its gradient, on oneDNN. LibTorch sends fp32 products to MKL, which
// uses half of a modern AMD core; oneDNN's matmul is twice as fast there, takes transposed views
// as they are, and is as fast as MKL elsewhere. Small products, where a call to oneDNN costs more
// than the work, and builds without oneDNN use LibTorch's own operators.

#include <torch/torch.h>

namespace sgd::worker {

/// `input` n x in, `weight` out x in, `bias` out. Differentiable once.
[[nodiscard]] at::Tensor linear(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias, bool relu);

}  // namespace sgd::worker
