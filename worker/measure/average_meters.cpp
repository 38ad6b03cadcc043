#include <stdexcept>

#include "sgd/metrics.hpp"
#include "worker/core/metrics.hpp"

namespace sgd {

struct AverageMeterCollection::Sums {
  worker::MetricsAccumulator all;
};

AverageMeterCollection::AverageMeterCollection() : sums_(std::make_unique<Sums>()) {}
AverageMeterCollection::~AverageMeterCollection() = default;
AverageMeterCollection::AverageMeterCollection(AverageMeterCollection&&) noexcept = default;
AverageMeterCollection& AverageMeterCollection::operator=(AverageMeterCollection&&) noexcept = default;

void AverageMeterCollection::update(const std::vector<std::pair<std::string, double>>& metrics,
                                    std::int64_t num_samples) {
  if (num_samples < 0) throw std::invalid_argument("a batch has less than no samples");
  std::vector<worker::MetricValue> values;
  values.reserve(metrics.size());
  for (const auto& [name, value] : metrics) values.push_back({name, value});
  sums_->all.add(num_samples, values);
}

nlohmann::ordered_json AverageMeterCollection::summary() const {
  return sums_->all.to_json(std::nullopt);
}

nlohmann::json AverageMeterCollection::state() const {
  return sums_->all.export_state();
}

void AverageMeterCollection::load(const nlohmann::json& state) {
  if (Status loaded = sums_->all.import_state(state); !loaded) throw std::invalid_argument(loaded.error().message);
}

void AverageMeterCollection::merge(const nlohmann::json& state) {
  worker::MetricsAccumulator others;
  if (Status loaded = others.import_state(state); !loaded) throw std::invalid_argument(loaded.error().message);
  sums_->all.merge(others);
}

void AverageMeterCollection::clear() {
  sums_->all.clear();
}

}  // namespace sgd
