// An operator that keeps all of the public metrics, so that a worker must have each of them for a plug-in.
#include <sgd/sgd.hpp>

namespace {

class Measured : public sgd::TrainingOperator {
 public:
  sgd::BatchMetrics validate_batch(const sgd::Batch& batch, const sgd::BatchInfo& info) override {
    sgd::BatchMetrics metrics = sgd::TrainingOperator::validate_batch(batch, info);
    meters_.update(metrics.values, metrics.num_samples);
    for (const auto& [name, value] : metrics.values) sum_.add(value);
    return metrics;
  }

  [[nodiscard]] nlohmann::json state() const override {
    nlohmann::json kept = {{"meters", meters_.state()}, {"sum", sum_.state()}};
    for (const auto& one : all_) kept["others"].push_back(one->state());
    return kept;
  }

 private:
  sgd::AverageMeterCollection meters_;
  sgd::ExactSum sum_;
  std::vector<std::shared_ptr<sgd::Metric>> all_ = {
      std::make_shared<sgd::Accuracy>(),
      std::make_shared<sgd::TopK>(3),
      std::make_shared<sgd::Precision>(sgd::Average::kMicro),
      std::make_shared<sgd::Recall>(sgd::Average::kPerClass, 255),
      std::make_shared<sgd::FBeta>(2),
      std::make_shared<sgd::ConfusionMatrix>(false),
      std::make_shared<sgd::Perplexity>(),
      std::make_shared<sgd::MeanError>(sgd::MeanError::Kind::kAbsolute),
      std::make_shared<sgd::R2>(),
  };
};

}  // namespace

SGD_REGISTER_OPERATOR("measured", Measured, R"({"threshold": {"type": "number", "minimum": 0, "default": 0.5}})");
