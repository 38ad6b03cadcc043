#include "worker/builtin/losses.hpp"

#include <optional>
#include <vector>

namespace sgd::builtin {
namespace {

constexpr std::int64_t kIgnoredByDefault = -100;  // As in PyTorch.

/// The list `key`, or nothing.
std::optional<at::Tensor> numbers_of(const nlohmann::json& settings, const char* key) {
  if (!settings.contains(key)) return std::nullopt;
  return torch::tensor(settings.at(key).get<std::vector<double>>(), at::kDouble).to(at::kFloat);
}

/// Where the outputs are that they go with, in their type. A training step waits for its loss anyway, so they are
/// copied each time.
std::optional<at::Tensor> beside(const std::optional<at::Tensor>& numbers, const at::Tensor& output) {
  if (!numbers) return std::nullopt;
  return numbers->to(output.device(), output.scalar_type());
}

struct Pair {
  at::Tensor output;
  at::Tensor target;
};

/// n x classes x more, whose classes lie side by side in memory as a language model's do, as rows of classes: the same
/// mean, several times as fast.
Pair as_rows(const at::Tensor& output, const at::Tensor& target) {
  if (output.dim() <= 2 || target.dim() != output.dim() - 1) return {output, target};
  const at::Tensor classes_last = output.movedim(1, -1);
  if (!classes_last.is_contiguous()) return {output, target};
  return {classes_last.reshape({-1, output.size(1)}), target.reshape({-1})};
}

Loss cross_entropy(const nlohmann::json& settings) {
  return [weight = numbers_of(settings, "weight"), ignored = settings.value("ignore_index", kIgnoredByDefault),
          smoothing = settings.value("label_smoothing", 0.0)](const at::Tensor& output, const at::Tensor& target) {
    const Pair rows = as_rows(output, target);
    return at::cross_entropy_loss(rows.output, rows.target, beside(weight, output), at::Reduction::Mean, ignored,
                                  smoothing);
  };
}

Loss nll(const nlohmann::json& settings) {
  return [weight = numbers_of(settings, "weight"), ignored = settings.value("ignore_index", kIgnoredByDefault)](
             const at::Tensor& output, const at::Tensor& target) {
    const Pair rows = as_rows(output, target);
    return at::nll_loss_nd(rows.output, rows.target, beside(weight, output), at::Reduction::Mean, ignored);
  };
}

Loss mse(const nlohmann::json&) {
  return [](const at::Tensor& output, const at::Tensor& target) { return at::mse_loss(output, target); };
}

Loss l1(const nlohmann::json&) {
  return [](const at::Tensor& output, const at::Tensor& target) { return at::l1_loss(output, target); };
}

Loss smooth_l1(const nlohmann::json& settings) {
  return [beta = settings.value("beta", 1.0)](const at::Tensor& output, const at::Tensor& target) {
    return at::smooth_l1_loss(output, target, at::Reduction::Mean, beta);
  };
}

Loss huber(const nlohmann::json& settings) {
  return [delta = settings.value("delta", 1.0)](const at::Tensor& output, const at::Tensor& target) {
    return at::huber_loss(output, target, at::Reduction::Mean, delta);
  };
}

Loss bce_with_logits(const nlohmann::json& settings) {
  return [ones = numbers_of(settings, "pos_weight")](const at::Tensor& output, const at::Tensor& target) {
    return at::binary_cross_entropy_with_logits(output, target, std::nullopt, beside(ones, output));
  };
}

}  // namespace

std::map<std::string, LossFactory> losses() {
  return {{"bce_with_logits", bce_with_logits},
          {"cross_entropy", cross_entropy},
          {"huber", huber},
          {"l1", l1},
          {"mse", mse},
          {"nll", nll},
          {"smooth_l1", smooth_l1}};
}

}  // namespace sgd::builtin
