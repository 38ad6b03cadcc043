#include "worker/torch/data_streams.hpp"

#include <stdexcept>
#include <utility>

#include <fmt/format.h>

#include "common/base/assert.hpp"
#include "common/json/lenient.hpp"
#include "worker/torch/errors.hpp"
#include "worker/torch/operator_save.hpp"

namespace sgd::worker {
namespace {

constexpr std::size_t kStateBytesMax = std::size_t{1} << 20;

const char* name_of(Split split) {
  return split == Split::kTrain ? "train" : "validation";
}

int pass_of(Split split, const Position& position) {
  return split == Split::kTrain ? position.pass : position.epoch;
}

/// 0: no pass is in work.
std::int64_t consumed_of(Split split, const Position& position) {
  const bool is_validating = position.phase == "validate";
  if (split == Split::kTrain) return is_validating ? position.pass_consumed : position.consumed;
  return is_validating ? position.consumed : 0;
}

void check_state(const std::string& name, int rank, const nlohmann::json& state) {
  const std::string what = fmt::format("state() of the data set \"{}\"", name);
  const std::size_t bytes = exact_json(what.c_str(), rank, state, "keep it in words of your own").size();
  if (bytes > kStateBytesMax)
    throw std::invalid_argument(
        fmt::format("{} on rank {} has {} bytes as JSON, and the limit is {}: keep the place, and not the data", what,
                    rank, bytes, kStateBytesMax));
}

}  // namespace

DataStreams::DataStreams(const Dataset& dataset, const StreamPlace& place, Collective& collective)
    : dataset_(dataset), place_(place), collective_(collective) {}

StreamBatches& DataStreams::of(Split split) {
  std::shared_ptr<StreamBatches>& one = all_[split];
  if (!one) {
    StreamPlace place = place_;
    place.split = split;
    one = std::make_shared<StreamBatches>(std::make_unique<StreamReader>(dataset_.open_stream(split), place),
                                          collective_);
  }
  return *one;
}

std::shared_ptr<PassBatches> DataStreams::at(Split split, const Position& position) {
  StreamBatches& batches = of(split);
  if (consumed_of(split, position) == 0) batches.begin_pass(pass_of(split, position));
  SGD_ASSERT(batches.pass() == pass_of(split, position));
  SGD_ASSERT(batches.consumed() == consumed_of(split, position));
  return all_[split];
}

nlohmann::json DataStreams::state(const Position& position) const {
  nlohmann::json states = nlohmann::json::object();
  for (const auto& [split, batches] : all_) {
    if (consumed_of(split, position) == 0) continue;
    check_state(batches->reader().name(), place_.rank, batches->reader().state());
    states[name_of(split)] = batches->reader().state();
  }
  return states;
}

void DataStreams::load(const TrainingState& state) {
  for (const Split split : {Split::kTrain, Split::kValidation}) {
    const std::int64_t consumed = consumed_of(split, state.position);
    if (consumed == 0 || !dataset_.is_stream(split)) continue;
    std::vector<nlohmann::json> states;
    for (const RankRecord& record : state.records) {
      const nlohmann::json& kept = member(record.sums, kStreams);
      if (!kept.contains(name_of(split)))
        throw ConfigurationError(
            fmt::format("the checkpoint is in the middle of a pass over data to {}, and has no place in the job's "
                        "stream: it was made with other data",
                        split == Split::kTrain ? "train on" : "validate on"));
      states.push_back(kept.at(name_of(split)));
    }
    of(split).resume(pass_of(split, state.position), consumed, states);
  }
}

}  // namespace sgd::worker
