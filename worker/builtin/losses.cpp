#include "worker/builtin/losses.hpp"

#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
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

[[noreturn]] void refuse(const char* loss, const at::Tensor& output, const at::Tensor& target) {
  std::ostringstream words;
  words << loss << ": outputs of shape " << output.sizes() << " and targets of shape " << target.sizes()
        << " do not fit: as many numbers of as many samples are expected";
  throw std::invalid_argument(words.str());
}

/// The target in the shape of the outputs, [N, 1] beside [N]: at:: would combine each sample with each other one, and
/// say nothing.
at::Tensor like(const char* loss, const at::Tensor& output, const at::Tensor& target) {
  if (output.sizes() == target.sizes()) return target;
  const bool has_samples = output.dim() >= 1 && target.dim() >= 1 && output.size(0) == target.size(0);
  if (!has_samples || output.numel() != target.numel()) refuse(loss, output, target);
  return target.reshape(output.sizes());
}

/// One number for all outputs, or one for each of a sample: others would be taken for samples, or make more of them.
void check_weight_of_ones(const std::optional<at::Tensor>& ones, const at::Tensor& output) {
  if (!ones || ones->numel() == 1) return;
  const std::int64_t outputs = output.dim() >= 2 ? output.size(-1) : 1;
  if (ones->numel() == outputs) return;
  throw std::invalid_argument("bce_with_logits: \"pos_weight\" has " + std::to_string(ones->numel()) +
                              " numbers, and a sample has " + std::to_string(outputs) +
                              (outputs == 1 ? " output" : " outputs") + ": give one for each, or a single one");
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
  return [](const at::Tensor& output, const at::Tensor& target) {
    return at::mse_loss(output, like("mse", output, target));
  };
}

Loss l1(const nlohmann::json&) {
  return [](const at::Tensor& output, const at::Tensor& target) {
    return at::l1_loss(output, like("l1", output, target));
  };
}

Loss smooth_l1(const nlohmann::json& settings) {
  return [beta = settings.value("beta", 1.0)](const at::Tensor& output, const at::Tensor& target) {
    return at::smooth_l1_loss(output, like("smooth_l1", output, target), at::Reduction::Mean, beta);
  };
}

Loss huber(const nlohmann::json& settings) {
  return [delta = settings.value("delta", 1.0)](const at::Tensor& output, const at::Tensor& target) {
    return at::huber_loss(output, like("huber", output, target), at::Reduction::Mean, delta);
  };
}

Loss bce_with_logits(const nlohmann::json& settings) {
  return [ones = numbers_of(settings, "pos_weight")](const at::Tensor& output, const at::Tensor& target) {
    check_weight_of_ones(ones, output);
    return at::binary_cross_entropy_with_logits(output, like("bce_with_logits", output, target), std::nullopt,
                                                beside(ones, output));
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
