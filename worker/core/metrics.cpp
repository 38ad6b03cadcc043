#include "worker/core/metrics.hpp"

#include <algorithm>
#include <bit>

namespace sgd::worker {
namespace {

std::uint64_t bits_of(double value) {
  return std::bit_cast<std::uint64_t>(value);
}

bool is_count(const nlohmann::json& value) {
  return value.is_number_unsigned() || (value.is_number_integer() && value.get<std::int64_t>() >= 0);
}

}  // namespace

void MetricsAccumulator::add(std::int64_t num_samples, std::initializer_list<MetricValue> values) {
  begin_batch(num_samples);
  for (const MetricValue& value : values) add_value(num_samples, value);
}

void MetricsAccumulator::add(std::int64_t num_samples, const std::vector<MetricValue>& values) {
  begin_batch(num_samples);
  for (const MetricValue& value : values) add_value(num_samples, value);
}

void MetricsAccumulator::begin_batch(std::int64_t num_samples) {
  ++batch_count_;
  num_samples_ += num_samples;
}

void MetricsAccumulator::add_value(std::int64_t num_samples, const MetricValue& value) {
  auto* entry = const_cast<Entry*>(find(value.name));
  if (entry == nullptr) entry = &entries_.emplace_back(Entry{std::string(value.name), 0, 0, 0});
  entry->weighted_sum += value.value * static_cast<double>(num_samples);
  entry->samples += num_samples;
  entry->last = value.value;
}

const MetricsAccumulator::Entry* MetricsAccumulator::find(std::string_view name) const {
  for (const Entry& entry : entries_) {
    if (entry.name == name) return &entry;
  }
  return nullptr;
}

std::optional<double> MetricsAccumulator::mean(std::string_view name) const {
  const Entry* entry = find(name);
  if (entry == nullptr) return std::nullopt;
  return entry->weighted_sum / static_cast<double>(entry->samples);
}

std::optional<double> MetricsAccumulator::last(std::string_view name) const {
  const Entry* entry = find(name);
  if (entry == nullptr) return std::nullopt;
  return entry->last;
}

std::vector<std::string> MetricsAccumulator::names() const {
  std::vector<std::string> all;
  for (const Entry& entry : entries_) all.push_back(entry.name);
  return all;
}

nlohmann::ordered_json MetricsAccumulator::to_json(std::optional<int> epoch) const {
  nlohmann::ordered_json out = nlohmann::ordered_json::object();
  if (epoch) out["epoch"] = *epoch;
  out["batch_count"] = batch_count_;
  out["num_samples"] = num_samples_;
  for (const Entry& entry : entries_) {
    out[entry.name] = entry.weighted_sum / static_cast<double>(entry.samples);
    out["last_" + entry.name] = entry.last;
  }
  return out;
}

nlohmann::json MetricsAccumulator::export_state() const {
  nlohmann::json metrics = nlohmann::json::array();
  for (const Entry& entry : entries_) {
    nlohmann::json item = nlohmann::json::object();
    item["name"] = entry.name;
    item["weighted_sum_bits"] = bits_of(entry.weighted_sum);
    item["samples"] = entry.samples;
    item["last_bits"] = bits_of(entry.last);
    metrics.push_back(std::move(item));
  }
  nlohmann::json state = nlohmann::json::object();
  state["batch_count"] = batch_count_;
  state["num_samples"] = num_samples_;
  state["metrics"] = std::move(metrics);
  return state;
}

Status MetricsAccumulator::import_state(const nlohmann::json& state) {
  const auto bad = [](const std::string& what) { return Error{"metrics state: " + what, 0}; };
  if (!state.is_object()) return bad("not an object");
  for (const char* key : {"batch_count", "num_samples"}) {
    if (!state.contains(key) || !is_count(state[key])) return bad(std::string(key) + " is missing or not a count");
  }
  if (!state.contains("metrics") || !state["metrics"].is_array()) return bad("metrics is missing or not a list");
  MetricsAccumulator loaded;
  for (const nlohmann::json& item : state["metrics"]) {
    if (!item.is_object() || !item.contains("name") || !item["name"].is_string()) {
      return bad("a metric has no name");
    }
    for (const char* key : {"weighted_sum_bits", "samples", "last_bits"}) {
      if (!item.contains(key) || !is_count(item[key])) {
        return bad(std::string(key) + " of " + item["name"].get<std::string>() + " is missing or not a count");
      }
    }
    Entry entry;
    entry.name = item["name"];
    entry.weighted_sum = std::bit_cast<double>(item["weighted_sum_bits"].get<std::uint64_t>());
    entry.samples = item["samples"];
    entry.last = std::bit_cast<double>(item["last_bits"].get<std::uint64_t>());
    loaded.entries_.push_back(std::move(entry));
  }
  loaded.batch_count_ = state["batch_count"];
  loaded.num_samples_ = state["num_samples"];
  *this = std::move(loaded);
  return {};
}

void MetricsAccumulator::merge(const MetricsAccumulator& other) {
  // Both were at the same steps: what one rank has not done since another took its place, it does not count twice.
  count_batches(other.batch_count_);
  num_samples_ += other.num_samples_;
  for (const Entry& added : other.entries_) {
    auto* entry = const_cast<Entry*>(find(added.name));
    if (entry == nullptr) entry = &entries_.emplace_back(Entry{added.name, 0, 0, 0});
    entry->weighted_sum += added.weighted_sum;
    entry->samples += added.samples;
    entry->last = added.last;
  }
}

void MetricsAccumulator::count_batches(std::int64_t made) {
  batch_count_ = std::max(batch_count_, made);
}

void MetricsAccumulator::clear() {
  *this = MetricsAccumulator();
}

}  // namespace sgd::worker
