#include "worker/torch/checkpoint_reader.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/checkpoint/scan.hpp"
#include "worker/core/mapped_file.hpp"
#include "worker/core/safetensors.hpp"

namespace sgd::worker {
namespace {

MappedFile open_file(const std::string& path) {
  Result<MappedFile> file = MappedFile::open(path);
  if (!file) throw std::runtime_error(file.error().message);
  return std::move(file).value();
}

std::string text_of(const std::string& path) {
  const MappedFile file = open_file(path);
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

SafetensorsFile open_tensors(const std::string& path) {
  Result<SafetensorsFile> file = SafetensorsFile::open(path);
  if (!file) throw std::runtime_error(file.error().message);
  return std::move(file).value();
}

const TensorBytes& find(const SafetensorsFile& file, const std::string& path, const std::string& name, TensorType type,
                        const std::vector<std::int64_t>& shape) {
  const TensorBytes* tensor = file.find(name);
  if (tensor == nullptr) throw std::runtime_error(fmt::format("{}: no tensor {}", path, name));
  if (tensor->type != type || tensor->shape != shape)
    throw std::runtime_error(fmt::format(
        "{}: tensor {} is {} [{}] here and {} [{}] in the job's model: resume with the model that was "
        "trained, or start a new run",
        path, name, name_of(tensor->type), fmt::join(tensor->shape, ", "), name_of(type), fmt::join(shape, ", ")));
  return *tensor;
}

void copy_flat(const SafetensorsFile& file, const std::string& path, const FlatTensors& flat) {
  for (const ParameterPlace& place : flat.places) {
    const TensorBytes& tensor = find(file, path, place.name + flat.suffix, TensorType::kF32, place.shape);
    std::memcpy(flat.of(place).data(), tensor.bytes.data(), tensor.bytes.size());
  }
}

void check_count(const SafetensorsFile& file, const std::string& path, std::size_t expected) {
  if (file.tensors().size() != expected)
    throw std::runtime_error(
        fmt::format("{}: has {} tensors where the job needs {}", path, file.tensors().size(), expected));
}

}  // namespace

CheckpointReader::CheckpointReader(std::string dir) : dir_(std::move(dir)) {
  const bool has_rank_tensors = check_files();
  const std::string file = path(kStateFile);
  const nlohmann::json json = nlohmann::json::parse(text_of(file), nullptr, false);
  if (json.is_discarded()) throw std::runtime_error(file + ": not JSON");
  Result<TrainingState> parsed = parse_training_state(json);
  if (!parsed) throw std::runtime_error(file + ": " + parsed.error().message);
  state_ = std::move(parsed).value();
  if (!has_rank_tensors) return;
  const auto tensors = std::make_shared<const SafetensorsFile>(open_tensors(path(kRanksFile)));
  if (Status added = add_tensors(tensors, state_); !added)
    throw std::runtime_error(path(kRanksFile) + ": " + added.error().message);
}

bool CheckpointReader::check_files() const {
  Result<checkpoint::Manifest> manifest = checkpoint::verify(dir_, checkpoint::Proof::kChecksums);
  if (!manifest) throw std::runtime_error(manifest.error().message);
  const auto lists = [&manifest](const char* name) {
    const auto& files = manifest.value().files;
    return std::any_of(files.begin(), files.end(), [name](const auto& file) { return file.name == name; });
  };
  for (const char* needed : {kModelFile, kOptimizerFile, kStateFile}) {
    if (!lists(needed))
      throw std::runtime_error(fmt::format("{}: does not list {}", path(checkpoint::kManifestFile), needed));
  }
  return lists(kRanksFile);
}

void CheckpointReader::read_tensors(const StateTensors& tensors) const {
  const std::string model_path = path(kModelFile);
  const SafetensorsFile weights = open_tensors(model_path);
  const FlatTensors& parameters = tensors.flat.front();
  std::size_t names = tensors.buffers.size();
  for (const ParameterPlace& place : parameters.places) names += 1 + place.also.size();
  check_count(weights, model_path, names);
  copy_flat(weights, model_path, parameters);
  for (const ModuleBuffer& buffer : tensors.buffers) {
    const TensorBytes& tensor = find(weights, model_path, buffer.name, buffer.type, buffer.shape);
    std::memcpy(buffer.bytes.data(), tensor.bytes.data(), tensor.bytes.size());
  }
  try {
    check_same_optimizers(state_.optimizers, tensors.optimizers);
  } catch (const std::runtime_error& error) {
    throw std::runtime_error(fmt::format("{}: {}", path(kStateFile), error.what()));
  }
  const std::string optimizer_path = path(kOptimizerFile);
  const SafetensorsFile state = open_tensors(optimizer_path);
  // More of them may be there than the job's settings need now: the momentum that a scheduler gave, and that went with
  // it.
  for (const FlatTensors& buffer : std::span(tensors.flat).subspan(1)) copy_flat(state, optimizer_path, buffer);
}

MetricsAccumulator CheckpointReader::record(int rank, int world_size) const {
  Result<MetricsAccumulator> sums = record_of(state_, rank, world_size);
  if (!sums) throw std::runtime_error(path(kStateFile) + ": " + sums.error().message);
  return std::move(sums).value();
}

}  // namespace sgd::worker
