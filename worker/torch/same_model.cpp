#include "worker/torch/same_model.hpp"

#include <algorithm>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace sgd::worker {
namespace {

constexpr const char* kNothing = "nothing";

std::string lines_of(const StateTensors& tensors) {
  std::string lines;
  for (const OptimizerKind& one : tensors.optimizers) lines += fmt::format("optimizer {} ({})\n", one.name, one.type);
  for (const ParameterPlace& place : tensors.flat.front().places) {
    lines += fmt::format("parameter {} [{}]\n", place.name, fmt::join(place.shape, ", "));
    for (const std::string& name : place.also) lines += fmt::format("parameter {}, which is {}\n", name, place.name);
  }
  for (const ModuleBuffer& buffer : tensors.buffers)
    lines += fmt::format("buffer {} [{}]\n", buffer.name, fmt::join(buffer.shape, ", "));
  return lines;
}

/// What a data set knows of itself: nothing is read for it, so that ranks that go on after a failure lose no time.
std::string lines_of(const Dataset& dataset) {
  std::string lines;
  for (const DatasetPart& part : dataset.parts()) {
    const char* use = part.split == Split::kTrain ? "train" : "validate";
    const SampleShape shape = part.dataset->shape();
    lines += fmt::format("{} samples to {} on in \"{}\"\n", part.dataset->count(part.split), use, part.key);
    lines += fmt::format("samples of shape [{}] and {} outputs in \"{}\"\n", fmt::join(shape.features, ", "),
                         shape.outputs, part.key);
    std::size_t number = 0;
    for (const std::string& name : part.dataset->classes())
      lines += fmt::format("class {} \"{}\" in \"{}\"\n", number++, name, part.key);
  }
  return lines;
}

std::string line_at(const std::string& lines, std::size_t begin) {
  const std::size_t end = lines.find('\n', begin);
  return end == std::string::npos ? kNothing : lines.substr(begin, end - begin);
}

/// The first line in which they differ, of both.
std::string difference(const std::string& theirs, const std::string& rank_0s, std::size_t rank) {
  const auto [one, other] = std::mismatch(theirs.begin(), theirs.end(), rank_0s.begin(), rank_0s.end());
  const auto same = static_cast<std::size_t>(one - theirs.begin());
  const std::size_t line = same == 0 ? std::string::npos : theirs.rfind('\n', same - 1);
  const std::size_t begin = line == std::string::npos ? 0 : line + 1;
  return fmt::format("rank {} has {} where rank 0 has {}", rank, line_at(theirs, begin), line_at(rank_0s, begin));
}

/// Collective. Throws where some rank has other lines than rank 0; `what` they are of, and what to do about it.
void compare(Collective& collective, const std::string& lines, const char* what, const char* advice) {
  const std::vector<std::string> all = collective.all_gather(lines);
  std::string different;
  std::size_t first = 0;
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank] == all[0]) continue;
    if (first == 0) first = rank;
    different += fmt::format("{}{}", different.empty() ? "" : ", ", rank);
  }
  if (first == 0) return;
  throw std::runtime_error(fmt::format("the {} of rank {} is another one than that of rank 0: {}. {}", what, different,
                                       difference(all[first], all[0], first), advice));
}

}  // namespace

void check_same_model(Collective& collective, const StateTensors& tensors, const Dataset* dataset) {
  if (collective.world_size() == 1) return;
  const std::string data = dataset == nullptr ? "" : lines_of(*dataset);
  const std::string model = lines_of(tensors);
  const std::vector<std::string> digests =
      collective.all_gather(std::to_string(std::hash<std::string>()(data + model)));
  if (std::all_of(digests.begin(), digests.end(), [&](const std::string& one) { return one == digests[0]; })) return;
  // The data first: a model that is made for its shape differs with it.
  compare(collective, data, "data set", "Every rank must see the same data: compare the files on the ranks' machines");
  compare(collective, model, "model", "setup() must make the same model on every rank");
}

}  // namespace sgd::worker
