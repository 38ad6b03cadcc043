// What a built-in model takes and gives, and what of it does not go with its other settings or with the data.

#include <algorithm>
#include <array>
#include <string_view>

#include <fmt/format.h>

#include "common/job/model_size.hpp"
#include "common/json/lenient.hpp"
#include "common/json/words.hpp"

namespace sgd::job {
namespace {

using Json = nlohmann::json;

/// A built-in model by its type.
struct ModelKind {
  std::string_view type;
  /// The smallest image that it takes, rows and columns; 0: its samples are no images.
  std::int64_t image_side_min;
};

constexpr std::array<ModelKind, 9> kKinds = {{{"cnn", 6},  // Two convolutions of 3 x 3, and a pool of 2 x 2.
                                              {"fcn", 1},
                                              {"lenet", 16},  // Two convolutions of 5 x 5, a pool behind each.
                                              {"linear", 0},
                                              {"mlp", 0},
                                              {"resnet18", 1},
                                              {"resnet34", 1},
                                              {"resnet50", 1},
                                              {"transformer", 0}}};

const ModelKind* kind_of(const Json& model) {
  const std::string type = read_or(model, "type", "");
  const auto* found =
      std::find_if(kKinds.begin(), kKinds.end(), [&](const ModelKind& one) { return one.type == type; });
  return found == kKinds.end() ? nullptr : found;
}

bool is_language_model(const Json& model) {
  return takes_tokens(model) && read_or(model, "task", "") != "classification";
}

std::int64_t numbers_in(const SampleSizes& sample) {
  std::int64_t count = 1;
  for (const std::int64_t size : sample) count *= size;
  return count;
}

std::optional<Misfit> image_misfit(const ModelKind& kind, const SampleSizes& sample) {
  if (kind.image_side_min == 0) return std::nullopt;
  if (sample.size() != 3)
    return Misfit{"training.model.type",
                  fmt::format("the model {} takes images (channels x rows x columns), and a sample of this data set "
                              "is {} number{}: take \"linear\" or \"mlp\"",
                              json::quote(kind.type), fmt::join(sample, " x "), numbers_in(sample) == 1 ? "" : "s")};
  if (sample[1] >= kind.image_side_min && sample[2] >= kind.image_side_min) return std::nullopt;
  return Misfit{"training.model.type",
                fmt::format("the model {} takes images of at least {} x {} pixels, and those of this data set "
                            "have {} x {}",
                            json::quote(kind.type), kind.image_side_min, kind.image_side_min, sample[1], sample[2])};
}

}  // namespace

bool is_built_in_model(const Json& model) {
  return kind_of(model) != nullptr;
}

bool takes_tokens(const Json& model) {
  return read_or(model, "type", "") == "transformer";
}

bool gives_pixels(const Json& model) {
  return read_or(model, "type", "") == "fcn";
}

std::int64_t model_outputs(const Json& model) {
  return read_or(model, is_language_model(model) ? "vocabulary" : "outputs", std::int64_t{0});
}

std::optional<Misfit> settings_misfit(const Json& model) {
  if (!takes_tokens(model)) return std::nullopt;
  const auto width = read_or(model, "embedding", std::int64_t{1});
  const auto heads = read_or(model, "heads", std::int64_t{1});
  if (width % heads != 0)
    return Misfit{
        "training.model.embedding",
        fmt::format("\"training.model.embedding\" must be a multiple of \"heads\" ({}), got {}", heads, width)};
  const bool has_outputs = model.contains("outputs");
  if (is_language_model(model)) {
    if (!has_outputs) return std::nullopt;
    return Misfit{"training.model.outputs",
                  "the task \"language_model\" gives an output for each token of \"vocabulary\": remove \"outputs\", "
                  "or set training.model.task=\"classification\""};
  }
  if (!has_outputs)
    return Misfit{
        "training.model",
        "missing key \"outputs\" in \"training.model\": the task \"classification\" needs the number of classes"};
  if (!read_or(model, "tied", false)) return std::nullopt;
  return Misfit{"training.model.tied",
                "\"training.model.tied\" needs the task \"language_model\": classes have no embedding"};
}

std::optional<Misfit> model_misfit(const Json& model, const SampleSizes& sample, bool has_classes,
                                   std::int64_t numbers) {
  const ModelKind* kind = kind_of(model);
  if (kind == nullptr) return std::nullopt;
  if (auto misfit = image_misfit(*kind, sample)) return misfit;
  if (takes_tokens(model) && sample.size() != 1)
    return Misfit{"training.model.type",
                  fmt::format("the model \"transformer\" takes rows of tokens, and a sample of this data set has {}",
                              fmt::join(sample, " x "))};
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

}  // namespace sgd::job
