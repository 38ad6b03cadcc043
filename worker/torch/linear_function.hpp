#pragma once
// y = relu?(x * W^T + b) with its gradient. LibTorch sends fp32 products to MKL, which uses half of a
// modern AMD core: there it is oneDNN's matmul, which is twice as fast and takes transposed views as
// they are. Small products, where a call to oneDNN costs more than the work, Intel's CPUs, and builds
// without oneDNN use LibTorch's own operators.

#include <torch/torch.h>

namespace sgd::worker {

/// `input` n x in, `weight` out x in, `bias` out. Differentiable once.
[[nodiscard]] at::Tensor linear(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias, bool relu);

}  // namespace sgd::worker
