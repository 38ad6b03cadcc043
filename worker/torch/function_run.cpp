#include "worker/torch/function_run.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>

#include "common/job/named_datasets.hpp"
#include "common/json/words.hpp"
#include "worker/torch/errors.hpp"
#include "worker/torch/operator_save.hpp"

namespace sgd::worker {
namespace {

constexpr const char* kEnd = "the end of the function";

}  // namespace

FunctionRun::FunctionRun(const EngineSetup& setup, const TrainingFunction& function)
    : setup_(setup),
      function_(function),
      training_(setup.job.resolved->value("training", nlohmann::json::object())),
      engine_(setup, *this) {
  engine_.set_may_save(false);
}

Outcome FunctionRun::run() {
  try {
    nlohmann::json result = function_(*this);
    begin();
    agree_on(kEnd);
    engine_.send_result(std::move(result));
  } catch (const Stopped&) {
    engine_.finish(false);
    return Outcome::kStopped;
  }
  engine_.finish(true);
  return Outcome::kDone;
}

void FunctionRun::begin() {
  if (!engine_.has_begun()) engine_.begin(true);
}

Setup& FunctionRun::setup() {
  if (engine_.has_begun())
    throw std::logic_error(
        "models and optimizers must be prepared before the first epoch, report, checkpoint or update");
  return engine_.record();
}

void FunctionRun::enable_reproducibility(std::uint64_t seed) {
  at::manual_seed(step_seed(seed, 0, 0, world_rank()));
}

Step& FunctionRun::step() {
  begin();
  end_validating();
  return engine_;
}

/// Collective.
void FunctionRun::agree_on(const std::string& what) {
  const std::vector<std::string> all = engine_.collective().all_gather(what);
  if (std::all_of(all.begin(), all.end(), [&](const std::string& one) { return one == all.front(); })) return;
  std::string told;
  for (std::size_t rank = 0; rank < all.size(); ++rank)
    told += fmt::format("{}rank {} comes to {}", rank == 0 ? "" : ", ", rank, all[rank]);
  throw std::logic_error(fmt::format(
      "the ranks do not report and save alike: {}. Every rank must make the same calls in the same order", told));
}

void FunctionRun::stop_if(Engine::After after) const {
  if (after == Engine::After::kStop) throw Stopped();
}

int FunctionRun::begin_epochs() {
  begin();
  if (in_epochs_) throw std::logic_error("epochs() is called a second time: a run has one loop over its epochs");
  in_epochs_ = true;
  begin_epoch();
  const int epoch = engine_.position().epoch;
  return epoch > setup_.job.training->epochs ? 0 : epoch;
}

int FunctionRun::next_epoch() {
  end_train_data();
  if (engine_.position().phase == "train") engine_.end_training();  // Without any batch of ours.
  engine_.end_validation();
  begin_epoch();
  stop_if(engine_.end_epoch());
  const int epoch = engine_.position().epoch;
  return epoch > setup_.job.training->epochs ? 0 : epoch;
}

void FunctionRun::begin_epoch() {
  engine_.set_may_save(true);
  has_asked_ = false;
  place_ = 0;
}

std::optional<Batch> FunctionRun::next_train_batch() {
  if (!in_epochs_) throw std::logic_error("train_data() is for the body of a loop over epochs()");
  has_asked_ = true;
  end_validating();
  if (engine_.position().phase != "train") return std::nullopt;
  if (batches_ == nullptr) batches_ = &engine_.begin_training();
  if (has_batch_) step_done();
  std::optional<Batch> batch = batches_->next();
  has_batch_ = batch.has_value();
  if (!batch) {
    end_train_data();
    return std::nullopt;
  }
  num_samples_ = batch->features.dim() > 0 ? batch->features.size(0) : 1;
  const bool has_passes = setup_.job.training->steps_per_epoch > 0;  // Then `consumed` may begin anew in an epoch.
  place_ = 1 + (has_passes ? engine_.position().batches : engine_.position().consumed);
  return batch;
}

void FunctionRun::end_train_data() {
  if (batches_ == nullptr) return;
  if (has_batch_) step_done();
  batches_ = nullptr;
  engine_.end_training();
}

void FunctionRun::step_done() {
  end_validating();
  if (!has_batch_) {
    if (batches_ != nullptr) throw std::logic_error("step_done() is called twice for a batch of train_data()");
    begin();
    engine_.set_may_save(
        false);  // Until the epoch ends: where in it the function's own data is, only the function knows.
    return stop_if(engine_.end_batch(0));
  }
  has_batch_ = false;
  batches_->add({num_samples_, {}});
  if (batches_->interrupted()) throw Stopped();
}

/// A loop over batches to validate on may be left before its end: it is over where something trains again.
void FunctionRun::end_validating() {
  if (std::exchange(is_validating_, false)) engine_.set_validating(false);
}

void FunctionRun::begin_validation(const std::string& name) {
  begin();
  if (setup_.dataset == nullptr)
    throw ConfigurationError("the job names no \"training.dataset\", and its function asks for it");
  validated_on_ = &setup_.dataset->named(name);
  if (name == job::kValidationSet && !setup_.dataset->has_validation())
    throw ConfigurationError(
        "the job's function asks for samples to validate on, and its data has none: give it some, or leave "
        "validation_data() out");
  is_validating_ = true;
  engine_.set_validating(true);
  validation_stream_.reset();
  if (validated_on_->is_stream(Split::kValidation)) {
    StreamPlace place = engine_.stream_place(Split::kValidation);
    place.loader = job::Loader{0, 1};
    validation_stream_ = std::make_unique<StreamReader>(validated_on_->open_stream(Split::kValidation), place);
    validation_stream_->begin(engine_.position().epoch);
    return;
  }
  validation_.emplace(0, 1, validated_on_->count(Split::kValidation), world_size(), false);
  validated_ = 0;
}

/// Nothing is done together here, so each rank reads its part of a stream to the end.
std::optional<Batch> FunctionRun::next_streamed_validation_batch() {
  if (!validation_stream_->read()) {
    end_validating();
    return std::nullopt;
  }
  Batch batch = validation_stream_->take();
  validation_stream_->done();
  setup_.link.progress().samples.fetch_add(batch.features.size(0), std::memory_order_relaxed);
  return setup_.device.moved(std::move(batch));
}

std::optional<Batch> FunctionRun::next_validation_batch() {
  if (validation_stream_) return next_streamed_validation_batch();
  const std::int64_t size = job::batch_size_per_rank(*setup_.job.training, world_size());
  if (validation_->batch_length(validated_, size) == 0) {
    end_validating();
    return std::nullopt;
  }
  std::vector<std::int64_t> indices;
  validation_->batch(validated_, world_rank(), size, indices);
  validated_ = validation_->advance(validated_, size);
  setup_.link.progress().samples.fetch_add(static_cast<std::int64_t>(indices.size()), std::memory_order_relaxed);
  return setup_.device.moved(validated_on_->gather(Split::kValidation, engine_.position().epoch, indices));
}

/// In a loop over epochs a report has its place in it; else it is the run's next one. A process that goes on inside an
/// epoch makes some reports again: with the keys that they had, by which they are known, and none that a run without
/// failures has not. So what comes before this process's first batch has the place of the epoch's beginning, and what
/// comes after step_done() that of its batch.
link::ReportKey FunctionRun::next_key() {
  if (!in_epochs_) return {static_cast<int>(reports_), "validate", 0, 0};
  const Position& position = engine_.position();
  const bool is_training = position.phase == "train" || !has_asked_;
  link::ReportKey key{position.epoch, is_training ? "train" : position.phase, is_training ? place_ : 0, 0};
  if (key.epoch == reported_.epoch && key.phase == reported_.phase && key.batch == reported_.batch)
    key.sequence = reported_.sequence + 1;
  reported_ = key;
  return key;
}

void FunctionRun::report(const nlohmann::json& metrics) {
  begin();
  if (!metrics.is_object()) throw std::logic_error("report() takes a JSON object, got " + json::shown(metrics));
  agree_on(fmt::format("report {}", reports_ + 1));
  ++reports_;
  const link::ReportKey key = next_key();
  nlohmann::json line = metrics;
  line["epoch"] = key.epoch;
  engine_.report(key, std::move(line));
  // In train_data() batches are the places to stop at.
  if (!has_batch_) stop_if(engine_.safe_point());
}

void FunctionRun::save_checkpoint(const nlohmann::json& values, const NamedTensors& tensors) {
  begin();
  if (has_batch_)
    throw std::logic_error("save_checkpoint() is called inside a batch of train_data(): call step_done() before");
  agree_on("save_checkpoint");
  SavedCheckpoint saved{values, {}};
  for (const auto& [name, tensor] : tensors)
    if (tensor.defined()) saved.tensors[name] = tensor.data().cpu().clone();
  saved_ = std::move(saved);
  stop_if(engine_.save_now());
}

std::optional<SavedCheckpoint> FunctionRun::load_checkpoint() {
  begin();
  return saved_;
}

OperatorState FunctionRun::own(int rank) const {
  OperatorState state;
  if (rank == 0 && saved_) add_tensors(saved_->tensors, rank, state, kFunctionTensors);
  return state;
}

OperatorState FunctionRun::shared() const {
  nlohmann::json json = {{"reports", reports_}};
  if (saved_) json["saved"] = saved_->values;
  return json_state_of("save_checkpoint()", 0, json, kFunctionTensors);
}

void FunctionRun::load(const TrainingState& state, int rank, int world_size) {
  (void)rank;
  (void)world_size;
  const nlohmann::json shared = nlohmann::json::parse(state.shared.json);
  reports_ = shared.value("reports", std::int64_t{0});
  if (!shared.contains("saved")) return;
  saved_ = SavedCheckpoint{shared["saved"], {}};
  if (!state.records.empty()) saved_->tensors = tensors_of(state.records.front().own);
}

}  // namespace sgd::worker
