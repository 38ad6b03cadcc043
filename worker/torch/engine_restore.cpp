// What the engine's state is, where it comes from at the beginning, and how it goes back.
#include <algorithm>
#include <cstdio>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>

#include "common/checkpoint/made_by.hpp"
#include "worker/torch/clock.hpp"
#include "worker/torch/engine.hpp"
#include "worker/torch/errors.hpp"
#include "worker/torch/named_buffers.hpp"

namespace sgd::worker {

int Engine::memory_fd() const {
  return setup_.job.checkpoint.memory ? setup_.memory_fd : -1;
}

/// Collective. A device gets what the host's memory then holds.
Restored Engine::restored_from(const link::Assignment& assignment, int memory_fd) {
  const StateTensors state = tensors();
  if (mirror_) {
    mirror_->take();
    mirror_->wait_taken();
  }
  Restored restored = Restorer({assignment, setup_.link, *collective_, state, memory_fd}).run();
  if (mirror_) mirror_->give();
  return restored;
}

void Engine::restore() {
  Restored restored = restored_from(setup_.assignment, memory_fd());
  if (restored.state) {
    buffers_->take_own(*restored.state);
    const TrainingState& state = *restored.state;
    const std::string conflict = checkpoint::order_conflict(
        {state.position.epoch, state.position.phase, state.position.consumed, state.position.pass_consumed},
        state.made_by, made_by());
    if (!conflict.empty() && !training_.validate_only) throw ConfigurationError(conflict);
    stepper_->load(state.optimizers, state.step);
    position_ = state.position;
    stepper_->set_epochs_completed(position_.epoch - 1);  // A scheduler of another job may have counted something else.
    Result<MetricsAccumulator> sums = record_of(state, world_rank(), world_size());
    if (!sums) throw std::runtime_error(sums.error().message);
    metrics_ = std::move(sums).value();
    if (!training_.validate_only) load_measures(state);  // A validation begins anew, and may measure something else.
    if (streams_ && !training_.validate_only) streams_->load(state);
    if (early_stop_)
      if (Status loaded = early_stop_->load(state.early_stop); !loaded)
        throw std::runtime_error(loaded.error().message);
    stepper_->load_loss_scale(state.loss_scale);
    stepper_->load_skipped(state.skipped_updates);
    rollbacks_ = state.rollbacks;
    user_.load(state, world_rank(), world_size());
  }
  // Where there is no optimizer, what lies before the first save is its step.
  if (restored.state || stepper_->parts().empty()) saved_step_ = stepper_->steps();
  buffers_->remember();
  saver_->begin(restored, memory_fd());
  announce_ready(restored);
}

void Engine::announce_ready(const Restored& restored) {
  setup_.link.progress().step = stepper_->steps();
  setup_.link.progress().epoch = position_.epoch;
  link::Ready ready;
  ready.step = stepper_->steps();
  ready.epoch = position_.epoch;
  ready.source = name_of(restored.source);
  ready.path = restored.path;
  ready.restore_s = to_seconds(time_now() - setup_.assigned);
  ready.redone = restored.redone;
  send(ready);
}

/// Collective: weights, optimizers and what the user's code keeps are those of the newest checkpoint again. Positions,
/// counts of steps and schedules go on, so that nothing is trained twice, and no batch is met again.
void Engine::roll_back(const std::string& fault) {
  (void)saver_->on_disk();  // What is being written counts; whether it has come there, its path tells.
  link::Assignment from = setup_.assignment;
  if (const std::string newest = saver_->newest(); !newest.empty())
    from.resume_from.insert(from.resume_from.begin(), newest);
  Progress& progress = setup_.link.progress();
  const Progress::Phase phase = progress.phase;
  Restored restored = restored_from(from, -1);
  progress.phase = phase;
  if (!restored.state)
    stepper_->fail(fault + ", and there is no checkpoint yet to go back to, as training.on_nan asks");
  if (world_rank() == 0)
    std::fprintf(stderr, "sgd-worker: warning: %s: weights go back to %s\n", fault.c_str(), restored.path.c_str());
  buffers_->take_own(*restored.state);
  stepper_->roll_back(restored.state->optimizers);
  user_.roll_back(*restored.state, world_rank(), world_size());
  buffers_->remember();
  autocast_.forget_copies();
  accumulated_ = 0;
  ++rollbacks_;
}

void Engine::compare_weights() {
  saver_->settle();
  const StateTensors state = tensors();
  if (mirror_) {
    mirror_->take();
    mirror_->wait_taken();
  }
  const std::uint64_t hash = FlatParameters::hash(state.flat.front().values);
  const std::vector<std::string> hashes =
      collective_->all_gather(fmt::format("{:016x} {:016x}", hash, buffers_->hash()));
  std::string different;
  for (std::size_t rank = 1; rank < hashes.size(); ++rank) {
    if (hashes[rank] != hashes[0]) different += fmt::format("{}{}", different.empty() ? "" : ", ", rank);
  }
  if (!different.empty())
    throw std::runtime_error(fmt::format("after epoch {} the weights of rank {} differ from those of rank 0",
                                         position_.epoch - 1, different));
}

nlohmann::json Engine::made_by() const {
  nlohmann::json made = {{"training", setup_.job.resolved->value("training", nlohmann::json::object())},
                         {"cpus", setup_.assignment.cpus}};
  if (setup_.dataset == nullptr) return made;
  for (const auto& [name, split] : {std::pair("train", Split::kTrain), std::pair("validation", Split::kValidation)})
    if (!setup_.dataset->is_stream(split) && (split == Split::kTrain || setup_.dataset->has_validation()))
      made["samples"][name] = setup_.dataset->count(split);
  return made;
}

MemoryPoint Engine::point() const {
  return {stepper_->steps(), position_.epoch, position_.phase == "validate", position_.consumed};
}

/// As memory of the host: the tensors' own, or the mirror's.
StateTensors Engine::tensors() {
  if (mirror_) mirror_->begin();
  const auto on_host = [this](const std::string& name, std::span<float> values) {
    if (!mirror_) return values;
    const at::Tensor memory = mirror_->add(name, setup_.device.wrap(values.data(), values.size()));
    return std::span<float>(static_cast<float*>(memory.data_ptr()), values.size());
  };
  StateTensors tensors;
  const std::span<const ParameterPlace> places = parameters_->places();
  tensors.flat.push_back({"", on_host("parameters", parameters_->values()), places, 0});
  for (const auto& part : stepper_->parts()) {
    const ParameterRange& range = part->range();
    for (const OptimizerBuffer& buffer : part->buffers())
      tensors.flat.push_back({"." + buffer.name, on_host(part->name() + "." + buffer.name, buffer.values),
                              places.subspan(range.first, range.count), range.floats.offset});
  }
  for (const NamedBuffer& one : named_module_buffers(models_, parameters_->places()))
    tensors.buffers.push_back(
        describe(one.name, mirror_ ? mirror_->add("buffer/" + one.name, one.tensor) : one.tensor));
  tensors.optimizers = stepper_->kinds();
  return tensors;
}

RankMessage Engine::own_message() {
  RankMessage own;
  own.record.sums = metrics_.export_state();
  own.record.sums["measures"] = measures_.state();
  if (streams_)
    if (nlohmann::json places = streams_->state(position_); !places.empty())
      own.record.sums[kStreams] = std::move(places);
  own.record.own = user_.own(world_rank());
  buffers_->give_own(own.record.own);
  if (world_rank() == 0) own.shared = user_.shared();
  return own;
}

TrainingState Engine::state(std::vector<RankMessage> told) {
  TrainingState state;
  state.position = position_;
  state.step = stepper_->steps();
  state.world_size = world_size();
  state.seed = training_.seed;
  state.optimizers = stepper_->records();
  state.made_by = made_by();
  if (early_stop_) state.early_stop = early_stop_->state();
  state.loss_scale = stepper_->loss_scale();
  state.skipped_updates = stepper_->skipped();
  state.rollbacks = rollbacks_;
  for (RankMessage& one : told) state.records.push_back(std::move(one.record));
  state.shared = std::move(told.front().shared);
  return state;
}

}  // namespace sgd::worker
