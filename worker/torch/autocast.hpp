#pragma once
// Mixed precision as torch.autocast has it, on the CPU or a GPU: while an object lives, operations of this thread that
// gain by it (matrix products, convolutions) take bfloat16 or float16 copies of their fp32 arguments. Weights,
// gradients and updates stay fp32.

#include <string>

#include <c10/core/DeviceType.h>

namespace sgd::worker {

class Autocast {
 public:
  /// "bf16", "fp16", or anything else: not at all.
  explicit Autocast(const std::string& precision, c10::DeviceType device = c10::DeviceType::CPU);
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;
  ~Autocast();

  /// Copies of weights are kept between operations: call it whenever weights have changed, and where gradients are
  /// switched on or off, since a copy that was made without them gives none.
  void forget_copies() const;

  /// While it lives operations are as without: backward passes have chosen their types in the forward pass.
  class Pause {
   public:
    explicit Pause(const Autocast& of);
    Pause(const Pause&) = delete;
    Pause& operator=(const Pause&) = delete;
    ~Pause();

   private:
    const Autocast& of_;
  };

 private:
  bool is_on_;
  c10::DeviceType device_;
};

/// Whether operations of this thread on the CPU take lower precision now.
[[nodiscard]] bool is_autocast();

}  // namespace sgd::worker
