// Training loops of a user's own: one over epochs and batches of the session, one that makes everything itself.
#include <cmath>
#include <csignal>
#include <fstream>

#include <sgd/sgd.hpp>

namespace {

struct Net : torch::nn::Module {
  Net()
      : in(register_module("in", torch::nn::Linear(784, 32))), out(register_module("out", torch::nn::Linear(32, 10))) {
    register_module("norm", norm);
  }
  at::Tensor forward(const at::Tensor& images) {
    return out->forward(torch::relu(norm->forward(in->forward(images.flatten(1)))));
  }
  torch::nn::Linear in, out;
  torch::nn::BatchNorm1d norm{32};
};

void epochs(sgd::Session& session) {
  const auto net = session.prepare_model("net", std::make_shared<Net>());
  const auto optimizer = session.prepare_optimizer(
      "sgd", torch::optim::SGD(net->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9)));
  const nlohmann::json& config = session.config();
  // Looks at what is validated on between two batches, to the end or not.
  const auto look = [&](bool to_the_end) {
    net->eval();
    for (const sgd::Batch& batch : session.validation_data()) {
      const at::NoGradGuard no_gradients;
      (void)net->forward(batch.features);
      if (!to_the_end) break;
    }
    net->train();
  };
  for (const int epoch : session.epochs()) {
    net->train();
    std::int64_t batches = 0;
    for (const sgd::Batch& batch : session.train_data()) {
      const at::Tensor images = torch::dropout(batch.features, 0.1, true);
      const at::Tensor loss = torch::cross_entropy_loss(net->forward(images), batch.target);
      session.backward(loss);
      optimizer->step();
      if (const std::string how = config.at("look"); how != "never") look(how == "to the end");
      if (++batches == 100 && config.at("report_inside").get<bool>()) session.report({{"loss", loss.item<double>()}});
    }
    net->eval();
    const at::NoGradGuard no_gradients;
    double right = 0, all = 0;
    for (const sgd::Batch& batch : session.validation_data(config.at("validates_on"))) {
      right += net->forward(batch.features).argmax(1).eq(batch.target).sum().item<double>();
      all += static_cast<double>(batch.features.size(0));
    }
    session.report({{"val_accuracy", right / all}, {"which", epoch}, {"name", "epoch " + std::to_string(epoch)}});
    if (epoch == config.at("pause_behind")) std::ifstream opened(config.at("until").get<std::string>());
  }
}

/// Ends each batch by itself, and then reports it, in the middle of a step of several batches, too.
void accumulating(sgd::Session& session) {
  const auto net = session.prepare_model("net", std::make_shared<Net>());
  (void)session.prepare_optimizer("sgd", torch::optim::SGD(net->parameters(), 0.05));
  const nlohmann::json& config = session.config();
  for (const int epoch : session.epochs()) {
    std::int64_t batches = 0;
    for (const sgd::Batch& batch : session.train_data()) {
      const at::Tensor loss = torch::cross_entropy_loss(net->forward(batch.features), batch.target);
      session.step().minimize(loss);
      session.step_done();
      session.report({{"loss", loss.item<double>()}});
      if (++batches == config.at("save_at")) session.save_checkpoint({{"epoch", epoch}});
    }
  }
}

/// Changes gradients between backward() and step(), where they are this rank's own.
void clipping(sgd::Session& session) {
  const auto net = session.prepare_model("net", std::make_shared<Net>());
  const auto optimizer = session.prepare_optimizer("sgd", torch::optim::SGD(net->parameters(), 0.05));
  const double limit = session.config().at("limit");
  for ([[maybe_unused]] const int epoch : session.epochs()) {
    for (const sgd::Batch& batch : session.train_data()) {
      session.backward(torch::cross_entropy_loss(net->forward(batch.features), batch.target));
      (void)torch::nn::utils::clip_grad_norm_(net->parameters(), limit);
      optimizer->step();
    }
  }
}

/// Reports wherever one can; one of its ranks dies in a step, or at an epoch's end, once the FIFO "until" is opened.
void reporting(sgd::Session& session) {
  const auto net = session.prepare_model("net", std::make_shared<Net>());
  (void)session.prepare_optimizer("sgd", torch::optim::SGD(net->parameters(), 0.05));
  const nlohmann::json& config = session.config();
  const auto die_if = [&](bool is_here) {
    if (!is_here || session.world_rank() != 1) return;
    std::ifstream opened(config.at("until").get<std::string>());
    (void)raise(SIGKILL);
  };
  for (const int epoch : session.epochs()) {
    session.report({{"at", "the top"}});
    session.report({{"at", "the data"}});
    for (const sgd::Batch& batch : session.train_data()) {
      session.step().minimize(torch::cross_entropy_loss(net->forward(batch.features), batch.target));
      die_if(session.step().info().global_step == config.at("die_in"));
      session.report({{"at", "a batch"}});
      session.step_done();
      session.report({{"at", "a step's end"}});
    }
    session.report({{"at", "the end"}});
    die_if(epoch == config.at("die_behind"));
  }
}

/// Nothing is trained: after a failure it begins anew, from what it saved.
void iterations(sgd::Session& session) {
  const nlohmann::json& config = session.config();
  const std::string mistake = config.at("mistake");
  if (mistake == "follows a metric") {
    const auto net = session.prepare_model("net", std::make_shared<Net>());
    const auto optimizer = session.prepare_optimizer("sgd", torch::optim::SGD(net->parameters(), 0.05));
    session.setup().scheduler(*optimizer, {{"type", "reduce_on_plateau"}, {"patience", 1}});
  }
  if (config.at("prepares").get<bool>()) {
    const auto net = session.prepare_model("net", std::make_shared<Net>());
    (void)session.prepare_optimizer("sgd", torch::optim::SGD(net->parameters(), 0.05));
  }
  std::int64_t first = 0;
  at::Tensor sum = at::zeros({2});
  if (const auto saved = session.load_checkpoint()) {
    first = saved->values.at("next");
    sum = saved->tensors.at("sum");
  }
  const bool is_odd = session.world_rank() == 1;
  for (std::int64_t i = first; i < config.at("count"); ++i) {
    sum += static_cast<float>(i);
    if (config.at("reports").get<bool>())
      session.report({{"i", i}, {"sum", sum[0].item<double>()}, {"rank", session.world_rank()}});
    if (mistake == "reports more" && is_odd && i == 1) session.report({{"i", i}});
    if (mistake == "does not save" && is_odd && i == 1) continue;
    if (mistake == "ends early" && is_odd && i == 1) return;
    if (mistake == "saves NaN" && i == 1) session.save_checkpoint({{"x", std::nan("")}});
    if (mistake == "throws" && i == 1) throw std::runtime_error("the loop does not like this");
    if (mistake == "dies" && is_odd && i == 3 && first == 0) raise(SIGKILL);
    session.save_checkpoint({{"next", i + 1}}, {{"sum", sum}});
    if (mistake == "prepares late") (void)session.prepare_model("net", std::make_shared<Net>());
  }
}

/// Reports its turns, and returns how many they were and who it is. In the turn "pause_at" it waits until
/// somebody opens the FIFO "until", too.
nlohmann::json turns(sgd::Session& session) {
  const nlohmann::json& config = session.config();
  const std::int64_t count = config.at("count");
  for (std::int64_t i = 0; i < count; ++i) {
    if (i == config.at("pause_at")) std::ifstream opened(config.at("until").get<std::string>());
    session.report({{"index", i}});
  }
  if (config.at("fails")) throw std::runtime_error("not all is well after the last turn");
  return {{"rank", session.world_rank()}, {"turns", count}};
}

/// Prepared, but with data of its own: steps count, and a save holds weights and optimizer. It dies long after one.
void own_data(sgd::Session& session) {
  auto net = session.prepare_model("net", torch::nn::Linear(2, 1));
  const auto optimizer = session.prepare_optimizer("adam", torch::optim::Adam(net->parameters(), 0.05));
  session.enable_reproducibility(7);
  std::int64_t first = 0;
  if (const auto saved = session.load_checkpoint()) first = saved->values.at("next");
  const std::int64_t steps = session.config().at("steps");
  const bool dies = session.config().at("dies").get<bool>() && first == 0 && session.world_rank() == 1;
  for (std::int64_t i = first; i < steps; ++i) {
    const at::Tensor input = at::ones({4, 2}) * static_cast<double>(i % 7 + session.world_rank());
    const at::Tensor loss = (net->forward(input) - input.sum(1, true)).square().mean();
    session.step().minimize(loss);
    session.step_done();
    if (dies && i == steps / 2 + steps / 8) raise(SIGKILL);
    if ((i + 1) % (steps / 4) != 0) continue;
    session.report({{"loss", loss.item<double>()}});
    session.save_checkpoint({{"next", i + 1}});
  }
}

/// Products below the smallest normal number: of one number, of so many that several threads share them, and of a
/// gradient.
void small_products(sgd::Session& session) {
  at::set_num_threads(2);
  const at::Tensor many = at::full({1 << 20}, 2e-38F) * 0.01F;
  at::Tensor leaf = at::full({1}, 2e-38F).requires_grad_();
  (leaf * 0.01F).backward(at::full({1}, 2e-38F));
  const auto is_zero = [](const at::Tensor& tensor) { return tensor.view(at::kInt).eq(0).all().item<bool>(); };
  const bool one = is_zero(at::full({1}, 2e-38F) * 0.01F);
  session.report({{"zeros", {{"one", one}, {"many", is_zero(many)}, {"gradient", is_zero(leaf.grad())}}}});
}

}  // namespace

SGD_REGISTER_FUNCTION("small_products", small_products, "{}");
SGD_REGISTER_FUNCTION("turns", turns, R"({
  "count": {"type": "integer", "default": 3},
  "pause_at": {"type": "integer", "default": -1},
  "until": {"type": "string", "default": ""},
  "fails": {"type": "boolean", "default": false}
})");
SGD_REGISTER_FUNCTION("own_data", own_data, R"({
  "dies": {"type": "boolean", "default": false},
  "steps": {"type": "integer", "minimum": 8, "default": 200}
})");
SGD_REGISTER_FUNCTION("clipping", clipping, R"({"limit": {"type": "number", "default": 0.001}})");
SGD_REGISTER_FUNCTION("accumulating", accumulating, R"({"save_at": {"type": "integer", "default": -1}})");
SGD_REGISTER_FUNCTION("epochs", epochs, R"({
  "report_inside": {"type": "boolean", "default": false},
  "look": {"enum": ["never", "to the end", "for a while"], "default": "never"},
  "pause_behind": {"type": "integer", "default": -1},
  "until": {"type": "string", "default": ""},
  "validates_on": {"type": "string", "default": "validation"}
})");
SGD_REGISTER_FUNCTION("reporting", reporting, R"({
  "die_in": {"type": "integer", "default": -1},
  "die_behind": {"type": "integer", "default": -1},
  "until": {"type": "string", "default": ""}
})");
SGD_REGISTER_FUNCTION("iterations", iterations, R"({
  "count": {"type": "integer", "minimum": 1, "default": 5},
  "reports": {"type": "boolean", "default": true},
  "prepares": {"type": "boolean", "default": false},
  "mistake": {"type": "string", "default": "nothing"}
})");
