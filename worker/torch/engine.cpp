#include "worker/torch/engine.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <limits>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/job/named_datasets.hpp"
#include "worker/torch/clock.hpp"
#include "worker/torch/errors.hpp"
#include "worker/torch/indexed_batches.hpp"
#include "worker/torch/models.hpp"
#include "worker/torch/same_model.hpp"

namespace sgd::worker {
namespace {

/// In a row: no training that is meant accumulates over more.
constexpr int kPendingBatchesMax = 1000;
/// A group has a gradient buffer, also where nothing is trained.
constexpr std::size_t kFloatsMin = 16;

}  // namespace

Engine::Engine(const EngineSetup& setup, UserState& user)
    : setup_(setup),
      user_(user),
      training_(*setup.job.training),
      initialized_model_(setup.initialized_model),
      autocast_(training_.precision, setup.device.place().type()),
      record_(setup.job, {[this] { return job_model(); }, [this] { return worker::make_loss(training_.loss); }}),
      link_forgets_{setup.link},
      measures_(training_.metrics),
      profile_(training_.profile) {
  if (training_.early_stop) early_stop_.emplace(*training_.early_stop);
  at::globalContext().setDeterministicAlgorithms(training_.deterministic, false);
  at::manual_seed(training_.seed);
}

/// What the user's code keeps of them outlives the group.
Engine::~Engine() {
  for (const RegisteredOptimizer& one : record_.optimizers()) one.optimizer->on_step(nullptr);
}

void Engine::begin(bool may_be_empty) {
  record_.finish(may_be_empty);
  models_ = named(record_.models());
  move_to_device();
  parameters_ = std::make_unique<FlatParameters>(record_.trained(), setup_.device);
  const std::size_t floats = std::max(parameters_->size(), kFloatsMin);
  if (setup_.device.is_separate()) {
    gradients_ = std::make_unique<FlatGradients>(setup_.device, floats);
    mirror_ = std::make_unique<StateMirror>(setup_.device);
    monitor_ = DeviceMonitor::open(setup_.device.uuid());
  }
  collective_ = setup_.form_group(floats, gradients_.get());
  buffers_ = std::make_unique<SharedBuffers>(
      models_, *collective_,
      SharedBuffers::Rules{training_.broadcast_buffers, training_.on_nan != "stop" || training_.precision == "fp16",
                           setup_.device.is_separate()});
  if (training_.sync_batchnorm) sync_batch_norm_ = std::make_unique<SyncBatchNorm>(*collective_);
  stepper_ = std::make_unique<Stepper>(*parameters_, *collective_, record_.optimizers(),
                                       GradientClip{training_.clip_norm, training_.clip_value},
                                       StepRules{training_.on_nan, training_.precision == "fp16"}, setup_.device);
  for (const RegisteredOptimizer& one : record_.optimizers())
    one.optimizer->on_step([this](PreparedOptimizer& optimizer) { update(optimizer); });
  check_same_model(*collective_, tensors(), setup_.dataset);
  saver_ = std::make_unique<Saver>(
      SaverSetup{setup_.job, setup_.assignment, setup_.link, *collective_, static_cast<StateSource&>(*this)});
  if (setup_.dataset != nullptr)
    streams_ = std::make_unique<DataStreams>(*setup_.dataset, stream_place(Split::kTrain), *collective_);
  restore();
}

/// What setup() has made on the host. Its tensors stay the same objects, so optimizers find them.
void Engine::move_to_device() {
  if (!setup_.device.is_separate() || setup_.device.place().is_cpu()) return;
  for (const RegisteredModel& model : record_.models()) model.module->to(setup_.device.place());
}

std::shared_ptr<Model> Engine::job_model() {
  if (training_.model.is_null())
    throw ConfigurationError("the job names no \"training.model\", and its operator asks for it");
  if (initialized_model_) return std::exchange(initialized_model_, nullptr);
  return worker::make_model(training_.model, dataset().shape());
}

void Engine::finish(bool done) {
  if (done && saver_->saves_by_itself()) save(Saver::kDisk);
  saver_->finish();
  // Nobody leaves while another rank may still need it; after this no collective is used.
  collective_->barrier();
  setup_.link.progress().phase = Progress::Phase::kDone;
}

Engine::After Engine::save_now() {
  const std::uint32_t agreed = collective_->agree(control_word() | (is_pending() ? control::kPending : 0));
  note_leaving(agreed);
  if ((agreed & control::kPending) != 0)
    throw std::logic_error(
        "save_checkpoint() is called while gradients wait for an update, and no checkpoint holds them: update before "
        "save_checkpoint(), or save where no batches are accumulated");
  save(Saver::kDisk | Saver::kMemory | Saver::kAlways);
  const bool is_on_disk = saver_->on_disk();
  begin_work();  // A function that only saves comes to no other place.
  if ((agreed & control::kStop) != 0) return After::kStop;
  return is_on_disk && (leave_at_epoch_ || leave_at_checkpoint_) ? After::kStop : After::kGoOn;
}

Engine::After Engine::safe_point() {
  // An update that no batch's end has counted yet is half a step, too.
  const bool is_inside_step = is_pending() || stepper_->is_updated();
  const std::uint32_t agreed = collective_->agree(control_word() | (is_inside_step ? control::kPending : 0));
  postponed_ |= std::exchange(agreed_, 0) | (agreed & ~control::kPending);
  begin_work();
  if ((agreed & control::kPending) == 0)
    return act_on(std::exchange(postponed_, 0), false) ? After::kGoOn : After::kStop;
  // A batch of a stream ends soon. A loop with data of its own may never end one, so it stops here, without a save.
  const bool waits = stream_ != nullptr || (postponed_ & control::kStop) == 0;
  return waits ? After::kGoOn : After::kStop;
}

std::int64_t Engine::batch_size() const {
  return job::batch_size_per_rank(training_, world_size());
}

const Dataset& Engine::dataset() const {
  if (setup_.dataset == nullptr)
    throw ConfigurationError("the job names no \"training.dataset\", and its code asks for it");
  return *setup_.dataset;
}

bool Engine::has_validation() const {
  return setup_.dataset != nullptr && setup_.dataset->has_validation();
}

void Engine::check_validation() const {
  if (has_validation()) return;
  const auto& parts = stepper_->parts();
  const bool follows =
      std::any_of(parts.begin(), parts.end(), [](const auto& part) { return !part->metric().empty(); });
  const char* what = training_.validate_only ? "\"training.validate_only\""
                     : early_stop_           ? "\"training.early_stop\""
                     : follows               ? "the scheduler \"reduce_on_plateau\""
                                             : nullptr;
  if (what != nullptr)
    throw ConfigurationError(
        fmt::format("{} needs validation, and the job's data has no samples to validate on: give it some, or leave "
                    "that out",
                    what));
}

StreamPlace Engine::stream_place(Split split) const {
  return {split, world_rank(), world_size(), batch_size(), training_.seed, training_.loader};
}

/// From the position on, in the phase that begins.
std::shared_ptr<PassBatches> Engine::batches_of(Split split) {
  const bool is_training = split == Split::kTrain;
  if (dataset().is_stream(split)) return streams_->at(split, position_);
  const std::int64_t count = dataset().count(split);
  if (count == 0) (void)dataset().named(is_training ? job::kTrainSet : job::kValidationSet);  // Throws.
  return std::make_shared<IndexedBatches>(
      LoaderPhase{split, is_training ? position_.pass : position_.epoch, world_rank(), batch_size(),
                  position_.consumed},
      [this, count, shuffle = is_training && training_.shuffle](int pass) {
        return Sampler(training_.seed, pass, count, world_size(), shuffle);
      },
      dataset());
}

void Engine::set_validating(bool is_validating) {
  if (sync_batch_norm_) sync_batch_norm_->set_on(!is_validating);
  autocast_.forget_copies();
}

PhaseStream& Engine::begin_training() {
  set_validating(false);
  profile_.clear();
  phase_began_ = time_now();
  setup_.link.progress().epoch = position_.epoch;
  setup_.link.progress().phase = Progress::Phase::kTrain;
  stepper_->set_epochs_completed(position_.epoch - 1);
  PhaseSettings settings;
  settings.epoch = position_.epoch;
  settings.batches = position_.batches;
  settings.batches_max = training_.steps_per_epoch;
  settings.waited_ns = &setup_.link.progress().waited_ns;
  settings.step = this;
  settings.skips_not_finite = training_.on_nan != "stop";
  settings.device = setup_.device;
  stream_ = std::make_unique<PhaseStream>(
      settings, batches_of(Split::kTrain), metrics_,
      [this] {
        at::manual_seed(step_seed(training_.seed, stream_->pass(), stream_->consumed(), world_rank()));
        return stepper_->steps();
      },
      [this](const BatchMetrics& metrics) { return after_training_batch(metrics); });
  return *stream_;
}

void Engine::end_training() {
  drop_pending();
  metrics_.clear();
  measures_.clear();
  const bool is_pass_done = !stream_ || training_.steps_per_epoch == 0 || stream_->is_pass_done();
  if (is_pass_done) position_.pass += 1;
  position_.pass_consumed = is_pass_done ? 0 : position_.consumed;
  position_.phase = "validate";
  position_.consumed = 0;
  position_.batches = 0;
  stream_.reset();
}

PhaseStream& Engine::begin_validation() {
  profile_.clear();
  phase_began_ = time_now();
  setup_.link.progress().phase = Progress::Phase::kValidate;
  set_validating(true);
  PhaseSettings settings;
  settings.device = setup_.device;
  settings.epoch = position_.epoch;
  stream_ = std::make_unique<PhaseStream>(
      settings, batches_of(Split::kValidation), metrics_,
      [this] {
        at::manual_seed(step_seed(~training_.seed, position_.epoch, position_.consumed, world_rank()));
        return stepper_->steps();
      },
      [this](const BatchMetrics& metrics) { return after_validation_batch(metrics); });
  return *stream_;
}

void Engine::go_to_validation() {
  const bool is_at_begin = position_.phase == "train" && position_.batches == 0 && stepper_->steps() > 0;
  if (is_at_begin && position_.epoch > 1) position_.epoch -= 1;
  position_.phase = "validate";
  position_.consumed = 0;
  metrics_.clear();
  measures_.clear();
}

void Engine::end_validation() {
  for (const auto& part : stepper_->parts())
    if (const std::string metric = part->metric(); !metric.empty())
      part->observe(agreed_metric(metric, "training.scheduler.metric"));
  skip_validation();
}

void Engine::skip_validation() {
  metrics_.clear();
  stream_.reset();
  set_validating(false);
}

bool Engine::is_over() const {
  return position_.epoch > training_.epochs || (early_stop_ && early_stop_->is_over());
}

Engine::After Engine::end_epoch() {
  drop_pending();  // Of what a loop of the user's own has done since the last batch.
  position_.epoch += 1;
  position_.phase = "train";
  position_.consumed = std::exchange(position_.pass_consumed, 0);
  stepper_->set_epochs_completed(position_.epoch - 1);
  compare_weights();
  std::uint32_t agreed = collective_->agree(control_word());
  note_leaving(agreed);
  if (is_over()) return After::kGoOn;
  if (setup_.job.checkpoint.every == job::CheckpointPolicy::Every::kEpoch) agreed |= control::kCheckpoint;
  // Without checkpoints of its own a run has no other place to leave at.
  const bool leave = leave_at_epoch_ || (leave_at_checkpoint_ && !saver_->saves_by_itself());
  return act_on(agreed, leave) ? After::kGoOn : After::kStop;
}

void Engine::backward(const at::Tensor& loss) {
  backward(loss, nullptr, 1);
}

void Engine::backward(const at::Tensor& loss, const torch::optim::Optimizer& only) {
  backward(loss, &stepper_->part_of(only), 1);
}

void Engine::backward(const at::Tensor& loss, const OptimizerPart* only, double weight) {
  const TimePoint began = time_now();
  if (profile_.is_on() && stream_) profile_.add(ProfiledPart::kForward, began - stream_->given());
  const Autocast::Pause pause(autocast_);
  stepper_->backward(loss, only, weight);
  if (profile_.is_on()) gradient_time_ = time_now() - began;
}

void Engine::update(torch::optim::Optimizer& optimizer) {
  update(stepper_->part_of(optimizer));
}

void Engine::minimize(const at::Tensor& loss) {
  OptimizerPart& part = stepper_->only_part("minimize()");
  const std::int64_t every = training_.gradient_accumulation;
  backward(loss, nullptr, 1.0 / static_cast<double>(every));
  if (++accumulated_ < every && !info().is_last) return;
  accumulated_ = 0;
  update(part);
}

void Engine::update(OptimizerPart& part) {
  const TimePoint began = time_now();
  agreed_ |= stepper_->update(part, control_word());
  autocast_.forget_copies();
  if (profile_.is_on()) {
    profile_.add(ProfiledPart::kGradient, std::exchange(gradient_time_, {}) + (part.reduced() - began));
    profile_.add(ProfiledPart::kApply, time_now() - part.reduced());
  }
  begin_work();
}

void Engine::step_scheduler() {
  stepper_->only_part("step_scheduler()").step_scheduler();
}

void Engine::step_scheduler(const torch::optim::Optimizer& optimizer) {
  stepper_->part_of(optimizer).step_scheduler();
}

/// Told at once: the first batch of this generation is done, of training or of the validation that it goes on with.
void Engine::begin_work() {
  if (std::exchange(first_step_sent_, true)) return;
  link::FirstStep first;
  first.step = stepper_->steps() + (position_.phase == "train" ? 1 : 0);
  send(first);
  saver_->prepare();
}

std::uint32_t Engine::control_word() const {
  std::uint32_t word = 0;
  if (setup_.link.stop_requested())
    word |= control::kStop | (setup_.link.stop_wants_checkpoint() ? control::kCheckpoint : 0);
  if (setup_.link.stop_at_epoch_requested()) word |= control::kStopAtEpoch;
  if (setup_.link.stop_at_checkpoint_requested()) word |= control::kStopAtCheckpoint;
  return word | saver_->due_bits();
}

bool Engine::after_training_batch(const BatchMetrics& metrics) {
  position_.pass = stream_->pass();
  position_.consumed = stream_->consumed();
  position_.batches = stream_->batches();
  return end_batch(metrics.num_samples) == After::kGoOn;
}

Engine::After Engine::end_batch(std::int64_t num_samples) {
  if (!stepper_->all_updated() || stepper_->parts().empty())
    agreed_ |= collective_->agree(control_word() | (is_pending() ? control::kPending : 0));
  const std::uint32_t agreed = std::exchange(agreed_, 0);
  const bool is_step = stepper_->is_updated();
  stepper_->end_batch();
  // The gradients of losses since that update are dropped.
  if (is_step) accumulated_ = 0;
  if (is_step) saver_->set_live_step(stepper_->steps());
  buffers_->end_batch();
  publish(num_samples);
  if (const std::string fault = stepper_->take_fault(); !fault.empty()) roll_back(fault);
  is_postponed_due_ = is_postponed_due_ || (is_step && saver_->is_due(stepper_->steps()));
  if (postpone(agreed)) return After::kGoOn;
  const bool goes_on = act_on(std::exchange(postponed_, 0), false, std::exchange(is_postponed_due_, false));
  return goes_on ? After::kGoOn : After::kStop;
}

/// Whether this rank is in the middle of a step. Losses without gradients count, too: no checkpoint holds how many.
bool Engine::is_pending() const {
  return accumulated_ > 0 || stepper_->is_pending();
}

/// Whether what was agreed waits, since some rank holds gradients that belong to no checkpoint.
bool Engine::postpone(std::uint32_t agreed) {
  postponed_ |= agreed & ~control::kPending;
  if ((agreed & control::kPending) == 0) {
    pending_batches_ = 0;
    return false;
  }
  if (++pending_batches_ < kPendingBatchesMax) return true;
  throw std::logic_error(fmt::format(
      "for {} batches there have been gradients that no update has taken, so nothing could be saved: update every "
      "optimizer that backward() reaches, or name the one that is meant in backward()",
      pending_batches_));
}

/// An epoch's end is a place to save at, so nobody may hold gradients there.
void Engine::drop_pending() {
  accumulated_ = 0;
  pending_batches_ = 0;
  const std::string names = stepper_->drop_pending();
  if (names.empty()) return;
  std::fprintf(stderr,
               "sgd-worker: warning: at the end of epoch %d gradients of optimizer %s are dropped that no update has "
               "taken: update in the batch whose info().is_last is true\n",
               position_.epoch, names.c_str());
}

bool Engine::after_validation_batch(const BatchMetrics& metrics) {
  if (profile_.is_on()) profile_.add(ProfiledPart::kEvalForward, time_now() - stream_->given());
  const std::uint32_t agreed = collective_->agree(control_word());
  begin_work();
  position_.consumed = stream_->consumed();
  publish(metrics.num_samples);
  return act_on(agreed, false);
}

/// A group leaves at the first place for it that comes: what is asked for at such a place counts there.
void Engine::note_leaving(std::uint32_t agreed) {
  if ((agreed & control::kStopAtEpoch) != 0) leave_at_epoch_ = true;
  if ((agreed & control::kStopAtCheckpoint) != 0) leave_at_checkpoint_ = true;
}

bool Engine::act_on(std::uint32_t agreed, bool leave, bool is_due) {
  note_leaving(agreed);
  const bool stop = (agreed & control::kStop) != 0;
  if (training_.validate_only || !may_save_) return !stop;
  const bool is_asked = leave || (agreed & control::kCheckpoint) != 0;
  const bool checkpoint = is_asked || is_due;
  leave = leave || (leave_at_checkpoint_ && checkpoint);
  unsigned targets = checkpoint ? Saver::kDisk : 0u;
  // With rollback each one that is due is made: where training goes back to must not depend on how fast the disk is.
  if (!is_asked && !leave && training_.on_nan != "rollback") targets |= Saver::kIfFree;
  // The next generation finds what was left behind in memory, without reading the disk.
  if ((agreed & control::kMemory) != 0 || (checkpoint && (leave || stop))) targets |= Saver::kMemory;
  save(targets);
  if (stop) return false;
  return !(leave && saver_->on_disk());
}

/// Reports and checkpoints of one step belong together: a checkpoint is judged by them. Where no optimizer has made any
/// update, a step is what lies between two checkpoints: else all were of one step, with the value of the last report.
std::int64_t Engine::step_to_save() const {
  const auto& parts = stepper_->parts();
  const bool is_idle = std::all_of(parts.begin(), parts.end(), [](const auto& part) { return part->batches() == 0; });
  const bool is_next = is_idle && stepper_->steps() == saved_step_ && !training_.validate_only;
  return stepper_->steps() + (is_next ? 1 : 0);
}

void Engine::save(unsigned targets) {
  const bool is_meant = (targets & Saver::kAlways) != 0 || !saver_->is_saved();
  const bool writes = is_meant && (targets & Saver::kDisk) != 0;
  if (writes) stepper_->set_steps(step_to_save());
  saver_->save(targets);
  if (writes && saver_->is_saved()) saved_step_ = stepper_->steps();
}

void Engine::send(const link::FromWorker& message) {
  if (Status sent = setup_.link.send(message); !sent) throw EnvironmentError(sent.error().message);
}

}  // namespace sgd::worker
