#include "worker/torch/checkpoint_writer.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>
#include <new>
#include <utility>

#include <fmt/format.h>

#include "common/checkpoint/crc32c.hpp"
#include "common/checkpoint/manifest.hpp"
#include "worker/core/write_all.hpp"
#include "worker/link/stack_signal.hpp"
#include "worker/link/unique_fd.hpp"
#include "worker/torch/clock.hpp"

namespace sgd::worker {
namespace {

namespace fs = std::filesystem;

Status sync_directory(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (fd.get() < 0 || ::fsync(fd.get()) != 0) return system_error("cannot sync " + path);
  return {};
}

Result<WrittenFile> write_text(const std::string& path, const std::string& text) {
  const UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
  if (fd.get() < 0) return system_error("cannot create " + path);
  const auto bytes = std::as_bytes(std::span(text));
  if (Status written = write_all(fd.get(), bytes, path); !written) return written.error();
  if (::fsync(fd.get()) != 0) return system_error("cannot sync " + path);
  return WrittenFile{text.size(), checkpoint::crc32c(0, bytes)};
}

std::size_t floats_of(const StateTensors& tensors) {
  std::size_t floats = 0;
  for (const FlatTensors& flat : tensors.flat) floats += flat.values.size();
  return floats;
}

}  // namespace

CheckpointWriter::CheckpointWriter(CheckpointTarget target, Tell tell)
    : target_(std::move(target)), tell_(std::move(tell)) {
  const StackSignalBlock no_stack_signal;
  thread_ = std::thread([this] { run(); });
}

CheckpointWriter::~CheckpointWriter() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

bool CheckpointWriter::busy() const {
  const std::lock_guard lock(mutex_);
  return busy_;
}

Status CheckpointWriter::wait(Duration deadline) {
  std::unique_lock lock(mutex_);
  if (changed_.wait_for(lock, deadline, [this] { return !busy_; })) return {};
  return Error{"the checkpoint writer has not finished within " + format_duration(deadline)};
}

bool CheckpointWriter::last_is_on_disk() const {
  const std::lock_guard lock(mutex_);
  return last_on_disk_;
}

std::string CheckpointWriter::newest() const {
  const std::lock_guard lock(mutex_);
  return newest_;
}

void CheckpointWriter::prepare(const StateTensors& tensors) {
  const std::lock_guard lock(mutex_);
  if (busy_ || staging_.size() != 0) return;  // A save before the first step has made it.
  if (floats_of(tensors) == 0) return;        // Nothing is trained.
  prepare_floats_ = floats_of(tensors);
  busy_ = true;
  changed_.notify_all();
}

void CheckpointWriter::save(TrainingState state, const StateTensors& tensors, TimePoint began,
                            std::optional<Duration> held) {
  SGD_ASSERT(!busy());
  const std::size_t floats = floats_of(tensors);
  if (staging_.size() != floats) staging_ = AlignedFloats(floats);
  job_.tensors = tensors;
  std::span<float> free = staging_.span();
  for (FlatTensors& flat : job_.tensors.flat) {
    const std::span<float> staged = free.first(flat.values.size());
    std::memcpy(staged.data(), flat.values.data(), flat.values.size_bytes());
    flat.values = staged;
    free = free.subspan(staged.size());
  }
  job_.buffer_bytes.clear();
  for (const ModuleBuffer& buffer : tensors.buffers)
    job_.buffer_bytes.emplace_back(buffer.bytes.begin(), buffer.bytes.end());
  job_.state = std::move(state);
  job_.skipped = std::exchange(skipped_, 0);
  job_.copied = time_now();
  job_.stall_s = to_seconds(held.value_or(job_.copied - began));
  const std::lock_guard lock(mutex_);
  busy_ = true;
  changed_.notify_all();
}

void CheckpointWriter::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return busy_ || ending_; });
    if (!busy_) return;
    const std::size_t prepare_floats = std::exchange(prepare_floats_, 0);
    lock.unlock();
    bool on_disk = false;
    if (prepare_floats != 0) {
      make_staging(prepare_floats);
    } else {
      on_disk = write_job();
      job_.state = TrainingState();  // Its memory is that of all ranks' states.
    }
    lock.lock();
    if (prepare_floats == 0) last_on_disk_ = on_disk;
    busy_ = false;
    changed_.notify_all();
  }
}

/// Where there is no memory for it, the first save says so: on the training thread, which can.
void CheckpointWriter::make_staging(std::size_t floats) {
  try {
    staging_ = AlignedFloats(floats);
    populate_pages(std::as_writable_bytes(staging_.span()));
  } catch (const std::bad_alloc&) {
    staging_ = AlignedFloats();
  }
}

/// An exception that left the thread would end the process without a word.
bool CheckpointWriter::write_job() {
  try {
    return write_checkpoint();
  } catch (const std::bad_alloc&) {
    give_up("out of memory");
  } catch (const std::exception& error) {
    give_up(fmt::format("unexpected error: {}", error.what()));
  }
  return false;
}

void CheckpointWriter::give_up(const std::string& reason) {
  std::fprintf(stderr, "sgd-worker: warning: no checkpoint of step %lld: %s; training goes on\n",
               static_cast<long long>(job_.state.step), reason.c_str());
  tell_(link::CheckpointFailed{job_.state.step, reason});
}

bool CheckpointWriter::write_checkpoint() {
  const std::string root = target_.run_dir + "/" + checkpoint::kDirectory;
  const std::string part = root + "/." + checkpoint::directory_name(job_.state.step, target_.generation) + ".part";
  std::error_code ignored;
  fs::create_directories(root, ignored);
  fs::remove_all(part, ignored);
  Result<std::int64_t> bytes = write_files(part);
  Result<std::string> published = bytes ? publish(part, root) : Result<std::string>(bytes.error());
  if (!published) {
    fs::remove_all(part, ignored);
    give_up(published.error().message);
    return false;
  }
  {
    const std::lock_guard lock(mutex_);
    newest_ = root + "/" + published.value();
  }
  link::CheckpointSaved saved;
  saved.path = std::string(checkpoint::kDirectory) + "/" + published.value();
  saved.step = job_.state.step;
  saved.epoch = job_.state.position.epoch - 1;
  saved.bytes = bytes.value();
  saved.stall_s = job_.stall_s;
  saved.skipped = job_.skipped;
  saved.write_s = to_seconds(time_now() - job_.copied);
  tell_(saved);
  return true;
}

Result<std::int64_t> CheckpointWriter::write_files(const std::string& dir) {
  std::error_code error;
  if (!fs::create_directory(dir, error)) return Error{"cannot create " + dir + ": " + error.message(), error.value()};
  checkpoint::Manifest manifest;
  manifest.step = job_.state.step;
  manifest.epoch = job_.state.position.epoch - 1;
  manifest.generation = target_.generation;
  manifest.world_size = job_.state.world_size;
  std::int64_t bytes = 0;
  const auto note = [&manifest, &bytes](const char* file, const WrittenFile& written) {
    manifest.files.push_back({file, written.bytes, written.crc32c});
    bytes += static_cast<std::int64_t>(written.bytes);
  };
  Result<WrittenFile> model = write_safetensors(dir + "/" + kModelFile, model_tensors(), {{"format", "pt"}});
  if (!model) return model.error();
  note(kModelFile, model.value());
  Result<WrittenFile> optimizer = write_safetensors(dir + "/" + kOptimizerFile, optimizer_tensors());
  if (!optimizer) return optimizer.error();
  note(kOptimizerFile, optimizer.value());
  if (const std::vector<TensorBytes> tensors = rank_tensors(); !tensors.empty()) {
    Result<WrittenFile> ranks = write_safetensors(dir + "/" + kRanksFile, tensors);
    if (!ranks) return ranks.error();
    note(kRanksFile, ranks.value());
  }
  Result<WrittenFile> state = write_text(dir + "/" + kStateFile, to_json(job_.state).dump(1) + "\n");
  if (!state) return state.error();
  note(kStateFile, state.value());
  Result<WrittenFile> last = write_text(dir + "/" + checkpoint::kManifestFile, checkpoint::encode(manifest));
  if (!last) return last.error();
  return bytes + static_cast<std::int64_t>(last.value().bytes);
}

Result<std::string> CheckpointWriter::publish(const std::string& part, const std::string& root) {
  if (Status synced = sync_directory(part); !synced) return synced.error();
  // The same step of the same generation can come again, after validation for example. The one that is there stays:
  // it may count, and this one may never do.
  int number = 1;
  std::string name = checkpoint::directory_name(job_.state.step, target_.generation);
  for (std::error_code error; fs::exists(root + "/" + name, error);)
    name = checkpoint::directory_name(job_.state.step, target_.generation, ++number);
  if (::rename(part.c_str(), (root + "/" + name).c_str()) != 0) return system_error("cannot rename " + part);
  if (Status synced = sync_directory(root); !synced) return synced.error();
  return name;
}

std::vector<TensorBytes> CheckpointWriter::model_tensors() const {
  std::vector<TensorBytes> tensors;
  const FlatTensors& parameters = job_.tensors.flat.front();
  for (const ParameterPlace& place : parameters.places) {
    tensors.push_back({place.name, TensorType::kF32, place.shape, std::as_bytes(parameters.of(place))});
    // As a state_dict has it: load_state_dict() asks for every name.
    for (const std::string& name : place.also)
      tensors.push_back({name, TensorType::kF32, place.shape, tensors.back().bytes});
  }
  const std::vector<ModuleBuffer>& buffers = job_.tensors.buffers;
  for (std::size_t i = 0; i < buffers.size(); ++i)
    tensors.push_back({buffers[i].name, buffers[i].type, buffers[i].shape, job_.buffer_bytes[i]});
  return tensors;
}

std::vector<TensorBytes> CheckpointWriter::optimizer_tensors() const {
  std::vector<TensorBytes> tensors;
  for (const FlatTensors& flat : std::span(job_.tensors.flat).subspan(1)) {
    for (const ParameterPlace& place : flat.places)
      tensors.push_back({place.name + flat.suffix, TensorType::kF32, place.shape, std::as_bytes(flat.of(place))});
  }
  return tensors;
}

std::vector<TensorBytes> CheckpointWriter::rank_tensors() const {
  std::vector<TensorBytes> tensors;
  for (std::size_t rank = 0; rank < job_.state.records.size(); ++rank) {
    for (const TensorBytes& tensor : job_.state.records[rank].own.tensors) {
      tensors.push_back(tensor);
      tensors.back().name = tensor_name_of(static_cast<int>(rank), tensor.name);
    }
  }
  return tensors;
}

}  // namespace sgd::worker
