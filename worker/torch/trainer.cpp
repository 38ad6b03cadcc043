#include "worker/torch/trainer.hpp"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/checkpoint/made_by.hpp"
#include "worker/torch/errors.hpp"
#include "worker/torch/models.hpp"
#include "worker/torch/module_buffers.hpp"
#include "worker/torch/operator_save.hpp"
#include "worker/torch/restorer.hpp"
#include "worker/torch/same_model.hpp"

namespace sgd::worker {
namespace {

TimePoint now() {
  return std::chrono::steady_clock::now();
}

}  // namespace

Trainer::Trainer(const TrainerSetup& setup)
    : setup_(setup),
      training_(*setup.job.training),
      training_config_(setup.job.resolved.value("training", nlohmann::json::object())),
      initialized_model_(setup.initialized_model),
      link_forgets_{setup.link},
      last_save_(now()) {
  at::manual_seed(training_.seed);
  setup_.training_operator.attach(*this);
  setup_.training_operator.setup();
  if (!setup_.training_operator.model()) throw std::logic_error("the operator's setup() registered no model");
  parameters_ = std::make_unique<FlatParameters>(*setup_.training_operator.model());
  collective_ = setup_.form_group(parameters_->size());
  check_same_model(*collective_, parameters_->places(),
                   module_buffers(*setup_.training_operator.model(), parameters_->places()));
  buffers_ = std::make_unique<SharedBuffers>(*setup_.training_operator.model(), *collective_);
  stepper_ = std::make_unique<Stepper>(*parameters_, *collective_, training_);
  if (world_rank() == 0) {
    CheckpointTarget target;
    target.run_dir = setup_.assignment.run_dir;
    target.generation = setup_.assignment.generation;
    target.places = parameters_->places();
    target.floats = parameters_->size();
    writer_ = std::make_unique<CheckpointWriter>(
        std::move(target), [this](const link::FromWorker& told) { (void)setup_.link.send(told); });
  }
}

int Trainer::memory_fd() const {
  return setup_.job.checkpoint.memory ? setup_.memory_fd : -1;
}

std::shared_ptr<Model> Trainer::make_model() const {
  if (training_.model.is_null())
    throw ConfigurationError("the job names no \"training.model\", and its operator asks for it");
  if (initialized_model_) return std::exchange(initialized_model_, nullptr);
  return worker::make_model(training_.model, setup_.dataset.shape());
}

Loss Trainer::make_loss() const {
  return worker::make_loss(training_.loss);
}

Outcome Trainer::run() {
  restore();
  After after = After::kGoOn;
  while (after == After::kGoOn && position_.epoch <= training_.epochs) {
    if (position_.phase == "train") after = train_phase();
    if (after == After::kGoOn) after = validate_phase();
    if (after == After::kGoOn) after = end_epoch();
  }
  const bool done = after == After::kGoOn;
  if (done && saves_by_itself()) save(kDisk);
  if (writer_) {
    setup_.link.progress().phase = Progress::Phase::kSaving;
    if (Status written = writer_->wait(setup_.job.heartbeat.stall_timeout); !written)
      throw EnvironmentError(written.error().message);
  }
  // Nobody leaves while another rank may still need it; after this no collective is used.
  collective_->barrier();
  setup_.link.progress().phase = Progress::Phase::kDone;
  return done ? Outcome::kDone : Outcome::kStopped;
}

void Trainer::restore() {
  torch::nn::Module& model = *setup_.training_operator.model();
  Restored restored = Restorer({setup_.assignment, setup_.link, *collective_, *parameters_, model,
                                stepper_->optimizer(), training_.optimizer.type, memory_fd()})
                          .run();
  if (restored.state) {
    const TrainingState& state = *restored.state;
    const std::string conflict = checkpoint::order_conflict(
        {state.position.epoch, state.position.phase, state.position.consumed}, state.made_by, made_by());
    if (!conflict.empty()) throw ConfigurationError(conflict);
    stepper_->load_scheduler_state(state.scheduler);
    stepper_->set_steps(state.step);
    stepper_->set_parameter_steps(state.parameter_steps.empty()
                                      ? std::vector(parameters_->places().size(), state.optimizer_steps)
                                      : state.parameter_steps);
    position_ = state.position;
    Result<MetricsAccumulator> sums = record_of(state, world_rank(), world_size());
    if (!sums) throw std::runtime_error(sums.error().message);
    metrics_ = std::move(sums).value();
    give_back(state, world_rank(), world_size(), setup_.training_operator);
  }
  if (memory_fd() >= 0 && setup_.assignment.local_rank == 0) {
    memory_ = MemorySaver::make(memory_fd(), setup_.assignment.generation, parts().layout, std::move(restored.region));
    if (memory_ && restored.slot) memory_->adopt(*restored.slot);
    if (memory_) memory_->set_live_step(stepper_->steps());
  }
  // The state before the first epoch, or the one just read from disk, counts as saved; one from memory does not.
  if (restored.source != RestoreSource::kMemory) {
    saved_step_ = stepper_->steps();
    saved_position_ = position_;
  }
  announce_ready(restored);
}

void Trainer::announce_ready(const Restored& restored) {
  setup_.link.progress().step = stepper_->steps();
  setup_.link.progress().epoch = position_.epoch;
  link::Ready ready;
  ready.step = stepper_->steps();
  ready.epoch = position_.epoch;
  ready.source = name_of(restored.source);
  ready.path = restored.path;
  ready.restore_s = to_seconds(now() - setup_.assigned);
  ready.redone = restored.redone;
  send(ready);
}

std::int64_t Trainer::batch_size() const {
  return job::batch_size_per_rank(training_, world_size());
}

Trainer::After Trainer::train_phase() {
  setup_.link.progress().epoch = position_.epoch;
  setup_.link.progress().phase = Progress::Phase::kTrain;
  stepper_->set_epochs_completed(position_.epoch - 1);
  const Sampler sampler(training_.seed, position_.epoch, setup_.dataset.count(Split::kTrain), world_size(),
                        training_.shuffle);
  const PhaseSettings settings{Split::kTrain, position_.epoch,    world_rank(),
                               batch_size(),  position_.consumed, &setup_.link.progress().waited_ns};
  PhaseStream* self = nullptr;
  PhaseStream stream(
      settings, sampler, setup_.dataset, metrics_,
      [this] {
        at::manual_seed(step_seed(training_.seed, position_.epoch, stepper_->steps(), world_rank()));
        return stepper_->steps();
      },
      [this, &self](const BatchMetrics& metrics) { return after_training_batch(metrics, *self); });
  self = &stream;
  const nlohmann::json further = setup_.training_operator.train_epoch(stream);
  if (stream.interrupted()) return After::kStop;
  report(stream, further);
  metrics_.clear();
  position_.phase = "validate";
  position_.consumed = 0;
  return After::kGoOn;
}

Trainer::After Trainer::validate_phase() {
  setup_.link.progress().phase = Progress::Phase::kValidate;
  const Sampler sampler(training_.seed, position_.epoch, setup_.dataset.count(Split::kValidation), world_size(), false);
  const PhaseSettings settings{Split::kValidation, position_.epoch, world_rank(), batch_size(), position_.consumed};
  PhaseStream* self = nullptr;
  PhaseStream stream(
      settings, sampler, setup_.dataset, metrics_, [this] { return stepper_->steps(); },
      [this, &self](const BatchMetrics& metrics) { return after_validation_batch(metrics, *self); });
  self = &stream;
  const nlohmann::json further = setup_.training_operator.validate(stream);
  if (stream.interrupted()) return After::kStop;
  report(stream, further);
  show_metric_to_scheduler();
  metrics_.clear();
  position_.epoch += 1;
  position_.phase = "train";
  position_.consumed = 0;
  return After::kGoOn;
}

/// Collective: the mean over ranks, in their order, so that all lower the rate after the same epoch. It is the one of
/// the report, and is no part of a checkpoint before the epoch's end.
void Trainer::show_metric_to_scheduler() {
  const std::string name = stepper_->metric();
  if (name.empty()) return;
  nlohmann::json own;
  const std::optional<double> mean = metrics_.mean(name);
  if (mean) own["bits"] = std::bit_cast<std::uint64_t>(*mean);
  double sum = 0;
  int counted = 0;
  bool is_measured = false;
  for (const std::string& told : collective_->all_gather(own.dump())) {
    const nlohmann::json json = nlohmann::json::parse(told);
    // A rank that came for the last batches of a pass may have had none.
    if (!json.contains("bits")) continue;
    is_measured = true;
    const auto value = std::bit_cast<double>(json["bits"].get<std::uint64_t>());
    if (std::isnan(value)) continue;
    sum += value;
    ++counted;
  }
  if (!is_measured)
    throw std::logic_error(
        fmt::format("the scheduler looks at \"{}\", which validation does not measure: set "
                    "training.scheduler.metric to one of {}",
                    name, fmt::join(metrics_.names(), ", ")));
  stepper_->observe(counted == 0 ? std::numeric_limits<double>::quiet_NaN() : sum / counted);
}

Trainer::After Trainer::end_epoch() {
  stepper_->set_epochs_completed(position_.epoch - 1);
  compare_weights();
  std::uint32_t agreed = collective_->agree(control_word());
  if (position_.epoch > training_.epochs) return After::kGoOn;
  if (setup_.job.checkpoint.every == job::CheckpointPolicy::Every::kEpoch) agreed |= control::kCheckpoint;
  // Without checkpoints of its own a run has no other place to leave at.
  const bool leave = leave_at_epoch_ || (leave_at_checkpoint_ && !saves_by_itself());
  return act_on(agreed, leave) ? After::kGoOn : After::kStop;
}

void Trainer::step(const at::Tensor& loss) {
  agreed_ |= stepper_->step(loss, control_word());
  agreed_this_batch_ = true;
  if (memory_) memory_->set_live_step(stepper_->steps());
  begin_work();
}

void Trainer::step_scheduler() {
  stepper_->step_scheduler();
}

/// Told at once: the first batch of this generation is done, of training or of the validation that it goes on with.
void Trainer::begin_work() {
  if (std::exchange(first_step_sent_, true)) return;
  link::FirstStep first;
  first.step = stepper_->steps();
  send(first);
  // Both take their memory behind training; before the first step they would only delay it.
  if (writer_ && saves_by_itself()) writer_->prepare(stepper_->optimizer().buffers().size());
  if (memory_) memory_->start();
}

bool Trainer::saves_by_itself() const {
  return setup_.job.checkpoint.every != job::CheckpointPolicy::Every::kNever;
}

std::uint32_t Trainer::control_word() const {
  std::uint32_t word = 0;
  if (setup_.link.stop_requested())
    word |= control::kStop | (setup_.link.stop_wants_checkpoint() ? control::kCheckpoint : 0);
  if (setup_.link.stop_at_epoch_requested()) word |= control::kStopAtEpoch;
  if (setup_.link.stop_at_checkpoint_requested()) word |= control::kStopAtCheckpoint;
  if (world_rank() != 0) return word;
  const TimePoint time = now();
  const job::CheckpointPolicy& policy = setup_.job.checkpoint;
  if (policy.every == job::CheckpointPolicy::Every::kSeconds && time - last_save_ >= from_seconds(policy.seconds) &&
      !writer_->busy())
    word |= control::kCheckpoint;
  if (memory_ && memory_->due(time)) word |= control::kMemory;
  return word;
}

bool Trainer::steps_due() const {
  const job::CheckpointPolicy& policy = setup_.job.checkpoint;
  return policy.every == job::CheckpointPolicy::Every::kSteps && stepper_->steps() % policy.steps == 0;
}

bool Trainer::after_training_batch(const BatchMetrics& metrics, const PhaseStream& stream) {
  if (!std::exchange(agreed_this_batch_, false)) agreed_ |= collective_->agree(control_word());
  std::uint32_t agreed = std::exchange(agreed_, 0);
  buffers_->take_rank_0s();
  position_.consumed = stream.consumed();
  publish(metrics);
  return act_on(agreed, false, steps_due());
}

bool Trainer::after_validation_batch(const BatchMetrics& metrics, const PhaseStream& stream) {
  const std::uint32_t agreed = collective_->agree(control_word());
  begin_work();
  position_.consumed = stream.consumed();
  publish(metrics);
  return act_on(agreed, false);
}

bool Trainer::act_on(std::uint32_t agreed, bool leave, bool is_due) {
  if ((agreed & control::kStopAtEpoch) != 0) leave_at_epoch_ = true;
  if ((agreed & control::kStopAtCheckpoint) != 0) leave_at_checkpoint_ = true;
  const bool stop = (agreed & control::kStop) != 0;
  const bool is_asked = leave || (agreed & control::kCheckpoint) != 0;
  const bool checkpoint = is_asked || is_due;
  leave = leave || (leave_at_checkpoint_ && checkpoint);
  unsigned targets = checkpoint ? kDisk : 0u;
  if (!is_asked && !leave) targets |= kIfFree;
  // The next generation finds what was left behind in memory, without reading the disk.
  if ((agreed & control::kMemory) != 0 || (checkpoint && (leave || stop))) targets |= kMemory;
  if ((targets & (kDisk | kMemory)) != 0) save(targets);
  if (stop) return false;
  return !(leave && on_disk());
}

void Trainer::publish(const BatchMetrics& metrics) {
  Progress& progress = setup_.link.progress();
  progress.step.store(stepper_->steps(), std::memory_order_relaxed);
  if (position_.phase == "train") progress.loss.store(stepper_->last_loss(), std::memory_order_relaxed);
  progress.samples.fetch_add(metrics.num_samples, std::memory_order_relaxed);
}

void Trainer::report(const PhaseStream& stream, const nlohmann::json& further) {
  const bool training = position_.phase == "train";
  link::Report message;
  message.key.epoch = position_.epoch;
  message.key.phase = position_.phase;
  message.step = stepper_->steps();
  message.metrics = nlohmann::json(metrics_.to_json(training ? std::optional<int>(position_.epoch) : std::nullopt));
  if (training) {
    message.metrics["samples_per_s"] = stream.samples_per_s();
    message.metrics["step_ms"]["median"] = stream.timer().median_ms();
    message.metrics["step_ms"]["p95"] = stream.timer().p95_ms();
    message.metrics["step_ms"]["own"] = stream.own_timer().mean_ms();
  }
  if (further.is_object()) message.metrics.update(further);
  send(message);
}

void Trainer::compare_weights() {
  const std::vector<std::string> hashes =
      collective_->all_gather(fmt::format("{:016x} {:016x}", parameters_->hash(), buffers_->hash()));
  std::string different;
  for (std::size_t rank = 1; rank < hashes.size(); ++rank) {
    if (hashes[rank] != hashes[0]) different += fmt::format("{}{}", different.empty() ? "" : ", ", rank);
  }
  if (!different.empty())
    throw std::runtime_error(fmt::format("after epoch {} the weights of rank {} differ from those of rank 0",
                                         position_.epoch - 1, different));
}

void Trainer::save(unsigned targets) {
  const bool already = saved_step_ == stepper_->steps() && saved_position_ == position_;
  if (already) targets &= ~kDisk;
  if ((targets & (kDisk | kMemory)) == 0) return;
  const TimePoint began = now();
  const Progress::Phase phase = setup_.link.progress().phase.exchange(Progress::Phase::kSaving);
  std::vector<RankMessage> told = tell_all(targets);
  targets = possible(targets, told);
  const bool writes = writer_ && (targets & kDisk) != 0;
  const bool copies = memory_ && (targets & kMemory) != 0;
  if (writes || copies) {
    TrainingState current = state(std::move(told));
    if (copies) {
      const std::string head = packed_head(current);
      memory_->commit(point(), packed_pieces(head, current), parts(), began);
    }
    if (writes) {
      if (Status free = writer_->wait(setup_.job.heartbeat.stall_timeout); !free)
        throw EnvironmentError(free.error().message);
      writer_->save(std::move(current), parameters_->values(), stepper_->optimizer().buffers(),
                    module_buffers(*setup_.training_operator.model(), parameters_->places()), began);
    }
  }
  if ((targets & kDisk) != 0) {
    saved_step_ = stepper_->steps();
    saved_position_ = position_;
    last_save_ = now();
  }
  setup_.link.progress().phase = phase;
}

/// What every rank has told, by rank.
std::vector<RankMessage> Trainer::tell_all(unsigned targets) {
  RankMessage own;
  own.record.sums = metrics_.export_state();
  own.record.own = own_state_of(setup_.training_operator, world_rank());
  if (world_rank() == 0) own.shared = shared_state_of(setup_.training_operator);
  own.has_unsent = setup_.link.has_unsent();
  own.is_busy = writer_ && (targets & kIfFree) != 0 && writer_->busy();
  const std::string text = encode(own);
  check_rank_bytes(world_rank(), text.size());
  std::vector<RankMessage> told;
  for (std::string& one : collective_->all_gather(text)) {
    Result<RankMessage> decoded = decode_rank_message(std::move(one));
    if (!decoded) throw std::runtime_error("a rank's state for a checkpoint: " + decoded.error().message);
    told.push_back(std::move(decoded).value());
  }
  return told;
}

/// What of `targets` is done: all ranks decide alike from what all have told. A copy may only be ahead of reports that
/// have reached the agent, since a report that dies with its rank would be missed for ever.
unsigned Trainer::possible(unsigned targets, const std::vector<RankMessage>& told) {
  const bool is_busy = std::any_of(told.begin(), told.end(), [](const RankMessage& one) { return one.is_busy; });
  const bool has_unsent = std::any_of(told.begin(), told.end(), [](const RankMessage& one) { return one.has_unsent; });
  if (has_unsent) targets &= ~kMemory;
  const bool is_skipped = (targets & kDisk) != 0 && (targets & kIfFree) != 0 && (is_busy || has_unsent);
  if (is_skipped) targets &= ~kDisk;
  if (is_skipped && writer_) writer_->note_skipped();
  return targets;
}

bool Trainer::on_disk() {
  std::uint32_t failed = 0;
  if (writer_) {
    if (Status written = writer_->wait(setup_.job.heartbeat.stall_timeout); !written)
      throw EnvironmentError(written.error().message);
    if (!writer_->last_is_on_disk()) failed = control::kCheckpoint;
  }
  return collective_->agree(failed) == 0;
}

nlohmann::json Trainer::made_by() const {
  return {{"training", training_config_},
          {"cpus", setup_.assignment.cpus},
          {"samples",
           {{"train", setup_.dataset.count(Split::kTrain)}, {"validation", setup_.dataset.count(Split::kValidation)}}}};
}

MemoryPoint Trainer::point() const {
  return {stepper_->steps(), position_.epoch, position_.phase == "validate", position_.consumed};
}

StateParts Trainer::parts() {
  return state_parts(parameters_->values(), parameters_->places(), training_.optimizer.type,
                     stepper_->optimizer().buffers(),
                     module_buffers(*setup_.training_operator.model(), parameters_->places()));
}

TrainingState Trainer::state(std::vector<RankMessage> told) const {
  TrainingState state;
  state.position = position_;
  state.step = stepper_->steps();
  state.world_size = world_size();
  state.seed = training_.seed;
  state.scheduler = stepper_->scheduler_state();
  state.optimizer = training_.optimizer.type;
  const std::vector<std::int64_t>& updates = stepper_->parameter_steps();
  state.optimizer_steps = *std::max_element(updates.begin(), updates.end());
  if (*std::min_element(updates.begin(), updates.end()) != state.optimizer_steps) state.parameter_steps = updates;
  state.made_by = made_by();
  for (RankMessage& one : told) state.records.push_back(std::move(one.record));
  state.shared = std::move(told.front().shared);
  return state;
}

void Trainer::send(const link::FromWorker& message) {
  if (Status sent = setup_.link.send(message); !sent) throw EnvironmentError(sent.error().message);
}

}  // namespace sgd::worker
