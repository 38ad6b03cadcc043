#include "common/job/check_training.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "common/job/check_reports.hpp"
#include "common/job/data_facts.hpp"
#include "common/job/model_size.hpp"
#include "common/job/named_datasets.hpp"
#include "common/json/lenient.hpp"
#include "common/json/words.hpp"

namespace sgd::job {
namespace {

/// "training.dataset", or each of "training.datasets", with its path.
std::vector<std::pair<std::string, const nlohmann::json*>> datasets_of(const Sound& sound) {
  std::vector<std::pair<std::string, const nlohmann::json*>> all;
  const auto add = [&](const std::string& path) {
    if (sound.at(path + ".type") != nullptr) all.emplace_back(path, sound.at(path));
  };
  add("training.dataset");
  const nlohmann::json* named = sound.at("training.datasets");
  if (named == nullptr || !named->is_object()) return all;
  for (const auto& [name, one] : named->items()) add("training.datasets." + name);
  return all;
}

/// `text`, in which a data set is meant that stands at `path`.
std::string at_path(std::string text, const std::string& path) {
  constexpr std::string_view kAlone = "training.dataset.";
  for (std::size_t at = 0; (at = text.find(kAlone, at)) != std::string::npos; at += path.size())
    text.replace(at, kAlone.size() - 1, path);
  return text;
}

void check_dataset(const Sound& sound, const std::string& path, const nlohmann::json& model, Reporter& report) {
  if (sound.is_touched(path)) return;
  const nlohmann::json& dataset = *sound.at(path);
  if (path != "training.dataset" && lacks_both_parts(dataset))
    report.error_at_value(path,
                          fmt::format("missing key {} in {}", json::quote(part_used(path.substr(path.rfind('.') + 1))),
                                      json::quote(path)));
  auto misfit = dataset_misfit(dataset, model);
  const auto sizes = is_built_in_dataset(dataset) ? told_sizes(dataset) : std::nullopt;
  if (!misfit && sizes) misfit = model_misfit(model, *sizes, learns_classes(dataset));
  if (!misfit) return;
  const std::string at = at_path(misfit->path, path);
  if (sound.at(at) != nullptr) report.error_at_value(at, at_path(misfit->message, path));
}

void check_clip(const Sound& sound, Reporter& report) {
  const nlohmann::json* clip = sound.at("training.gradient_clip");
  if (clip == nullptr || clip->contains("norm") != clip->contains("value")) return;
  report.error_at_value("training.gradient_clip", "\"training.gradient_clip\" must have either \"norm\" or \"value\"");
}

/// There must be something to go back to. What is only validated never does.
void check_rollback(const Sound& sound, Reporter& report) {
  const nlohmann::json* only = sound.at("training.validate_only");
  if (only != nullptr && *only == true) return;
  const nlohmann::json* on_nan = sound.at("training.on_nan");
  const nlohmann::json* every = sound.at("checkpoint.every");
  if (on_nan == nullptr || *on_nan != "rollback" || every == nullptr || *every != "never") return;
  report.error_at_value("training.on_nan",
                        "\"training.on_nan\" \"rollback\" goes back to checkpoints, and with \"checkpoint.every\" "
                        "\"never\" there are none: use {\"steps\": 100}, or \"skip\"");
}

constexpr std::array kLossesOfClasses = {"cross_entropy", "nll"};
constexpr std::array kLossesOfNumbers = {"mse", "l1", "smooth_l1", "huber", "bce_with_logits"};

template <class Losses>
std::string quoted_losses(const Losses& losses) {
  std::vector<std::string> quoted;
  for (const char* loss : losses) quoted.push_back(json::quote(loss));
  return json::alternatives(quoted);
}

bool is_built_in_loss(const std::string& loss) {
  return std::find(kLossesOfClasses.begin(), kLossesOfClasses.end(), loss) != kLossesOfClasses.end() ||
         std::find(kLossesOfNumbers.begin(), kLossesOfNumbers.end(), loss) != kLossesOfNumbers.end();
}

/// What is learnt of the data set, and by which loss.
void check_loss(const Sound& sound, const std::string& loss, Reporter& report) {
  const nlohmann::json* trained = trained_dataset(sound);
  if (trained == nullptr || sound.is_touched("training.dataset.targets") || sound.is_touched("training.datasets"))
    return;
  const nlohmann::json* dataset = &member(*trained, "type");
  if (!is_built_in_dataset(*trained) || !is_built_in_loss(loss)) return;
  const bool numbers = !learns_classes(*trained);
  const bool fits = numbers
                        ? std::find(kLossesOfNumbers.begin(), kLossesOfNumbers.end(), loss) != kLossesOfNumbers.end()
                        : std::find(kLossesOfClasses.begin(), kLossesOfClasses.end(), loss) != kLossesOfClasses.end();
  if (fits) return;
  report.error_at_value("training.loss",
                        fmt::format("\"training.loss\" must be {} with the data set {}, whose targets are {}; got {}",
                                    numbers ? quoted_losses(kLossesOfNumbers) : quoted_losses(kLossesOfClasses),
                                    json::shown(*dataset), numbers ? "numbers" : "classes", json::quote(loss)));
}

/// Targets that the loss leaves out are those that the data set has none for.
void check_ignored(const Sound& sound, Reporter& report) {
  const nlohmann::json* loss = sound.at("training.loss");
  const nlohmann::json* dataset = trained_dataset(sound);
  if (loss == nullptr || dataset == nullptr || sound.at("training.loss.ignore_index") == nullptr) return;
  if (std::string misfit = misfit_of_ignored("training.loss.ignore_index", *loss, *dataset); !misfit.empty())
    report.error_at_value("training.loss.ignore_index", std::move(misfit));
}

/// Lists with a number for each output of the model.
void check_loss_weights(const Sound& sound, Reporter& report) {
  const nlohmann::json* model = sound.at("training.model");
  const std::int64_t outputs = model == nullptr || sound.is_touched("training.model") ? 0 : model_outputs(*model);
  if (outputs == 0) return;
  for (const std::string path : {"training.loss.weight", "training.loss.pos_weight"}) {
    const nlohmann::json* list = sound.at(path);
    if (list == nullptr || !list->is_array()) continue;
    const auto given = static_cast<std::int64_t>(list->size());
    const bool may_be_one = path == "training.loss.pos_weight";
    if (given == outputs || (may_be_one && given == 1)) continue;
    report.error_at_value(
        path, fmt::format("{} must have {} number{}, one for each output of the model{}; got {}", json::quote(path),
                          outputs, outputs == 1 ? "" : "s", may_be_one ? ", or a single one" : "", given));
  }
}

}  // namespace

bool has_own_operator(const nlohmann::json& training) {
  if (training.contains("function")) return true;
  return training.contains("operator") && read_or(training["operator"], "type", "") != kSupervised;
}

const nlohmann::json* trained_dataset(const Sound& sound) {
  const nlohmann::json* alone = sound.at("training.dataset");
  return alone != nullptr ? alone : sound.at(std::string("training.datasets.") + kTrainSet);
}

void check_dataset_names(const nlohmann::json& training, Reporter& report) {
  if (!training.contains("datasets")) return;
  if (training.contains("dataset"))
    report.error_at_key("training.datasets", "\"dataset\" and \"datasets\" exclude each other: remove one");
  if (!training["datasets"].is_object()) return;
  for (const auto& [name, one] : training["datasets"].items()) {
    const bool is_fine = !name.empty() && name.find_first_not_of(
                                              "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                              "0123456789_-") == std::string::npos;
    if (!is_fine)
      report.error_at_key("training.datasets", fmt::format("\"training.datasets\": a name has letters, digits, '_' and "
                                                           "'-', got {}",
                                                           json::quote(name)));
  }
}

void check_has_data(const nlohmann::json& training, Reporter& report) {
  check_dataset_names(training, report);
  if (!training.contains("datasets")) {
    if (!training.contains("dataset")) report.error_at_value("training", "missing key \"dataset\" in \"training\"");
    return;
  }
  if (training["datasets"].is_object() && !training["datasets"].contains(kTrainSet))
    report.error_at_value("training.datasets", "missing key \"train\" in \"training.datasets\": operators train on it");
}

void check_training(const Sound& sound, Reporter& report) {
  check_clip(sound, report);
  check_rollback(sound, report);
  const nlohmann::json* training = sound.at("training");
  const bool is_own = training != nullptr && has_own_operator(*training);
  const nlohmann::json* loss = sound.at("training.loss");
  if (loss != nullptr && !is_own) {
    check_loss(sound, loss->is_string() ? loss->get<std::string>() : read_or(*loss, "type", ""), report);
    check_loss_weights(sound, report);
    check_ignored(sound, report);
  }
  const nlohmann::json* model = sound.at("training.model");
  const bool is_model_sound = model == nullptr ? is_own : sound.at("training.model.type") != nullptr;
  if (is_model_sound) {
    for (const auto& [path, dataset] : datasets_of(sound))
      check_dataset(sound, path, model == nullptr ? nlohmann::json() : *model, report);
  }
  const nlohmann::json* nesterov = sound.at("training.optimizer.nesterov");
  const nlohmann::json* momentum = sound.at("training.optimizer.momentum");
  const nlohmann::json* dampening = sound.at("training.optimizer.dampening");
  if (nesterov == nullptr || momentum == nullptr || dampening == nullptr || !nesterov->get<bool>()) return;
  if (*momentum <= 0 || *dampening != 0) {
    report.error_at_value("training.optimizer.nesterov",
                          "\"training.optimizer.nesterov\" needs momentum above 0 and dampening 0");
  }
}

}  // namespace sgd::job
