#include "worker/torch/device.hpp"
#include "worker/torch/device_library.hpp"

#include <dlfcn.h>
#include <poll.h>

#include <algorithm>
#include <cstdlib>

#include <ATen/Context.h>
#include <ATen/Functions.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>

#include "sgd/training_operator.hpp"
#include "worker/collective/nccl_api.hpp"
#include "worker/torch/device_index.hpp"
#include "worker/torch/errors.hpp"

namespace sgd::worker {
namespace {

constexpr const char* kCudaLibrary = "libtorch_cuda.so";
constexpr const char* kDriverLibrary = "libcuda.so.1";
constexpr int kNotInitialized = 3;  // CUDA_ERROR_NOT_INITIALIZED

Device used;  // For the words of errors, which come from everywhere.

bool is_stand_in() {
  const char* value = std::getenv("SGD_DEVICE_STAND_IN");
  return value != nullptr && value[0] == '1';
}

/// The folder of LibTorch's libraries that this process uses.
std::string library_folder() {
  Dl_info info{};
  if (::dladdr(reinterpret_cast<const void*>(&at::globalContext), &info) == 0 || info.dli_fname == nullptr) return {};
  const std::string file = info.dli_fname;
  return file.substr(0, file.rfind('/'));
}

/// As NVIDIA's tools name the device; empty where the driver does not say. `is_part`: of a divided one (MIG).
std::string uuid_of(int index, bool is_part) {
  void* driver = ::dlopen(kDriverLibrary, RTLD_NOW | RTLD_NOLOAD);
  if (driver == nullptr) return {};
  const auto get = reinterpret_cast<int (*)(int*, int)>(::dlsym(driver, "cuDeviceGet"));
  const auto uuid = reinterpret_cast<int (*)(unsigned char*, int)>(::dlsym(driver, "cuDeviceGetUuid_v2"));
  int device = 0;
  unsigned char bytes[16] = {};
  const bool is_told = get != nullptr && uuid != nullptr && get(&device, index) == 0 && uuid(bytes, device) == 0;
  ::dlclose(driver);
  return is_told ? uuid_text(bytes, is_part) : std::string();
}

/// Why CUDA finds no device, in its words: to count them says 0 for each reason alike.
std::string why_none() {
  try {
    at::globalContext().lazyInitDevice(at::kCUDA);
  } catch (const c10::Error& error) {
    const std::string words = error.what_without_backtrace();
    return words.substr(0, words.find('\n'));
  }
  return {};
}

}  // namespace

std::string uuid_text(const unsigned char (&bytes)[16], bool is_part) {
  std::string text = is_part ? "MIG-" : "GPU-";
  for (int i = 0; i < 16; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += fmt::format("{:02x}", bytes[i]);
  }
  return text;
}

bool wants_gpu(const job::JobSpec& job) {
  const std::string& device = job.training->device;
  return device == "cuda" || (device == "auto" && job.per_worker.gpus > 0);
}

void open_device_library() {
  if (is_stand_in()) return;
  static void* library = nullptr;
  if (library != nullptr) return;
  keep_nccl_from_waiting();  // Here, where no thread can be reading the environment.
  const std::string path = library_folder() + "/" + kCudaLibrary;
  // Its symbols are found by name from LibTorch's other libraries.
  library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr)
    throw ConfigurationError(
        fmt::format("the job asks for a GPU, and LibTorch's CUDA part cannot be opened: {}: install it with "
                    "scripts/setup --cuda, build with SGD_TORCH_DIR naming a LibTorch that is whole, or set "
                    "\"training.device\" to \"cpu\"",
                    ::dlerror()));
}

/// That the driver's library is loaded says nothing: libraries beneath LibTorch load it, and begin nothing.
bool has_begun_cuda() {
  void* driver = ::dlopen(kDriverLibrary, RTLD_NOW | RTLD_NOLOAD);
  if (driver == nullptr) return false;
  const auto count = reinterpret_cast<int (*)(int*)>(::dlsym(driver, "cuDeviceGetCount"));
  int devices = 0;
  const bool has_begun = count != nullptr && count(&devices) != kNotInitialized;
  ::dlclose(driver);
  return has_begun;
}

const Device& Device::in_use() {
  return used;
}

Device Device::of(const job::JobSpec& job, int local_rank) {
  used = made(job, local_rank);
  return used;
}

Device Device::made(const job::JobSpec& job, int local_rank) {
  Device device;
  device.is_channels_last_ = job.training->channels_last;
  if (!wants_gpu(job)) return device;
  device.is_separate_ = true;
  if (is_stand_in()) {
    device.name_ = "cpu (as a stand-in of a GPU)";
    return device;
  }
  const auto count = at::hasCUDA() ? c10::impl::VirtualGuardImpl(at::kCUDA).deviceCount() : c10::DeviceIndex{0};
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  const int each = job.per_worker.gpus;
  const int index = device_index(visible, count, local_rank, each, count == 0 ? why_none() : std::string());
  if (job.training->deterministic) {
    (void)::setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", 0);  // Without it matrix products refuse.
    at::globalContext().setDeterministicCuDNN(true);
  }
  // fp32 is that: TensorFloat-32 drops 13 bits of each factor.
  at::globalContext().setAllowTF32CuBLAS(false);
  at::globalContext().setAllowTF32CuDNN(false);
  device.place_ = at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(index));
  device.name_ = device.place_.str();
  used = device;  // An error of what comes now is this one's.
  c10::impl::VirtualGuardImpl(at::kCUDA).setDevice(device.place_);
  (void)at::zeros({1}, at::TensorOptions().device(device.place_));  // The context, and errors of it, are here.
  device.uuid_ = uuid_of(index, device_word(visible, local_rank, each).starts_with("MIG-"));
  device.name_ = device.place_.str() + (device.uuid_.empty() ? "" : " (" + device.uuid_ + ")");
  return device;
}

at::Tensor Device::wrap(float* values, at::IntArrayRef sizes) const {
  return at::for_blob(values, sizes)
      .target_device(place_)
      .options(at::TensorOptions().dtype(at::kFloat).device(place_))
      .make_tensor();
}

at::Tensor Device::wrap(float* values, std::size_t count) const {
  const auto size = static_cast<std::int64_t>(count);
  return wrap(values, at::IntArrayRef(size));
}

at::Tensor Device::host_memory_for(const at::Tensor& tensor) const {
  const auto options = at::TensorOptions().dtype(tensor.scalar_type());
  return at::empty(tensor.sizes(), place_.is_cpu() ? options : options.pinned_memory(true));
}

/// Weights stay as they are: a convolution takes the format of its input, and gives its output that.
void Device::arrange(at::Tensor& features) const {
  if (!is_channels_last_) return;
  if (features.dim() != 4)
    throw ConfigurationError(
        fmt::format("\"training.memory_format\" is \"channels_last\", which is for images (samples x channels x rows x "
                    "columns), and a batch has {} dimensions: leave it out",
                    features.dim()));
  features = features.contiguous(at::MemoryFormat::ChannelsLast);
}

Batch Device::moved(Batch batch) const {
  if (!is_separate_) {
    arrange(batch.features);
    return batch;
  }
  const auto move = [this](at::Tensor& tensor) {
    if (!tensor.defined()) return;
    if (place_.is_cpu())
      tensor = tensor.clone();
    else  // What a stream of the user's has made on a device cannot be pinned.
      tensor = (tensor.is_cpu() ? tensor.pin_memory() : tensor).to(place_, /*non_blocking=*/true);
  };
  move(batch.features);
  move(batch.target);
  for (at::Tensor& tensor : batch.further) move(tensor);
  arrange(batch.features);
  return batch;
}

std::optional<c10::Stream> Device::stream() const {
  if (place_.is_cpu()) return std::nullopt;
  return c10::impl::VirtualGuardImpl(place_.type()).getStream(place_);
}

std::optional<c10::Stream> Device::side_stream() const {
  if (place_.is_cpu()) return std::nullopt;
  return c10::impl::VirtualGuardImpl(place_.type()).getStreamFromGlobalPool(place_);
}

DeviceMark::DeviceMark(at::Device place) {
  if (!place.is_cpu()) event_.emplace(place.type());
}

void DeviceMark::record(const std::optional<c10::Stream>& stream) {
  if (event_) event_->record(stream.value());
}

void DeviceMark::hold(const std::optional<c10::Stream>& stream) const {
  if (event_) event_->block(stream.value());
}

bool DeviceMark::is_done() const {
  return !event_ || event_->query();
}

/// LibTorch's events spin in CUDA until they are there, on a core that the rank's other threads need.
void DeviceMark::wait() const {
  while (!is_done()) (void)::poll(nullptr, 0, 1);  // Ignoring: a signal wakes it sooner.
}

}  // namespace sgd::worker
