#pragma once
// One rank's metrics of one epoch or validation pass, with RaySGD's keys: for each metric m the
// mean sum(value*n)/sum(n) over batches of n samples, and last_m, the last batch's value. The
// mean over ranks is made by the coordinator, not here.
//
// The sums can be exported and imported bit for bit, NaN included, so that a pass resumed from a
// checkpoint ends with the numbers of a pass that never stopped.

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.hpp"
#include "common/json/nlohmann.hpp"

namespace sgd::worker {

/// One value of a batch, for example {"train_loss", 0.31}.
struct MetricValue {
  std::string_view name;
  double value = 0;
};

class MetricsAccumulator {
 public:
  /// A batch of `num_samples` with its values. A metric's place in the output is that of its first batch.
  void add(std::int64_t num_samples, std::initializer_list<MetricValue> values);
  void add(std::int64_t num_samples, const std::vector<MetricValue>& values);

  [[nodiscard]] std::int64_t batch_count() const { return batch_count_; }
  [[nodiscard]] std::int64_t num_samples() const { return num_samples_; }
  /// The mean of a metric so far; nothing if no batch had it.
  [[nodiscard]] std::optional<double> mean(std::string_view name) const;
  /// The value of the last batch that had it.
  [[nodiscard]] std::optional<double> last(std::string_view name) const;

  /// Of all metrics, in their order.
  [[nodiscard]] std::vector<std::string> names() const;

  /// {epoch, batch_count, num_samples, m, last_m, ...}; without `epoch` for validation. A value that is
  /// not finite becomes null when the JSON is written as text.
  [[nodiscard]] nlohmann::ordered_json to_json(std::optional<int> epoch) const;

  /// The sums; floating-point numbers as the integer of their bits.
  [[nodiscard]] nlohmann::json export_state() const;
  /// Replaces everything by what export_state() gave. On an error nothing is changed.
  Status import_state(const nlohmann::json& state);

  /// Adds another rank's sums, as when a pass goes on with fewer ranks; last values become the other's. Batches are
  /// those that both have made together.
  void merge(const MetricsAccumulator& other);
  /// The pass has made so many already, by this rank or by others.
  void count_batches(std::int64_t made);

  void clear();

 private:
  struct Entry {
    std::string name;
    double weighted_sum = 0;   // Sum of value * n.
    std::int64_t samples = 0;  // Sum of n over the batches that had this metric.
    double last = 0;
  };
  void begin_batch(std::int64_t num_samples);
  void add_value(std::int64_t num_samples, const MetricValue& value);
  [[nodiscard]] const Entry* find(std::string_view name) const;

  std::vector<Entry> entries_;
  std::int64_t batch_count_ = 0;
  std::int64_t num_samples_ = 0;
};

}  // namespace sgd::worker
