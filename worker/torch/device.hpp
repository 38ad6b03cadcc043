#pragma once
// Where a rank computes: the host, or a GPU with memory of its own. Nothing of CUDA is needed to build: LibTorch's CUDA
// part is a library that is opened where a job asks for it, and everything goes through LibTorch's interfaces that know
// no kind of device. They look for it once: it must be there before anything of LibTorch has asked.
//
// The stand-in, for tests, computes on the host and is separate all the same: its tensors are copied wherever a GPU's
// are, so that the whole path runs where there is none. SGD_DEVICE_STAND_IN=1 makes it of "cuda".

#include <memory>
#include <optional>
#include <string>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include "common/job/spec.hpp"

namespace sgd {
struct Batch;
}

namespace sgd::worker {

/// Whether the job computes on a GPU: it says so, or it leaves it to whether its workers have one.
[[nodiscard]] bool wants_gpu(const job::JobSpec& job);
/// Whether CUDA itself has begun in this process, so that a child of it could not use any device.
[[nodiscard]] bool has_begun_cuda();
/// "GPU-8f5c…", as NVIDIA's tools write it; "MIG-…" of a part of a divided device.
[[nodiscard]] std::string uuid_text(const unsigned char (&bytes)[16], bool is_part);

class Device {
 public:
  Device() = default;  ///< The host.
  /// This rank's. After open_device_library(). Throws as device_index() does.
  [[nodiscard]] static Device of(const job::JobSpec& job, int local_rank);
  /// What of() has made last; the host before.
  [[nodiscard]] static const Device& in_use();

  [[nodiscard]] at::Device place() const { return place_; }
  /// Whether its memory is not the host's, or is to be taken as such.
  [[nodiscard]] bool is_separate() const { return is_separate_; }
  /// "cuda:0 (GPU-8f5c…)", "cpu".
  [[nodiscard]] const std::string& name() const { return name_; }
  /// "GPU-8f5c…", "MIG-…" of a part; empty where there is none.
  [[nodiscard]] const std::string& uuid() const { return uuid_; }

  /// Floats at an address of the device, as a tensor.
  [[nodiscard]] at::Tensor wrap(float* values, at::IntArrayRef sizes) const;
  [[nodiscard]] at::Tensor wrap(float* values, std::size_t count) const;
  /// Memory of the host for copies from and to the device.
  [[nodiscard]] at::Tensor host_memory_for(const at::Tensor& tensor) const;
  /// There, and in the job's memory format. Throws ConfigurationError where that is for images, and the batch has none.
  [[nodiscard]] Batch moved(Batch batch) const;

  /// What the device does in order; nothing on the host.
  [[nodiscard]] std::optional<c10::Stream> stream() const;
  /// One beside that.
  [[nodiscard]] std::optional<c10::Stream> side_stream() const;

 private:
  [[nodiscard]] static Device made(const job::JobSpec& job, int local_rank);
  void arrange(at::Tensor& features) const;

  at::Device place_{at::kCPU};
  bool is_separate_ = false;
  bool is_channels_last_ = false;  // Of the features of batches.
  std::string name_ = "cpu";
  std::string uuid_;
};

/// A place in the order of a stream, to be waited for. On the host everything before it is done.
class DeviceMark {
 public:
  explicit DeviceMark(at::Device place);
  void record(const std::optional<c10::Stream>& stream);
  /// What `stream` is given from now on comes behind the mark.
  void hold(const std::optional<c10::Stream>& stream) const;
  [[nodiscard]] bool is_done() const;
  /// From any thread; asleep between two looks.
  void wait() const;

 private:
  std::optional<c10::Event> event_;
};

}  // namespace sgd::worker
