#include "common/job/model_size.hpp"

#include "common/json/lenient.hpp"

namespace sgd::job {
namespace {

using Json = nlohmann::json;

double affine(double inputs, double outputs) {
  return (inputs + 1) * outputs;
}

/// A convolution without bias, and batch normalization behind it.
double normalized(double kernel, double inputs, double outputs) {
  return kernel * kernel * inputs * outputs + 2 * outputs;
}

/// Of "channels" or "hidden".
std::vector<double> numbers_of(const Json& list) {
  std::vector<double> numbers;
  for (const Json& one : list) numbers.push_back(one.is_number() ? one.get<double>() : 0);
  return numbers;
}

/// Affine maps from `width` over those of `hidden` to the outputs.
double layers(double width, const Json& hidden, double outputs) {
  double count = 0;
  for (const double next : numbers_of(hidden)) {
    count += affine(width, next);
    width = next;
  }
  return count + affine(width, outputs);
}

double total_of(const SampleSizes& sample) {
  double count = 1;
  for (const std::int64_t size : sample) count *= static_cast<double>(size);
  return count;
}

double outputs_of(const Json& model) {
  return read_or(model, "outputs", 1.0);
}

double cnn_parameters(const Json& model, const SampleSizes& sample) {
  const std::vector<double> channels = numbers_of(member(model, "channels"));
  if (channels.size() != 2 || sample.size() != 3) return 0;
  const auto pooled = static_cast<double>(((sample[1] - 4) / 2) * ((sample[2] - 4) / 2));
  return affine(9 * static_cast<double>(sample[0]), channels[0]) + affine(9 * channels[0], channels[1]) +
         layers(channels[1] * pooled, Json::array({read_or(model, "hidden", 128.0)}), outputs_of(model));
}

double lenet_parameters(const Json& model, const SampleSizes& sample) {
  const std::vector<double> channels = numbers_of(member(model, "channels"));
  if (channels.size() != 2 || sample.size() != 3) return 0;
  const auto pooled = [](std::int64_t side) { return ((side - 4) / 2 - 4) / 2; };
  return affine(25 * static_cast<double>(sample[0]), channels[0]) + affine(25 * channels[0], channels[1]) +
         layers(channels[1] * static_cast<double>(pooled(sample[1]) * pooled(sample[2])), member(model, "hidden"),
                outputs_of(model));
}

double fcn_parameters(const Json& model, const SampleSizes& sample) {
  if (sample.size() != 3) return 0;
  auto width = static_cast<double>(sample[0]);
  double count = 0;
  for (const double next : numbers_of(member(model, "channels"))) {
    count += normalized(3, width, next) + normalized(3, next, next);
    width = next;
  }
  const double head = width < 4 ? 1 : static_cast<double>(static_cast<std::int64_t>(width) / 4);
  return count + normalized(3, width, head) + affine(head, outputs_of(model));
}

double resnet_parameters(const Json& model, const SampleSizes& sample) {
  if (sample.size() != 3) return 0;
  const std::string type = read_or(model, "type", "");
  const bool has_bottlenecks = type == "resnet50";
  const double expansion = has_bottlenecks ? 4 : 1;
  const std::vector<int> blocks = type == "resnet18" ? std::vector<int>{2, 2, 2, 2} : std::vector<int>{3, 4, 6, 3};
  double planes = read_or(model, "width", 64.0);
  double inputs = planes;
  double count = normalized(read_or(model, "stem", "") == "cifar" ? 3 : 7, static_cast<double>(sample[0]), planes);
  for (std::size_t stage = 0; stage < blocks.size(); ++stage) {
    for (int block = 0; block < blocks[stage]; ++block) {
      const double outputs = planes * expansion;
      count += has_bottlenecks
                   ? normalized(1, inputs, planes) + normalized(3, planes, planes) + normalized(1, planes, outputs)
                   : normalized(3, inputs, planes) + normalized(3, planes, planes);
      if (block == 0 && (stage > 0 || inputs != outputs)) count += normalized(1, inputs, outputs);
      inputs = outputs;
    }
    planes *= 2;
  }
  return count + affine(inputs, outputs_of(model));
}

double transformer_parameters(const Json& model, const SampleSizes& sample) {
  const double width = read_or(model, "embedding", 128.0);
  const double vocabulary = read_or(model, "vocabulary", 256.0);
  const double forward = read_or(model, "feedforward", 512.0);
  const double layer =
      affine(width, 3 * width) + affine(width, width) + affine(width, forward) + affine(forward, width) + 4 * width;
  const double length = sample.empty() ? 0 : static_cast<double>(sample[0]);
  const double count = (vocabulary + length) * width + read_or(model, "layers", 2.0) * layer + 2 * width;
  if (read_or(model, "task", "") == "classification") return count + affine(width, outputs_of(model));
  return count + (read_or(model, "tied", false) ? 0 : vocabulary * width);
}

int optimizer_buffers(const Optimizer& optimizer) {
  if (optimizer.type == "sgd") return optimizer.momentum > 0 ? 1 : 0;
  return 2;
}

}  // namespace

double parameter_count(const Json& model, const SampleSizes& sample) {
  const std::string type = read_or(model, "type", "");
  if (!is_built_in_model(model)) return 0;
  if (type == "cnn") return cnn_parameters(model, sample);
  if (type == "fcn") return fcn_parameters(model, sample);
  if (type == "lenet") return lenet_parameters(model, sample);
  if (type == "transformer") return transformer_parameters(model, sample);
  if (type.starts_with("resnet")) return resnet_parameters(model, sample);
  return layers(total_of(sample), member(model, "hidden"),
                outputs_of(model));  // "mlp", and "linear", which has none.
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
