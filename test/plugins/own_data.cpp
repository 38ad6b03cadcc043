// Data and a loss of one's own, and a model of two inputs: y = a * b over pairs of numbers that are made from the
// sample's number, so that what a sample is can be told from it.
#include <cmath>
#include <limits>
#include <stdexcept>

#include <sgd/sgd.hpp>

namespace {

class Pairs : public sgd::Dataset {
 public:
  Pairs(const nlohmann::json& settings, std::uint64_t seed)
      : samples_(settings.at("samples")), wrong_(settings.at("wrong")), seed_(seed) {
    if (wrong_ == "factory") throw std::runtime_error("no pairs today");
  }

  [[nodiscard]] std::int64_t count(sgd::Split split) const override {
    const bool is_training = split == sgd::Split::kTrain;
    if (wrong_ == "count" || wrong_ == (is_training ? "no training" : "no validation")) return 0;
    return is_training ? samples_ : 100;
  }

  [[nodiscard]] sgd::Batch gather(sgd::Split split, int epoch, std::span<const std::int64_t> indices) const override {
    const auto rows = static_cast<std::int64_t>(indices.size());
    if (wrong_ == "gather" && split == sgd::Split::kTrain) throw std::runtime_error("sample 3 is bad");
    at::Tensor first = at::empty({rows, 4});
    at::Tensor second = at::empty({rows, 4});
    for (std::int64_t i = 0; i < rows; ++i) {
      for (std::int64_t k = 0; k < 4; ++k) {
        const auto number = static_cast<double>(indices[static_cast<std::size_t>(i)] * 4 + k);
        // The same sample is another one in the next epoch, as with a transform.
        first[i][k] = std::sin(number + static_cast<double>(seed_) + 0.1 * epoch);
        second[i][k] = std::cos(3 * number);
      }
    }
    const at::Tensor target = (first * second).sum(1, true);
    if (wrong_ == "rows") return {first, target.slice(0, 0, rows - 1), {second}};
    return {first, target, {second}};
  }

 private:
  std::int64_t samples_;
  std::string wrong_;
  std::uint64_t seed_;
};

class TwoTowers : public torch::nn::Module {
 public:
  at::Tensor forward(const at::Tensor& first, const at::Tensor& second) {
    return head->forward(at::tanh(left->forward(first)) * at::tanh(right->forward(second)));
  }
  torch::nn::Linear left = register_module("left", torch::nn::Linear(4, 16));
  torch::nn::Linear right = register_module("right", torch::nn::Linear(4, 16));
  torch::nn::Linear head = register_module("head", torch::nn::Linear(16, 1));
};

class PairsOperator : public sgd::TrainingOperator {
 public:
  void setup(sgd::Setup& setup) override { setup.model("net", std::make_shared<TwoTowers>()); }
};

/// What it is judged by is what its own validate() returns, in the place of what has been measured, too.
class Judged : public sgd::TrainingOperator {
 public:
  nlohmann::json validate(sgd::BatchStream& batches) override {
    (void)sgd::TrainingOperator::validate(batches);  // Ignoring that it returns nothing.
    ++validations_;
    const bool is_infinite = config().at("infinite").get<bool>() && validations_ > 1 && world_rank() == 1;
    const double score = is_infinite ? std::numeric_limits<double>::infinity() : validations_ + world_rank();
    return {{"score", score}, {"val_loss", 7.0}};
  }

 private:
  int validations_ = 0;
};

sgd::Loss make_scaled(const nlohmann::json& settings) {
  const double scale = settings.at("scale");
  return [scale](const at::Tensor& output, const at::Tensor& target) { return scale * at::mse_loss(output, target); };
}

nlohmann::json loop(sgd::Session& session) {
  auto net = session.prepare_model("net", std::make_shared<TwoTowers>());
  auto optimizer = session.prepare_optimizer("sgd", torch::optim::SGD(net->parameters(), 0.1));
  for (const int epoch : session.epochs()) {
    std::int64_t batches = 0;
    for (const sgd::Batch& batch : session.train_data()) {
      optimizer->zero_grad();
      session.backward(at::mse_loss(net->forward(batch.features, batch.further.at(0)), batch.target));
      optimizer->step();
      ++batches;
    }
    session.report({{"of_epoch", epoch}, {"batches", batches}});
  }
  const std::int64_t letters = session.config().at("letters");
  const auto letter = static_cast<char>(session.config().value("letter", 97));
  return {{"rank", session.world_rank()}, {"text", std::string(static_cast<std::size_t>(letters), letter)}};
}

}  // namespace

SGD_REGISTER_DATASET("pairs", Pairs, R"({"samples": {"type": "integer", "minimum": 1, "default": 1000},
                                         "wrong": {"type": "string", "default": ""}})");
SGD_REGISTER_OPERATOR("pairs", PairsOperator, "{}");
SGD_REGISTER_OPERATOR("judged", Judged, R"({"infinite": {"type": "boolean", "default": false}})");
SGD_REGISTER_FUNCTION("pairs_loop", loop, R"({"letters": {"type": "integer", "minimum": 0, "default": 3},
                                              "letter": {"type": "integer", "minimum": 0, "default": 97}})");
SGD_REGISTER_LOSS("scaled", make_scaled, R"({"scale": {"type": "number", "default": 1}})");
