// The order of operations is PyTorch's throughout: the bits are, too, where no cosine is in it.
#include "worker/core/schedules/rules.hpp"

#include <algorithm>
#include <numbers>
#include <string>
#include <utility>
#include <vector>

#include "common/base/assert.hpp"
#include "worker/core/schedules/cosine.hpp"

namespace sgd::worker {
namespace {

constexpr double kPi = std::numbers::pi;

class StepRule final : public ScheduleRule {
 public:
  StepRule(std::int64_t step_size, double gamma) : step_size_(step_size), gamma_(gamma) {}
  Rates next(Rates rates, std::int64_t count) const override {
    if (count % step_size_ == 0) rates.lr *= gamma_;
    return rates;
  }

 private:
  std::int64_t step_size_;
  double gamma_;
};

class MultiStepRule final : public ScheduleRule {
 public:
  MultiStepRule(std::vector<std::int64_t> milestones, double gamma)
      : milestones_(std::move(milestones)), gamma_(gamma) {
    std::sort(milestones_.begin(), milestones_.end());
  }
  Rates next(Rates rates, std::int64_t count) const override {
    const auto [first, last] = std::equal_range(milestones_.begin(), milestones_.end(), count);
    if (first == last) return rates;
    double factor = gamma_;
    for (auto again = first + 1; again != last; ++again) factor *= gamma_;
    rates.lr *= factor;
    return rates;
  }

 private:
  std::vector<std::int64_t> milestones_;  // One that is named twice counts twice.
  double gamma_;
};

class ExponentialRule final : public ScheduleRule {
 public:
  explicit ExponentialRule(double gamma) : gamma_(gamma) {}
  Rates next(Rates rates, std::int64_t) const override {
    rates.lr *= gamma_;
    return rates;
  }

 private:
  double gamma_;
};

class LinearRule final : public ScheduleRule {
 public:
  LinearRule(double start, double end, std::int64_t total) : start_(start), end_(end), total_(total) {}
  Rates begin(Rates rates) const override {
    rates.lr *= start_;
    return rates;
  }
  Rates next(Rates rates, std::int64_t count) const override {
    if (count > total_) return rates;
    const auto total = static_cast<double>(total_);
    const auto before = static_cast<double>(count - 1);
    rates.lr *= 1.0 + (end_ - start_) / (total * start_ + before * (end_ - start_));
    return rates;
  }

 private:
  double start_;
  double end_;
  std::int64_t total_;
};

class CosineRule final : public ScheduleRule {
 public:
  CosineRule(double base_lr, std::int64_t t_max, double eta_min)
      : base_lr_(base_lr), t_max_(t_max), eta_min_(eta_min) {}
  Rates next(Rates rates, std::int64_t count) const override {
    const auto t_max = static_cast<double>(t_max_);
    if ((count - 1 - t_max_) % (2 * t_max_) == 0) {  // Upwards again: there is no ratio to where the cosine is -1.
      rates.lr = rates.lr + (base_lr_ - eta_min_) * (1 - cosine(kPi / t_max)) / 2;
      return rates;
    }
    const double now = 1 + cosine(kPi * static_cast<double>(count) / t_max);
    const double before = 1 + cosine(kPi * static_cast<double>(count - 1) / t_max);
    rates.lr = now / before * (rates.lr - eta_min_) + eta_min_;
    return rates;
  }

 private:
  double base_lr_;
  std::int64_t t_max_;
  double eta_min_;
};

class WarmRestartsRule final : public ScheduleRule {
 public:
  WarmRestartsRule(double base_lr, std::int64_t t_0, std::int64_t t_mult, double eta_min)
      : base_lr_(base_lr), t_0_(t_0), t_mult_(t_mult), eta_min_(eta_min) {}
  Rates begin(Rates rates) const override { return next(rates, 0); }
  Rates next(Rates rates, std::int64_t count) const override {
    std::int64_t length = t_0_;
    if (t_mult_ == 1) count %= length;
    for (; count >= length; length *= t_mult_) count -= length;
    const double angle = kPi * static_cast<double>(count) / static_cast<double>(length);
    rates.lr = eta_min_ + (base_lr_ - eta_min_) * (1 + cosine(angle)) / 2;
    return rates;
  }

 private:
  double base_lr_;
  std::int64_t t_0_;
  std::int64_t t_mult_;
  double eta_min_;
};

}  // namespace

std::unique_ptr<ScheduleRule> make_rule(const nlohmann::json& settings, double base_lr) {
  const auto number = [&settings](const char* key) { return settings[key].get<double>(); };
  const auto count = [&settings](const char* key) { return settings[key].get<std::int64_t>(); };
  const std::string type = settings["type"];
  if (type == "step") return std::make_unique<StepRule>(count("step_size"), number("gamma"));
  if (type == "multi_step") {
    const std::vector<std::int64_t> milestones = settings["milestones"];
    return std::make_unique<MultiStepRule>(milestones, number("gamma"));
  }
  if (type == "exponential") return std::make_unique<ExponentialRule>(number("gamma"));
  if (type == "linear") {
    return std::make_unique<LinearRule>(number("start_factor"), number("end_factor"), count("total_iters"));
  }
  if (type == "cosine") return std::make_unique<CosineRule>(base_lr, count("t_max"), number("eta_min"));
  if (type == "cosine_warm_restarts") {
    return std::make_unique<WarmRestartsRule>(base_lr, count("t_0"), count("t_mult"), number("eta_min"));
  }
  SGD_ASSERT(type == "one_cycle");
  return make_one_cycle(settings);
}

}  // namespace sgd::worker
