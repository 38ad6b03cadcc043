// What the engine measures and reports of a phase.
#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/base/mean_over_ranks.hpp"
#include "common/json/lenient.hpp"
#include "common/messages/link.hpp"
#include "worker/torch/clock.hpp"
#include "worker/torch/engine.hpp"
#include "worker/torch/errors.hpp"

namespace sgd::worker {
namespace {

constexpr Duration kUsageInterval = std::chrono::seconds(1);
constexpr int kUsageCostFraction = 100;
constexpr std::size_t kResultBytesMax = 64 << 10;  // Of each rank; the coordinator holds those of all.
constexpr std::size_t kNamedValues = 3;            // Of a report that is too long.

/// The names of the largest values, the largest first.
std::string largest_of(const nlohmann::json& metrics) {
  std::vector<std::pair<std::size_t, std::string>> by_bytes;
  for (const auto& item : metrics.items()) by_bytes.emplace_back(dump_text(item.value()).size(), item.key());
  std::sort(by_bytes.rbegin(), by_bytes.rend());
  by_bytes.resize(std::min(by_bytes.size(), kNamedValues));
  std::vector<std::string> names;
  for (auto& [bytes, name] : by_bytes) names.push_back(std::move(name));
  return fmt::format("{}", fmt::join(names, ", "));
}

/// The agent would take a longer line for damage, and this job makes it again in every generation.
void check_length(const link::Report& report) {
  const std::size_t bytes = link::encode(report).size();
  if (bytes <= link::kLineBytesMax) return;
  throw std::logic_error(
      fmt::format("the report of epoch {}'s {} has {} bytes, at most {} can be: the largest values are {}; of metrics "
                  "take \"average\" \"macro\" or \"matrix\" false, of values of your own report fewer",
                  report.key.epoch, report.key.phase == "train" ? "training" : "validation", bytes, link::kLineBytesMax,
                  largest_of(report.metrics)));
}

}  // namespace

/// Of the ranks whose own this rank gets: each is counted once.
void Engine::load_measures(const TrainingState& state) {
  std::vector<nlohmann::json> states;
  for (const int saved : ranks_given_to(world_rank(), world_size(), state.world_size))
    states.push_back(state.records[static_cast<std::size_t>(saved)].sums.value("measures", nlohmann::json()));
  try {
    measures_.load(states);
  } catch (const std::invalid_argument& error) {
    throw ConfigurationError(error.what());
  }
}

MeasuredPhase Engine::phase() const {
  return position_.phase == "train" ? MeasuredPhase::kTraining : MeasuredPhase::kValidation;
}

void Engine::measure(const at::Tensor& output, const at::Tensor& target) {
  if (!measures_.is_on(phase())) return;
  const at::NoGradGuard no_gradients;
  const at::Tensor values = output.data();
  measures_.add(phase(), at::isReducedFloatingType(values.scalar_type()) ? values.to(at::kFloat) : values, target);
}

/// Of numbers that an epoch's end may be judged by.
std::vector<std::string> Engine::measured_names() const {
  std::vector<std::string> names = metrics_.names();
  for (const auto& [name, value] : measured_.items()) {
    const bool is_known = std::find(names.begin(), names.end(), name) != names.end();
    const bool is_count = name == "batch_count" || name == "num_samples";
    if (value.is_number() && !is_known && !is_count && !name.starts_with("last_")) names.push_back(name);
  }
  return names;
}

/// Collective: the mean over ranks, in their order, so that all do the same after the same epoch. It is the one of
/// the report, which may have values of the user's own validate(): weighted as there, and NaN where it is not finite.
/// It is no part of a checkpoint before the epoch's end. `key`: of the job, where it is named.
double Engine::agreed_metric(const std::string& name, const char* key) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  nlohmann::json own = nlohmann::json::object();
  if (const auto samples = measured_.find("num_samples"); samples != measured_.end() && samples->is_number())
    own["samples"] = samples->get<double>();
  // A rank that came for the last batches of a pass may have had none.
  if (const auto found = measured_.find(name); found != measured_.end() && (found->is_number() || found->is_null()))
    own["bits"] = std::bit_cast<std::uint64_t>(found->is_null() ? nan : found->get<double>());
  std::vector<std::optional<double>> values;
  std::vector<double> samples;
  for (const std::string& one : collective_->all_gather(own.dump())) {
    const nlohmann::json told = nlohmann::json::parse(one);
    if (told.contains("samples")) samples.push_back(told.at("samples").get<double>());
    const bool has_value = told.contains("bits");
    values.push_back(has_value ? std::optional(std::bit_cast<double>(told.at("bits").get<std::uint64_t>()))
                               : std::nullopt);
  }
  const bool is_measured =
      std::any_of(values.begin(), values.end(), [](const auto& value) { return value.has_value(); });
  if (!is_measured)
    throw std::logic_error(fmt::format("{} is \"{}\", which validation does not measure: set it to one of {}", key,
                                       name, fmt::join(measured_names(), ", ")));
  const bool is_even = samples.size() < values.size() || name.starts_with("last_");
  const std::optional<double> mean =
      mean_over_ranks(values, is_even ? std::vector<double>(values.size(), 1.0) : weights_of_ranks(std::move(samples)));
  return mean && std::isfinite(*mean) ? *mean : nan;
}

std::string Engine::stops_early() {
  if (!early_stop_) return {};
  early_stop_->observe(position_.epoch, agreed_metric(early_stop_->metric(), "training.early_stop.metric"));
  return early_stop_->is_over() ? early_stop_->reason() : std::string();
}

void Engine::publish(std::int64_t num_samples) {
  Progress& progress = setup_.link.progress();
  progress.step.store(stepper_->steps(), std::memory_order_relaxed);
  if (position_.phase == "train") progress.loss.store(stepper_->last_loss(), std::memory_order_relaxed);
  progress.samples.fetch_add(num_samples, std::memory_order_relaxed);
  if (monitor_) publish_usage(progress);
}

/// As often as it costs under 1 % of the time.
void Engine::publish_usage(Progress& progress) {
  const TimePoint began = time_now();
  if (began < usage_due_) return;
  if (const std::optional<DeviceUsage> usage = monitor_->now()) {
    progress.gpu_percent = usage->busy_percent;
    progress.gpu_mib = usage->memory_mib;
    progress.gpu_celsius = usage->celsius;
    progress.has_gpu = true;
  }
  const Duration cost = time_now() - began;
  usage_due_ = began + std::max(kUsageInterval, kUsageCostFraction * cost);
}

nlohmann::ordered_json Engine::profiled() {
  const bool training = position_.phase == "train";
  profile_.add(training ? ProfiledPart::kTrainEpoch : ProfiledPart::kValidation, time_now() - phase_began_);
  return training ? profile_.training() : profile_.validation();
}

nlohmann::json Engine::measured(const nlohmann::json& further) {
  const bool training = position_.phase == "train";
  nlohmann::json metrics(metrics_.to_json(training ? std::optional<int>(position_.epoch) : std::nullopt));
  if (training) {
    if (const std::int64_t skipped = stepper_->take_skipped(); skipped > 0) metrics["skipped_updates"] = skipped;
    if (rollbacks_ > 0) metrics["rollbacks"] = std::exchange(rollbacks_, 0);
    if (const nlohmann::json scale = stepper_->loss_scale(); !scale.is_null())
      metrics["loss_scale"] = scale.at("value");
    metrics["samples_per_s"] = stream_->samples_per_s();
    for (const auto& part : stepper_->parts()) {
      const std::string key = stepper_->parts().size() == 1 ? "lr" : "lr_" + part->name();
      if (!metrics.contains(key)) metrics[key] = part->used_rate();  // A schedule of batches is ahead.
    }
    metrics["step_ms"]["median"] = stream_->timer().median_ms();
    metrics["step_ms"]["p95"] = stream_->timer().p95_ms();
    metrics["step_ms"]["own"] = stream_->own_timer().mean_ms();
  }
  if (const std::optional<DeviceUsage> usage = monitor_ ? monitor_->now() : std::nullopt)
    metrics["gpu"] = {
        {"busy_percent", usage->busy_percent}, {"memory_mib", usage->memory_mib}, {"celsius", usage->celsius}};
  if (profile_.is_on()) metrics["profile"] = nlohmann::json(profiled());
  metrics.update(nlohmann::json(measures_.finish(phase(), *collective_)));
  if (further.is_object()) metrics.update(further);
  measured_ = metrics;
  return metrics;
}

void Engine::report(const link::ReportKey& key, nlohmann::json metrics) {
  link::Report message;
  message.key = key;
  message.step = step_to_save();
  message.metrics = std::move(metrics);
  check_length(message);
  send(message);
}

void Engine::send_result(nlohmann::json result) {
  if (result.is_null()) return;
  // Told as it is sent: bytes that are not UTF-8 are replaced.
  const std::string text = result.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  if (const std::size_t bytes = text.size(); bytes > kResultBytesMax)
    throw std::logic_error(
        fmt::format("the function returns {} bytes of JSON, and at most {} can be: save what is large with "
                    "save_checkpoint()",
                    bytes, kResultBytesMax));
  send(link::ResultMade{std::move(result)});
}

}  // namespace sgd::worker
