#include "common/job/model_size.hpp"

#include <fmt/format.h>

#include "common/json/lenient.hpp"

namespace sgd::job {
namespace {

using Json = nlohmann::json;

constexpr std::int64_t kImageSideMin = 6;  // Two convolutions of 3 x 3, and a pool of 2 x 2.

std::int64_t numbers_in(const SampleSizes& sample) {
  std::int64_t count = 1;
  for (const std::int64_t size : sample) count *= size;
  return count;
}

bool is_built_in(const std::string& type) {
  return type == "cnn" || type == "mlp" || type == "linear";
}

bool is_image(const SampleSizes& sample) {
  return sample.size() == 3;
}

double affine(double inputs, double outputs) {
  return (inputs + 1) * outputs;
}

double mlp_parameters(const Json& model, const SampleSizes& sample) {
  double count = 0;
  auto width = static_cast<double>(numbers_in(sample));
  for (const Json& hidden : member(model, "hidden")) {
    const double next = hidden.is_number() ? hidden.get<double>() : 0;
    count += affine(width, next);
    width = next;
  }
  return count + affine(width, read_or(model, "outputs", 1.0));
}

double cnn_parameters(const Json& model, const SampleSizes& sample) {
  constexpr double kKernel = 9;
  const Json& channels = member(model, "channels");
  if (!channels.is_array() || channels.size() != 2 || !is_image(sample)) return 0;
  const auto first = channels[0].get<double>();
  const auto second = channels[1].get<double>();
  const auto colours = static_cast<double>(sample[0]);
  const auto pooled = static_cast<double>(((sample[1] - 4) / 2) * ((sample[2] - 4) / 2));
  const double hidden = read_or(model, "hidden", 128.0);
  return (kKernel * colours + 1) * first + (kKernel * first + 1) * second + affine(second * pooled, hidden) +
         affine(hidden, read_or(model, "outputs", 1.0));
}

int optimizer_buffers(const Optimizer& optimizer) {
  if (optimizer.type == "sgd") return optimizer.momentum > 0 ? 1 : 0;
  return 2;
}

}  // namespace

std::optional<Misfit> model_misfit(const Json& model, const SampleSizes& sample, bool has_classes,
                                   std::int64_t numbers) {
  const std::string type = read_or(model, "type", "");
  if (!is_built_in(type)) return std::nullopt;
  if (type == "cnn" && !is_image(sample))
    return Misfit{
        "training.model.type",
        fmt::format("the model \"cnn\" takes images (channels x rows x columns), and a sample of this data set "
                    "is {} number{}: take \"linear\" or \"mlp\"",
                    fmt::join(sample, " x "), numbers_in(sample) == 1 ? "" : "s")};
  if (type == "cnn" && (sample[1] < kImageSideMin || sample[2] < kImageSideMin))
    return Misfit{"training.model.type",
                  fmt::format("the model \"cnn\" takes images of at least {} x {} pixels, and those of this data set "
                              "have {} x {}",
                              kImageSideMin, kImageSideMin, sample[1], sample[2])};
  const std::int64_t given = numbers_in(sample);
  if (const std::int64_t taken = read_or(model, "inputs", given); taken != given)
    return Misfit{"training.model.inputs",
                  fmt::format("the model takes {} inputs, and a sample of this data set has {}", taken, given)};
  if (const std::int64_t outputs = read_or(model, "outputs", std::int64_t{1}); !has_classes && outputs != numbers)
    return Misfit{"training.model.outputs",
                  fmt::format("the model gives {} outputs, and a target of this data set is {} number{}", outputs,
                              numbers, numbers == 1 ? "" : "s")};
  return std::nullopt;
}

double parameter_count(const Json& model, const SampleSizes& sample) {
  const std::string type = read_or(model, "type", "");
  if (type == "cnn") return cnn_parameters(model, sample);
  if (type == "mlp") return mlp_parameters(model, sample);
  if (!is_built_in(type)) return 0;
  return affine(static_cast<double>(numbers_in(sample)), read_or(model, "outputs", 1.0));
}

double bytes_needed(const JobSpec& job, const SampleSizes& sample) {
  if (!job.training) return 0;
  constexpr double kBytes = 4;   // Of a number.
  constexpr double kCopies = 2;  // Of the state in memory: one is whole while the other is made.
  const double state = 1 + optimizer_buffers(job.training->optimizer);
  const double each = state + 1;  // And the gradients.
  const double kept = (job.checkpoint.memory ? kCopies * state : 0) +
                      (job.checkpoint.every == CheckpointPolicy::Every::kNever ? 0 : state);
  return kBytes * parameter_count(job.training->model, sample) * (job.num_workers * each + kept);
}

}  // namespace sgd::job
