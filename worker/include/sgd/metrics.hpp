#pragma once
// What is measured of a model, exact over ranks: sums are kept and not means, and are merged before anything is
// divided. So a value is that of all samples at once, to the bit, however they were divided into batches and over
// ranks.
//
//   sgd::Accuracy accuracy;
//   accuracy.add(output, target);            // each batch
//   accuracy.merge(state_of_another_rank);   // JSON, from its state()
//   accuracy.values();                       // {"accuracy": 0.93}
//
// Classes are dimension 1: outputs [N, C] with targets [N], outputs [N, C, d...] with targets [N, d...], integers from
// 0. The predicted class is that of the largest output; of one output alone (C = 1) it is class 1 above 0, else class
// 0. Targets equal to `ignore_index` are left out. Shapes and targets that do not fit are std::invalid_argument, in
// words. A value of which nothing was measured is NaN, which JSON text has as null.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <torch/torch.h>
#include <nlohmann/json.hpp>

#include "sgd/exact_sum.hpp"

namespace sgd {

/// RaySGD's meters. For each metric m the mean sum(value * n) / sum(n) over batches of n samples, and last_m, the value
/// of the last batch that had it.
class AverageMeterCollection {
 public:
  AverageMeterCollection();
  ~AverageMeterCollection();
  AverageMeterCollection(AverageMeterCollection&&) noexcept;
  AverageMeterCollection& operator=(AverageMeterCollection&&) noexcept;

  /// One batch. A batch that does not say how many samples it has counts as one.
  void update(const std::vector<std::pair<std::string, double>>& metrics, std::int64_t num_samples = 1);
  /// {batch_count, num_samples, m, last_m, ...} in the order in which metrics were first seen.
  [[nodiscard]] nlohmann::ordered_json summary() const;

  /// Exact to the bit, NaN included.
  [[nodiscard]] nlohmann::json state() const;
  /// Replaces everything. Throws std::invalid_argument for what is no such state, and then nothing is changed.
  void load(const nlohmann::json& state);
  /// Adds another rank's sums; last values become the other's. The batches of both were made at the same time.
  void merge(const nlohmann::json& state);
  void clear();

 private:
  struct Sums;
  std::unique_ptr<Sums> sums_;
};

/// One measurement over many batches and ranks.
class Metric {
 public:
  virtual ~Metric() = default;
  virtual void add(const at::Tensor& output, const at::Tensor& target) = 0;
  /// What of all samples so far comes out, by name: numbers, or lists of them.
  [[nodiscard]] virtual nlohmann::ordered_json values() const = 0;

  /// All that was added, exact to the bit; equal for equal samples, whatever their order.
  [[nodiscard]] virtual nlohmann::json state() const = 0;
  /// Adds what another one of the same settings has counted. Throws std::invalid_argument for what is no such state.
  virtual void merge(const nlohmann::json& state) = 0;
  virtual void clear() = 0;
  /// Replaces everything.
  void load(const nlohmann::json& state) {
    clear();
    merge(state);
  }
};

using IgnoreIndex = std::optional<std::int64_t>;

/// The share of targets whose class has the largest output. values(): "accuracy".
class Accuracy final : public Metric {
 public:
  explicit Accuracy(IgnoreIndex ignore_index = {}) : ignore_index_(ignore_index) {}
  void add(const at::Tensor& output, const at::Tensor& target) override;
  [[nodiscard]] nlohmann::ordered_json values() const override;
  [[nodiscard]] nlohmann::json state() const override;
  void merge(const nlohmann::json& state) override;
  void clear() override;

 private:
  IgnoreIndex ignore_index_;
  std::int64_t correct_ = 0;
  std::int64_t counted_ = 0;
};

/// The share of targets whose class is among the k largest outputs; of equal ones the lower class comes first.
/// values(): "top_5" with k = 5.
class TopK final : public Metric {
 public:
  explicit TopK(std::int64_t k, IgnoreIndex ignore_index = {});
  void add(const at::Tensor& output, const at::Tensor& target) override;
  [[nodiscard]] nlohmann::ordered_json values() const override;
  [[nodiscard]] nlohmann::json state() const override;
  void merge(const nlohmann::json& state) override;
  void clear() override;

 private:
  std::int64_t k_;
  IgnoreIndex ignore_index_;
  std::int64_t correct_ = 0;
  std::int64_t counted_ = 0;
};

/// How a value of each class becomes one. Macro: the mean over classes that occur, as target or predicted, as
/// scikit-learn does; micro: of all classes counted together; per class: a list, NaN for classes that do not occur.
enum class Average { kMacro, kMicro, kPerClass };

/// What precision, recall and F-beta have in common: of each class how often it was right, predicted, and the target.
/// A value whose denominator is 0 is 0.
class ClassScore : public Metric {
 public:
  void add(const at::Tensor& output, const at::Tensor& target) override;
  [[nodiscard]] nlohmann::ordered_json values() const override;
  [[nodiscard]] nlohmann::json state() const override;
  void merge(const nlohmann::json& state) override;
  void clear() override;

 protected:
  ClassScore(std::string name, Average average, IgnoreIndex ignore_index);
  [[nodiscard]] virtual double score(double right, double predicted, double actual) const = 0;

 private:
  std::string name_;
  Average average_;
  IgnoreIndex ignore_index_;
  std::vector<std::int64_t> right_;
  std::vector<std::int64_t> predicted_;
  std::vector<std::int64_t> actual_;
};

/// Right of those predicted. values(): "precision", "precision_micro" or "precision_per_class".
class Precision final : public ClassScore {
 public:
  explicit Precision(Average average = Average::kMacro, IgnoreIndex ignore_index = {});

 private:
  [[nodiscard]] double score(double right, double predicted, double actual) const override;
};

/// Right of those that are targets. values(): "recall", "recall_micro" or "recall_per_class".
class Recall final : public ClassScore {
 public:
  explicit Recall(Average average = Average::kMacro, IgnoreIndex ignore_index = {});

 private:
  [[nodiscard]] double score(double right, double predicted, double actual) const override;
};

/// The harmonic mean of both, recall counting beta times. values(): "f1" with beta = 1, "f0.5_micro" and so on.
class FBeta final : public ClassScore {
 public:
  explicit FBeta(double beta = 1, Average average = Average::kMacro, IgnoreIndex ignore_index = {});

 private:
  [[nodiscard]] double score(double right, double predicted, double actual) const override;
  double beta_;
};

/// How often each class was taken for each. values(): "mean_iou" over classes that occur, "iou" and "class_accuracy"
/// by class (NaN where there is none), and with `shows_matrix` "confusion_matrix", rows by target. Of at most 4096
/// classes.
class ConfusionMatrix final : public Metric {
 public:
  explicit ConfusionMatrix(bool shows_matrix = true, IgnoreIndex ignore_index = {})
      : shows_matrix_(shows_matrix), ignore_index_(ignore_index) {}
  void add(const at::Tensor& output, const at::Tensor& target) override;
  [[nodiscard]] nlohmann::ordered_json values() const override;
  [[nodiscard]] nlohmann::json state() const override;
  void merge(const nlohmann::json& state) override;
  void clear() override;
  /// [C, C], int64; undefined before the first batch.
  [[nodiscard]] at::Tensor counts() const;

 private:
  bool shows_matrix_;
  IgnoreIndex ignore_index_;
  std::int64_t classes_ = 0;
  std::vector<std::int64_t> counts_;  // Row by row.
};

/// exp of the mean negative log-likelihood of the targets, outputs being logits. values(): "perplexity".
class Perplexity final : public Metric {
 public:
  explicit Perplexity(IgnoreIndex ignore_index = {}) : ignore_index_(ignore_index) {}
  void add(const at::Tensor& output, const at::Tensor& target) override;
  [[nodiscard]] nlohmann::ordered_json values() const override;
  [[nodiscard]] nlohmann::json state() const override;
  void merge(const nlohmann::json& state) override;
  void clear() override;

 private:
  IgnoreIndex ignore_index_;
  ExactSum log_loss_;
  std::int64_t counted_ = 0;
};

/// The mean over all numbers of |output - target|, or of its square. values(): "mae" or "mse". Outputs and targets
/// have as many numbers.
class MeanError final : public Metric {
 public:
  enum class Kind { kAbsolute, kSquared };
  explicit MeanError(Kind kind) : kind_(kind) {}
  void add(const at::Tensor& output, const at::Tensor& target) override;
  [[nodiscard]] nlohmann::ordered_json values() const override;
  [[nodiscard]] nlohmann::json state() const override;
  void merge(const nlohmann::json& state) override;
  void clear() override;

 private:
  Kind kind_;
  ExactSum sum_;
  std::int64_t counted_ = 0;
};

/// The share of the targets' variance that the outputs explain, the mean over the numbers of a sample as scikit-learn's
/// r2_score. Where a target is constant: 1 when all outputs equal it, else 0. Of less than two samples: NaN.
/// values(): "r2".
class R2 final : public Metric {
 public:
  void add(const at::Tensor& output, const at::Tensor& target) override;
  [[nodiscard]] nlohmann::ordered_json values() const override;
  [[nodiscard]] nlohmann::json state() const override;
  void merge(const nlohmann::json& state) override;
  void clear() override;

 private:
  struct Column {
    ExactSum targets;
    ExactSum squares;
    ExactSum residuals;
    double least = 0;
    double most = 0;
  };
  [[nodiscard]] double of(const Column& column) const;
  void fit(std::int64_t columns);

  std::vector<Column> columns_;  // By number of a sample.
  std::int64_t counted_ = 0;
};

/// By the settings of a job file: {"type": "top_k", "k": 5}. Throws std::invalid_argument for an unknown type.
[[nodiscard]] std::unique_ptr<Metric> make_metric(const nlohmann::json& settings);

}  // namespace sgd
