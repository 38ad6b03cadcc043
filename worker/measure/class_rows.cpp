#include "worker/measure/class_rows.hpp"

#include <algorithm>
#include <stdexcept>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace sgd::worker {
namespace {

std::string shape_of(const at::Tensor& tensor) {
  return fmt::format("[{}]", fmt::join(tensor.sizes(), ", "));
}

void check_shapes(const char* metric, const at::Tensor& output, const at::Tensor& target) {
  if (!at::isIntegralType(target.scalar_type(), false))
    throw std::invalid_argument(
        fmt::format("{}: its targets are classes, integers from 0, and these are numbers of another kind", metric));
  std::vector<std::int64_t> wanted = output.sizes().vec();
  if (wanted.size() >= 2) wanted.erase(wanted.begin() + 1);
  if (output.dim() >= 2 && output.size(1) > 0 && target.sizes().vec() == wanted) return;
  throw std::invalid_argument(
      fmt::format("{}: outputs of shape {} and targets of shape {} do not fit: [N, C, ...] and [N, ...] are expected",
                  metric, shape_of(output), shape_of(target)));
}

void check_targets(const char* metric, const ClassRows& rows) {
  if (rows.target.numel() == 0) return;
  const auto least = rows.target.min().item<std::int64_t>();
  const auto most = rows.target.max().item<std::int64_t>();
  if (least >= 0 && most < rows.classes) return;
  throw std::invalid_argument(
      fmt::format("{}: the target {} is outside of 0..{}: \"ignore_index\" leaves out the targets that are no class",
                  metric, least < 0 ? least : most, rows.classes - 1));
}

}  // namespace

ClassRows class_rows(const char* metric, const at::Tensor& output, const at::Tensor& target,
                     const IgnoreIndex& ignore_index) {
  const at::NoGradGuard no_gradients;
  check_shapes(metric, output, target);
  const std::int64_t outputs = output.size(1);
  ClassRows rows{output.movedim(1, -1).reshape({-1, outputs}), target.reshape({-1}).to(at::kLong),
                 std::max<std::int64_t>(outputs, 2)};
  if (ignore_index) {
    const at::Tensor counts = rows.target.ne(*ignore_index);
    rows.output = rows.output.index({counts});
    rows.target = rows.target.index({counts});
  }
  check_targets(metric, rows);
  return rows;
}

void check_own_outputs(const char* metric, const ClassRows& rows) {
  const bool has_all = rows.output.size(1) == rows.classes || rows.target.numel() == 0;
  if (has_all || rows.target.max().item<std::int64_t>() == 0) return;
  throw std::invalid_argument(
      fmt::format("{}: the model has one output for two classes, and one for each is needed: take \"accuracy\", "
                  "\"precision\" or \"recall\"",
                  metric));
}

at::Tensor predicted_classes(const ClassRows& rows) {
  if (rows.output.size(1) == 1) return rows.output.flatten().gt(0).to(at::kLong);
  if (rows.output.size(0) == 0) return rows.target;
  return rows.output.argmax(1);
}

void count_into(std::vector<std::int64_t>& counts, const at::Tensor& numbers) {
  if (numbers.numel() == 0) return;
  const at::Tensor counted =
      at::bincount(numbers, {}, static_cast<std::int64_t>(counts.size())).to(at::kCPU).contiguous();
  const auto* values = counted.const_data_ptr<std::int64_t>();
  for (std::size_t at = 0; at < counts.size(); ++at) counts[at] += values[at];
}

}  // namespace sgd::worker
