// Each metric on numbers whose values are known, and what does not fit.
#include <catch2/catch.hpp>

#include <cmath>
#include <stdexcept>

#include "sgd/metrics.hpp"

namespace sgd {
namespace {

/// Rows that predict these classes.
at::Tensor predicting(const std::vector<std::int64_t>& classes, std::int64_t count) {
  return at::one_hot(at::tensor(classes, at::kLong), count).to(at::kFloat);
}

at::Tensor classes_of(const std::vector<std::int64_t>& classes) {
  return at::tensor(classes, at::kLong);
}

nlohmann::ordered_json measured(Metric& metric, const at::Tensor& output, const at::Tensor& target) {
  metric.add(output, target);
  return metric.values();
}

double number_of(const nlohmann::ordered_json& values, const char* key) {
  return values.at(key).get<double>();
}

// The example of scikit-learn's pages on precision and recall.
const std::vector<std::int64_t> kWanted = {0, 1, 2, 0, 1, 2};
const std::vector<std::int64_t> kPredicted = {0, 2, 1, 0, 0, 1};

void check_refused(Metric& metric, const at::Tensor& output, const at::Tensor& target, const std::string& words) {
  const nlohmann::json before = metric.state();
  CHECK_THROWS_WITH(metric.add(output, target), words);
  CHECK(metric.state() == before);
}

}  // namespace

TEST_CASE("accuracy and top-k: by hand") {
  Accuracy accuracy;
  CHECK(std::isnan(number_of(accuracy.values(), "accuracy")));
  CHECK(number_of(measured(accuracy, predicting(kPredicted, 3), classes_of(kWanted)), "accuracy") == 2.0 / 6);
  const at::Tensor scores =
      at::tensor({0.5, 0.2, 0.2, 0.3, 0.4, 0.2, 0.2, 0.4, 0.3, 0.7, 0.2, 0.1}, at::kDouble).view({4, 3});
  TopK two(2);
  // Of the first row, classes 1 and 2 are equal: the lower one comes first.
  CHECK(number_of(measured(two, scores, classes_of({1, 1, 2, 2})), "top_2") == 0.75);
  TopK one(1);
  CHECK(number_of(measured(one, scores, classes_of({0, 1, 1, 1})), "top_1") == 0.75);
  TopK with_nan(1);
  CHECK(number_of(measured(with_nan, at::full({1, 3}, std::nan("")), classes_of({0})), "top_1") == 0);
  CHECK_THROWS_WITH(TopK(0), "top_k: k must be at least 1, got 0");
}

TEST_CASE("accuracy: one output alone is class 1 above 0") {
  Accuracy accuracy;
  const at::Tensor output = at::tensor({-1.0, 2.0, 0.5, 0.0}).view({4, 1});
  CHECK(number_of(measured(accuracy, output, classes_of({0, 1, 0, 0})), "accuracy") == 0.75);
}

TEST_CASE("precision, recall and F-beta: scikit-learn's examples") {
  const auto value = [](Metric&& metric, const char* key) {
    return number_of(measured(metric, predicting(kPredicted, 3), classes_of(kWanted)), key);
  };
  CHECK(value(Precision(), "precision") == Approx(2.0 / 9).epsilon(1e-15));
  CHECK(value(Precision(Average::kMicro), "precision_micro") == 2.0 / 6);
  CHECK(value(Recall(), "recall") == 1.0 / 3);
  CHECK(value(Recall(Average::kMicro), "recall_micro") == 2.0 / 6);
  CHECK(value(FBeta(), "f1") == Approx(0.8 / 3).epsilon(1e-15));
  CHECK(value(FBeta(0.5), "f0.5") == Approx(0.23809523809523808).epsilon(1e-15));
  CHECK(value(FBeta(2, Average::kMicro), "f2_micro") == Approx(2.0 / 6).epsilon(1e-15));
  Precision each(Average::kPerClass);
  const auto list = measured(each, predicting(kPredicted, 4), classes_of(kWanted)).at("precision_per_class");
  REQUIRE(list.size() == 4);
  CHECK(list[0] == 2.0 / 3);
  CHECK(list[1] == 0.0);
  CHECK(std::isnan(list[3].get<double>()));  // Class 3 does not occur.
  CHECK_THROWS_WITH(FBeta(0), "f_beta: beta must be above 0, got 0");
}

TEST_CASE("confusion matrix: rows by target, IoU by class, classes that do not occur left out") {
  ConfusionMatrix confusion;
  CHECK_FALSE(confusion.counts().defined());
  const auto values = measured(confusion, predicting(kPredicted, 4), classes_of(kWanted));
  CHECK(values.at("confusion_matrix") == nlohmann::ordered_json::parse("[[2,0,0,0],[1,0,1,0],[0,2,0,0],[0,0,0,0]]"));
  CHECK(number_of(values, "mean_iou") == Approx(2.0 / 9).epsilon(1e-15));
  CHECK(values.at("iou")[0] == 2.0 / 3);
  CHECK(std::isnan(values.at("iou")[3].get<double>()));
  CHECK(values.at("class_accuracy")[0] == 1.0);
  CHECK(confusion.counts().sum().item<std::int64_t>() == 6);
}

TEST_CASE("classes: images of classes, and targets that are left out") {
  // [N, C, d...] with [N, d...]: two images of two by two, three classes.
  const at::Tensor labels = at::tensor({0, 1, 2, 255, 1, 1, 255, 0}, at::kLong).view({2, 2, 2});
  const at::Tensor guesses = at::tensor({0, 1, 1, 2, 1, 2, 0, 0}, at::kLong).view({2, 2, 2});
  const at::Tensor output = at::one_hot(guesses, 3).permute({0, 3, 1, 2}).to(at::kFloat);
  Accuracy accuracy(255);
  CHECK(number_of(measured(accuracy, output, labels), "accuracy") == 4.0 / 6);
  ConfusionMatrix confusion(true, 255);
  CHECK(measured(confusion, output, labels).at("confusion_matrix") ==
        nlohmann::ordered_json::parse("[[2,0,0],[0,2,1],[0,1,0]]"));
  Accuracy whole;
  check_refused(
      whole, output, labels,
      "accuracy: the target 255 is outside of 0..2: \"ignore_index\" leaves out the targets that are no class");
  Accuracy nothing(255);
  CHECK(std::isnan(number_of(measured(nothing, output, at::full_like(labels, 255)), "accuracy")));
}

TEST_CASE("perplexity: of equal chances the number of classes; as cross_entropy") {
  Perplexity even;
  CHECK(number_of(measured(even, at::zeros({5, 8}), classes_of({0, 1, 2, 3, 7})), "perplexity") ==
        Approx(8).epsilon(1e-14));
  at::manual_seed(3);
  const at::Tensor output = at::randn({40, 11, 3});
  const at::Tensor target = at::randint(0, 11, {40, 3}, at::kLong);
  target[0][1] = -100;
  Perplexity perplexity(-100);
  const double loss =
      at::cross_entropy_loss(output.to(at::kDouble), target, {}, at::Reduction::Mean, -100).item<double>();
  CHECK(number_of(measured(perplexity, output, target), "perplexity") == Approx(std::exp(loss)).epsilon(1e-12));
}

TEST_CASE("errors of numbers: by hand, and scikit-learn's examples of R2") {
  const at::Tensor output = at::tensor({2.5, 0.0, 2.0, 8.0}, at::kDouble);
  const at::Tensor target = at::tensor({3.0, -0.5, 2.0, 7.0}, at::kDouble);
  MeanError mae(MeanError::Kind::kAbsolute);
  MeanError mse(MeanError::Kind::kSquared);
  R2 r2;
  CHECK(number_of(measured(mae, output.view({4, 1}), target), "mae") == 0.5);
  CHECK(number_of(measured(mse, output, target), "mse") == 0.375);
  CHECK(number_of(measured(r2, output, target), "r2") == Approx(0.9486081370449679).epsilon(1e-15));
  R2 two;
  const at::Tensor outputs = at::tensor({0.0, 2.0, -1.0, 2.0, 8.0, -5.0}, at::kDouble).view({3, 2});
  const at::Tensor targets = at::tensor({0.5, 1.0, -1.0, 1.0, 7.0, -6.0}, at::kDouble).view({3, 2});
  CHECK(number_of(measured(two, outputs, targets), "r2") == Approx(0.9368005266622779).epsilon(1e-15));
}

TEST_CASE("R2: constant targets, a single sample, and targets far from 0") {
  R2 single;
  CHECK(std::isnan(number_of(measured(single, at::ones({1}), at::ones({1})), "r2")));
  R2 exact;
  CHECK(number_of(measured(exact, at::full({3}, 0.1, at::kDouble), at::full({3}, 0.1, at::kDouble)), "r2") == 1);
  R2 wrong;
  CHECK(number_of(measured(wrong, at::ones({3}), at::full({3}, 2.0)), "r2") == 0);
  // Variance 1.25 around 1e9: what a difference of rounded sums of squares would lose altogether.
  R2 far;
  const at::Tensor target = at::tensor({0.0, 1.0, 2.0, 3.0}, at::kDouble) + 1e9;
  CHECK(number_of(measured(far, target + 0.5, target), "r2") == Approx(0.8).epsilon(1e-15));
}

TEST_CASE("metrics: what does not fit is said, and counted as nothing") {
  Accuracy accuracy;
  check_refused(accuracy, at::zeros({4, 3}), at::zeros({5}, at::kLong),
                "accuracy: outputs of shape [4, 3] and targets of shape [5] do not fit: [N, C, ...] and [N, ...] are "
                "expected");
  check_refused(accuracy, at::zeros({4}), at::zeros({4}, at::kLong),
                "accuracy: outputs of shape [4] and targets of shape [4] do not fit: [N, C, ...] and [N, ...] are "
                "expected");
  check_refused(accuracy, at::zeros({4, 3}), at::zeros({4}),
                "accuracy: its targets are classes, integers from 0, and these are numbers of another kind");
  TopK five(5);
  check_refused(five, at::zeros({4, 3}), at::zeros({4}, at::kLong),
                "top_k: k is 5, and the model has 3 outputs: take a smaller k");
  TopK first(1);
  check_refused(first, at::zeros({2, 1}), classes_of({0, 1}),
                "top_k: the model has one output for two classes, and one for each is needed: take \"accuracy\", "
                "\"precision\" or \"recall\"");
  Perplexity perplexity;
  check_refused(perplexity, at::zeros({2, 1}), classes_of({0, 1}),
                "perplexity: the model has one output for two classes, and one for each is needed: take \"accuracy\", "
                "\"precision\" or \"recall\"");
  MeanError mae(MeanError::Kind::kAbsolute);
  check_refused(mae, at::zeros({4, 2}), at::zeros({4}),
                "mae: outputs of shape [4, 2] and targets of shape [4] do not fit: as many numbers of as many samples "
                "are expected");
  Recall recall;
  recall.add(at::zeros({4, 3}), at::zeros({4}, at::kLong));
  check_refused(recall, at::zeros({4, 5}), at::zeros({4}, at::kLong),
                "recall: a batch has 5 classes, and those before it have 3");
}

TEST_CASE("metrics: limits of what a report can list") {
  ConfusionMatrix matrix;
  check_refused(matrix, at::zeros({1, 65}), at::zeros({1}, at::kLong),
                "confusion_matrix: the matrix of 65 classes does not fit a report, that of 64 does: set \"matrix\": "
                "false");  // kMatrixClassesMax
  CHECK_NOTHROW(ConfusionMatrix().add(at::zeros({1, 64}), at::zeros({1}, at::kLong)));
  ConfusionMatrix large(false);
  large.add(at::zeros({1, 300}), at::zeros({1}, at::kLong));
  CHECK_FALSE(large.values().contains("iou"));
  CHECK(number_of(large.values(), "mean_iou") == 1);
  ConfusionMatrix huge(false);
  for (const std::int64_t classes : {4097, 50257})
    CHECK_THROWS_AS(huge.add(at::zeros({1, classes}), at::zeros({1}, at::kLong)), std::invalid_argument);
  check_refused(huge, at::zeros({1, 50257}), at::zeros({1}, at::kLong),
                "confusion_matrix: a table of 50257 classes takes 19270 MiB in each worker, at most 4096 can be: leave "
                "the metric out");  // kConfusionClassesMax
  CHECK_FALSE(huge.counts().defined());
  CHECK_THROWS_WITH(
      huge.merge({{"classes", 4097}, {"cells", nlohmann::json::array()}, {"counts", nlohmann::json::array()}}),
      Catch::Contains("it has 4097 classes, at most 4096 can be"));
  CHECK_NOTHROW(huge.add(at::zeros({1, 4096}), at::zeros({1}, at::kLong)));
  Precision each(Average::kPerClass);
  check_refused(each, at::zeros({1, 257}), at::zeros({1}, at::kLong),
                "precision_per_class: a list of 257 classes does not fit a report, at most 256 do: take the average "
                "\"macro\" or \"micro\"");  // kListedClassesMax
}

}  // namespace sgd
