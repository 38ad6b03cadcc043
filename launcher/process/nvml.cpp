#include "launcher/process/nvml.hpp"

#include <dlfcn.h>

#include <array>

namespace sgd::process {
namespace {

constexpr int kSuccess = 0;
constexpr unsigned kMigEnabled = 1;     // NVML_DEVICE_MIG_ENABLE
constexpr std::size_t kUuidBytes = 96;  // NVML_DEVICE_UUID_V2_BUFFER_SIZE

using Device = void*;

}  // namespace

template <typename Call>
Call* Nvml::call(const char* name) const {
  return reinterpret_cast<Call*>(::dlsym(library_, name));
}

std::unique_ptr<Nvml> Nvml::open(const std::string& library) {
  void* const handle = ::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return nullptr;
  const auto init = reinterpret_cast<int (*)()>(::dlsym(handle, "nvmlInit_v2"));
  const auto shut_down = reinterpret_cast<int (*)()>(::dlsym(handle, "nvmlShutdown"));
  if (init == nullptr || shut_down == nullptr || init() != kSuccess) {
    (void)::dlclose(handle);
    return nullptr;
  }
  return std::unique_ptr<Nvml>(new Nvml(handle, shut_down));
}

Nvml::~Nvml() {
  (void)shut_down_();
  (void)::dlclose(library_);
}

unsigned Nvml::count() const {
  unsigned count = 0;
  const auto get = call<int(unsigned*)>("nvmlDeviceGetCount_v2");
  return get != nullptr && get(&count) == kSuccess ? count : 0;
}

std::string Nvml::uuid(unsigned index) const {
  const auto by_index = call<int(unsigned, Device*)>("nvmlDeviceGetHandleByIndex_v2");
  const auto uuid_of = call<int(Device, char*, unsigned)>("nvmlDeviceGetUUID");
  Device device = nullptr;
  std::array<char, kUuidBytes> uuid{};
  if (by_index == nullptr || uuid_of == nullptr || by_index(index, &device) != kSuccess) return {};
  return uuid_of(device, uuid.data(), static_cast<unsigned>(uuid.size() - 1)) == kSuccess ? uuid.data() : "";
}

std::optional<std::vector<std::string>> Nvml::parts(unsigned index) const {
  const auto by_index = call<int(unsigned, Device*)>("nvmlDeviceGetHandleByIndex_v2");
  const auto mode = call<int(Device, unsigned*, unsigned*)>("nvmlDeviceGetMigMode");
  const auto most = call<int(Device, unsigned*)>("nvmlDeviceGetMaxMigDeviceCount");
  const auto part_of = call<int(Device, unsigned, Device*)>("nvmlDeviceGetMigDeviceHandleByIndex");
  const auto uuid_of = call<int(Device, char*, unsigned)>("nvmlDeviceGetUUID");
  if (by_index == nullptr || mode == nullptr || most == nullptr || part_of == nullptr || uuid_of == nullptr)
    return std::nullopt;
  Device device = nullptr;
  unsigned current = 0;
  unsigned pending = 0;
  unsigned places = 0;
  if (by_index(index, &device) != kSuccess || mode(device, &current, &pending) != kSuccess) return std::nullopt;
  if (current != kMigEnabled || most(device, &places) != kSuccess) return std::nullopt;
  std::vector<std::string> uuids;
  for (unsigned place = 0; place < places; ++place) {
    Device part = nullptr;
    std::array<char, kUuidBytes> uuid{};
    if (part_of(device, place, &part) != kSuccess) continue;  // A place that no part was made in.
    if (uuid_of(part, uuid.data(), static_cast<unsigned>(uuid.size() - 1)) == kSuccess) uuids.emplace_back(uuid.data());
  }
  return uuids;
}

}  // namespace sgd::process
