#pragma once
// A training loop of one's own, which every rank runs from its beginning to its end:
//
//   void train(sgd::Session& session) {
//     auto net = session.prepare_model("net", std::make_shared<Net>());
//     auto optimizer = session.prepare_optimizer("sgd", torch::optim::SGD(net->parameters(), 0.1));
//     for (int epoch : session.epochs()) {
//       for (const sgd::Batch& batch : session.train_data()) {
//         session.backward(loss_of(net, batch));
//         optimizer->step();                       // the mean over all ranks, then the update
//       }
//       session.report({{"loss", ...}});
//     }
//   }
//   SGD_REGISTER_FUNCTION("my_loop", train, "{}");
//
// A loop over epochs() and train_data() goes on where the run was after a failure, inside an epoch too, and changes no
// bit: each turn of the inner loop ends in a safe point. A function without them begins anew after a failure, and finds
// with load_checkpoint() what it saved last.
//
// What the function returns, JSON of at most 64 KiB, is the rank's entry in "results" of the run's summary.json.
//
// Every rank calls the same, in the same order: what only some ranks report or save ends the run, naming them.

#include <exception>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <torch/torch.h>
#include <nlohmann/json.hpp>

#include "sgd/model.hpp"
#include "sgd/setup.hpp"
#include "sgd/step.hpp"

namespace sgd {

/// Leaves the function when the run is asked to stop: let it pass.
class Stopped : public std::exception {
 public:
  [[nodiscard]] const char* what() const noexcept override { return "the run is asked to stop"; }
};

struct SavedCheckpoint {
  nlohmann::json values = nlohmann::json::object();
  NamedTensors tensors;
};

class Session {
 public:
  virtual ~Session() = default;

  [[nodiscard]] virtual int world_rank() const = 0;
  [[nodiscard]] virtual int local_rank() const = 0;
  [[nodiscard]] virtual int world_size() const = 0;
  [[nodiscard]] bool is_distributed() const { return world_size() > 1; }
  [[nodiscard]] virtual at::Device get_device() const = 0;
  /// `training.function` of the job, with the defaults of its registration.
  [[nodiscard]] virtual const nlohmann::json& config() const = 0;
  /// The job's `training` section.
  [[nodiscard]] virtual const nlohmann::json& training() const = 0;

  // Before the first epoch, report, checkpoint or update. Weights become rank 0's then.

  template <class Module>
  Module prepare_model(const std::string& name, Module module) {
    return setup().model(name, std::move(module));
  }
  /// What is returned replaces `made`: its step() is collective. See setup.hpp.
  std::shared_ptr<torch::optim::Optimizer> prepare_optimizer(const std::string& name,
                                                             const torch::optim::Optimizer& made) {
    return setup().optimizer(name, made);
  }
  /// For everything else: the job's model, loss and optimizer, schedulers.
  [[nodiscard]] virtual Setup& setup() = 0;

  /// Same numbers on every run: seeds LibTorch's generators for this rank. Batches of train_data() seed them anyway.
  virtual void enable_reproducibility(std::uint64_t seed) = 0;

  /// The epochs that are left of the job's, for a range-for. After each turn weights are compared, and the state is
  /// saved as the job says.
  class Epochs;
  [[nodiscard]] Epochs epochs();
  /// This rank's batches of the epoch in work, from where the run was, for a range-for; empty after they are done.
  class TrainData;
  [[nodiscard]] TrainData train_data();
  /// All of this rank's batches to validate on; nothing is averaged, and no position kept. `name`: of the job's
  /// "datasets", where it names several.
  class ValidationData;
  [[nodiscard]] ValidationData validation_data(const std::string& name = "validation");

  /// See step.hpp. Gradients are this rank's own until step() of an optimizer, which takes the mean over the ranks: the
  /// job's "gradient_clip" clips it there.
  [[nodiscard]] virtual Step& step() = 0;
  void backward(const at::Tensor& loss) { step().backward(loss); }
  /// A safe point: all updates of a batch are made. In a train_data() loop it is called at the turn's end; earlier,
  /// before what shall not count into it. A loop with data of its own calls it after each of its batches. Collective.
  /// Throws Stopped when the run is asked to stop.
  virtual void step_done() = 0;

  /// A line of metrics: numbers are averaged over the ranks, anything else is rank 0's. `epoch`, `step`, `phase`,
  /// `generation` and `world_size` are the line's own, and replace what is given under these names. Collective. Throws
  /// Stopped when the run is asked to stop.
  virtual void report(const nlohmann::json& metrics) = 0;
  /// Rank 0's is kept, on disk and in memory, with all that is prepared. `checkpoint.keep.best` judges it by the
  /// reports of its step, so report() comes first; where no optimizer has made an update, a step is what lies between
  /// two saves. Collective. Throws Stopped when the run is asked to stop.
  virtual void save_checkpoint(const nlohmann::json& values, const NamedTensors& tensors = {}) = 0;
  /// What was saved last in this run, or in the checkpoint that it was begun with.
  [[nodiscard]] virtual std::optional<SavedCheckpoint> load_checkpoint() = 0;

 protected:
  /// The epoch in work; 0: no more.
  virtual int begin_epochs() = 0;
  virtual int next_epoch() = 0;
  virtual std::optional<Batch> next_train_batch() = 0;
  virtual void begin_validation(const std::string& name) = 0;
  virtual std::optional<Batch> next_validation_batch() = 0;

  /// Iterator of a range whose elements come one by one.
  template <class Value, class Next>
  class Turns {
   public:
    Turns(std::optional<Value> first, Next next) : value_(std::move(first)), next_(std::move(next)) {}
    [[nodiscard]] bool operator!=(std::default_sentinel_t) const { return value_.has_value(); }
    Turns& operator++() {
      value_ = next_();
      return *this;
    }
    [[nodiscard]] const Value& operator*() const { return *value_; }

   private:
    std::optional<Value> value_;
    Next next_;
  };
};

class Session::Epochs {
 public:
  explicit Epochs(Session& session) : session_(session) {}
  [[nodiscard]] auto begin() {
    const auto next = [&session = session_] { return some(session.next_epoch()); };
    return Turns<int, decltype(next)>(some(session_.begin_epochs()), next);
  }
  [[nodiscard]] std::default_sentinel_t end() const { return {}; }

 private:
  static std::optional<int> some(int epoch) { return epoch == 0 ? std::nullopt : std::optional(epoch); }
  Session& session_;
};

class Session::TrainData {
 public:
  explicit TrainData(Session& session) : session_(session) {}
  [[nodiscard]] auto begin() {
    const auto next = [&session = session_] { return session.next_train_batch(); };
    return Turns<Batch, decltype(next)>(next(), next);
  }
  [[nodiscard]] std::default_sentinel_t end() const { return {}; }

 private:
  Session& session_;
};

class Session::ValidationData {
 public:
  ValidationData(Session& session, std::string name) : session_(session), name_(std::move(name)) {}
  [[nodiscard]] auto begin() {
    session_.begin_validation(name_);
    const auto next = [&session = session_] { return session.next_validation_batch(); };
    return Turns<Batch, decltype(next)>(next(), next);
  }
  [[nodiscard]] std::default_sentinel_t end() const { return {}; }

 private:
  Session& session_;
  std::string name_;
};

inline Session::Epochs Session::epochs() {
  return Epochs(*this);
}
inline Session::TrainData Session::train_data() {
  return TrainData(*this);
}
inline Session::ValidationData Session::validation_data(const std::string& name) {
  return ValidationData(*this, name);
}

}  // namespace sgd
