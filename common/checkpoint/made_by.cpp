#include "common/checkpoint/made_by.hpp"

#include <utility>

#include <fmt/format.h>

#include "common/json/lenient.hpp"

namespace sgd::checkpoint {
namespace {

using Json = nlohmann::json;

/// "training.seed was 1 and is 2"; empty where both are equal, or one does not say.
std::string difference(const Json& before, const Json& after, const char* front, const char* key) {
  const Json& was = member(before, key);
  const Json& is = member(after, key);
  if (was.is_null() || is.is_null() || was == is) return {};
  return fmt::format("{}{} was {} and is {}", front, key, dump_text(was), dump_text(is));
}

}  // namespace

PlaceInEpoch place_of(const Json& state) {
  PlaceInEpoch place;
  const Json& position = member(state, "position");
  read_if_fits(position, "epoch", place.epoch);
  read_if_fits(position, "phase", place.phase);
  read_if_fits(position, "consumed", place.consumed);
  read_if_fits(position, "pass_consumed", place.pass_consumed);
  return place;
}

std::string order_conflict(const PlaceInEpoch& place, const Json& before, const Json& after) {
  const bool is_validating = place.phase == "validate";
  // In a pass that goes on after the epoch's end, the order of what is left of it counts, too.
  const bool is_in_pass = is_validating ? place.pass_consumed > 0 : place.consumed > 0;
  if (!is_validating && !is_in_pass) return {};
  const Json& was = member(before, "training");
  const Json& is = member(after, "training");
  std::string changed;
  // What validation looks at is not drawn.
  for (const char* key : {"seed", "shuffle"})
    if (changed.empty() && is_in_pass) changed = difference(was, is, "training.", key);
  for (const char* key : {"dataset", "datasets"})
    if (changed.empty()) changed = difference(was, is, "training.", key);
  for (const auto& [split, counts] : {std::pair("train", is_in_pass), std::pair("validation", is_validating)})
    if (changed.empty() && counts)
      changed =
          difference(member(before, "samples"), member(after, "samples"), "the data set's number of samples, ", split);
  if (changed.empty()) return {};
  if (is_in_pass && !member(was, "steps_per_epoch").is_null())
    return fmt::format(
        "{}, in the middle of a pass over the data: some samples would be used twice and others never. Keep it until "
        "a pass ends with an epoch",
        changed);
  return fmt::format(
      "{}, in the middle of epoch {}: some of its samples would be used twice and others never. Keep it until that "
      "epoch is trained (--set training.epochs={}), and change it then",
      changed, place.epoch, place.epoch);
}

bool is_same_arithmetic(const Json& before, const Json& after) {
  Json was = member(before, "training");
  Json is = member(after, "training");
  if (!was.is_object() || !is.is_object() || member(before, "cpus") != member(after, "cpus")) return false;
  // What is measured changes no step, nor who makes the batches.
  for (const char* key : {"epochs", "metrics", "profile", "loader"})
    for (Json* training : {&was, &is}) training->erase(key);
  return was == is;
}

}  // namespace sgd::checkpoint
