// Data without a known size, and an operator that says which samples have been trained on. A sample's features follow
// from its number and the pass, and from noise that LibTorch's generators draw.
#include <cmath>
#include <csignal>
#include <filesystem>
#include <fstream>

#include <sgd/sgd.hpp>

namespace {

const void* last_read = nullptr;  // Memory of the features that next() gave last.

/// All ranks read rounds of world_size * n samples together: a round is divided among them, so that its beginning is
/// everybody's place.
class Fixed : public sgd::IterableDataset {
 public:
  Fixed(const nlohmann::json& settings, std::uint64_t seed) : settings_(settings), seed_(seed) {}

  [[nodiscard]] sgd::SampleShape shape() const override { return {{4}, 1}; }

  void begin(const sgd::Pass& pass) override {
    pass_ = pass;
    round_ = batches_ = 0;
    is_over_ = false;
  }

  std::optional<sgd::Batch> next(std::int64_t batch_size) override {
    if (is_over_) throw std::logic_error("next() is called behind the end");
    if (is("throws_at", batches_ + 1) && pass_.rank == settings_.at("bad_rank"))
      throw std::runtime_error("the line is cut");
    if (is("dies_at", batches_ + 1) && pass_.rank == settings_.at("bad_rank")) die_once();
    const std::int64_t left = count() - round_;
    const std::int64_t taken = std::min(left, batch_size * pass_.world_size);
    const std::int64_t first = round_ + taken * pass_.rank / pass_.world_size;
    const std::int64_t end = round_ + taken * (pass_.rank + 1) / pass_.world_size;
    const bool ends_early = is("ends_after", batches_) && pass_.rank == settings_.at("bad_rank");
    is_over_ = first == end || ends_early;
    if (is_over_) return std::nullopt;
    round_ += taken;
    ++batches_;
    return samples(first, end);
  }

  [[nodiscard]] nlohmann::json state() const override {
    if (settings_.at("wrong") == "state") return {{"place", std::nan("")}};
    if (settings_.at("wrong") == "long") return std::string(2 << 20, 'a');
    return {{"round", round_}, {"batches", batches_}, {"is_over", is_over_}};
  }
  void load_state(const nlohmann::json& state) override {
    if (settings_.at("wrong") == "load") throw std::runtime_error("place 7 is gone");
    round_ = state.at("round");
    batches_ = state.at("batches");
    is_over_ = state.at("is_over");
  }

 private:
  [[nodiscard]] bool is(const char* key, std::int64_t batch) const {
    return pass_.split == sgd::Split::kTrain && settings_.at(key) == batch;
  }
  [[nodiscard]] std::int64_t count() const {
    return settings_.at(pass_.split == sgd::Split::kTrain ? "samples" : "validation_samples");
  }
  void die_once() const {
    const std::string mark = settings_.at("marks").get<std::string>() + "/died-in-pass-" + std::to_string(pass_.number);
    if (std::filesystem::exists(mark)) return;
    std::ofstream(mark) << "once";
    (void)std::raise(SIGKILL);
  }
  [[nodiscard]] sgd::Batch samples(std::int64_t first, std::int64_t end) const {
    const at::Tensor numbers = at::arange(first, end, at::kDouble).unsqueeze(1);
    const at::Tensor angles = numbers * at::arange(1, 5, at::kDouble) + 0.1 * pass_.number + static_cast<double>(seed_);
    at::Tensor features = at::sin(angles).to(at::kFloat);
    at::Tensor target = features.sum(1, true) * 0.5;
    if (settings_.at("noise").get<bool>()) target = target + 0.01 * at::randn_like(target);
    if (settings_.at("wrong") == "rows") target = target.slice(0, 1);
    last_read = features.data_ptr();
    return {features, target, {numbers}};
  }

  nlohmann::json settings_;
  std::uint64_t seed_;
  sgd::Pass pass_;
  std::int64_t round_ = 0;
  std::int64_t batches_ = 0;
  bool is_over_ = false;
};

/// The same for any number of ranks.
class Divided : public Fixed {
 public:
  using Fixed::Fixed;
  void load_states(const std::vector<nlohmann::json>& states) override { load_state(states.front()); }
};

struct Net : torch::nn::Module {
  at::Tensor forward(const at::Tensor& x) { return out->forward(at::tanh(in->forward(x))); }
  torch::nn::Linear in = register_module("in", torch::nn::Linear(4, 16));
  torch::nn::Linear out = register_module("out", torch::nn::Linear(16, 1));
};

/// Keeps the numbers of an epoch's samples, and writes them to a file at its end.
class Ledger : public sgd::TrainingOperator {
 public:
  void setup(sgd::Setup& setup) override { net_ = setup.model("net", std::make_shared<Net>()); }

  nlohmann::json train_epoch(sgd::BatchStream& batches) override {
    (void)sgd::TrainingOperator::train_epoch(batches);
    if (!is_done_) return {};  // It stops inside the epoch.
    const std::string name = "epoch-" + std::to_string(++epochs_) + "-rank-" + std::to_string(world_rank());
    std::ofstream(config().at("folder").get<std::string>() + "/" + name) << nlohmann::json(numbers_).dump();
    numbers_.clear();
    is_done_ = false;
    return {};
  }
  sgd::BatchMetrics train_batch(const sgd::Batch& batch, sgd::Step& step) override {
    const at::Tensor loss = at::mse_loss(net_->forward(torch::dropout(batch.features, 0.1, true)), batch.target);
    step.minimize(loss);
    is_done_ = step.info().is_last;
    for (std::int64_t i = 0; i < batch.features.size(0); ++i)
      numbers_.push_back(static_cast<std::int64_t>(batch.further.at(0)[i].item<double>()));
    return {batch.features.size(0), {{"train_loss", loss.item<double>()}}};
  }
  sgd::BatchMetrics validate_batch(const sgd::Batch& batch, const sgd::BatchInfo& /*info*/) override {
    return {batch.features.size(0),
            {{"val_loss", at::mse_loss(net_->forward(batch.features), batch.target).item<double>()}}};
  }

  [[nodiscard]] nlohmann::json state() const override {
    return {{"numbers", numbers_}, {"epochs", epochs_}, {"is_done", is_done_}};
  }
  void load_states(std::vector<nlohmann::json> states) override {
    for (const nlohmann::json& one : states) {
      for (const nlohmann::json& number : one.at("numbers")) numbers_.push_back(number);
      epochs_ = one.at("epochs");
      is_done_ = one.at("is_done");
    }
  }
  [[nodiscard]] nlohmann::json shared_state() const override { return {{"epochs", epochs_}}; }
  void load_shared_state(const nlohmann::json& state) override { epochs_ = state.at("epochs"); }

 private:
  std::shared_ptr<Net> net_;
  std::vector<std::int64_t> numbers_;
  int epochs_ = 0;
  bool is_done_ = false;
};

void loop(sgd::Session& session) {
  auto net = session.prepare_model("net", std::make_shared<Net>());
  auto optimizer = session.prepare_optimizer("sgd", torch::optim::SGD(net->parameters(), 0.1));
  for (const int epoch : session.epochs()) {
    std::int64_t samples = 0;
    bool all_moved = true;
    for (const sgd::Batch& batch : session.train_data()) {
      optimizer->zero_grad();
      session.backward(at::mse_loss(net->forward(batch.features), batch.target));
      optimizer->step();
    }
    for (const sgd::Batch& batch : session.validation_data()) {
      samples += batch.features.size(0);
      all_moved = all_moved && batch.features.data_ptr() != last_read;
    }
    session.report({{"of_epoch", epoch}, {"validated", samples}, {"all_moved", all_moved}});
  }
}

constexpr const char* kSettings = R"({
  "samples": {"type": "integer", "minimum": 0, "default": 1000},
  "validation_samples": {"type": "integer", "minimum": 0, "default": 100},
  "noise": {"type": "boolean", "default": true},
  "bad_rank": {"type": "integer", "default": 1},
  "ends_after": {"type": "integer", "default": -1},
  "throws_at": {"type": "integer", "default": -1},
  "dies_at": {"type": "integer", "default": -1},
  "marks": {"type": "string", "default": "", "x-path": true},
  "wrong": {"type": "string", "default": ""}
})";

}  // namespace

SGD_REGISTER_DATASET("fixed_stream", Fixed, kSettings);
SGD_REGISTER_DATASET("divided_stream", Divided, kSettings);
SGD_REGISTER_OPERATOR("ledger", Ledger, R"({"folder": {"type": "string", "x-path": true}})");
SGD_REGISTER_FUNCTION("stream_loop", loop, "{}");
