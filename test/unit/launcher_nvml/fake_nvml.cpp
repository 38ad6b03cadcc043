// The part of NVML that a node and a rank ask, of a machine with FAKE_NVML_GPUS devices (3). Refuses everything before
// it is initialised, as NVML does.
//
//   FAKE_NVML_MIG=I       device I is divided (MIG) into FAKE_NVML_PARTS parts (2)
//   FAKE_NVML_REFUSED=I   device I cannot be had, as one without permission
//   FAKE_NVML_LOST=I      device I has fallen off the bus
//
// A UUID has the number of its device, or of its part: "GPU-00000001-…", "MIG-00000003-…".

#include <cstdio>
#include <cstdlib>

namespace {

constexpr int kSuccess = 0;
constexpr int kUninitialized = 1;
constexpr int kInvalidArgument = 2;
constexpr int kNotSupported = 3;
constexpr int kNoPermission = 4;
constexpr int kNotFound = 6;
constexpr int kGpuIsLost = 15;
constexpr int kPlaces = 7;
constexpr int kDevices = 64;

bool is_open = false;
int devices[kDevices];  // A handle is the address of its device's or part's number.
int parts[kDevices * kPlaces];

int number_in(const char* variable, int otherwise) {
  const char* value = std::getenv(variable);
  return value == nullptr ? otherwise : std::atoi(value);
}

bool is_part(void* handle) {
  return handle >= static_cast<void*>(parts) && handle < static_cast<void*>(parts + kDevices * kPlaces);
}

bool is_lost(void* handle) {
  return !is_part(handle) && *static_cast<int*>(handle) == number_in("FAKE_NVML_LOST", -1);
}

}  // namespace

extern "C" {
int nvmlInit_v2() {
  is_open = true;
  return kSuccess;
}
int nvmlSystemGetCudaDriverVersion_v2(int* version) {
  *version = 12040;
  return is_open ? 0 : 1;
}
int nvmlShutdown() {
  is_open = false;
  return kSuccess;
}
int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = static_cast<unsigned>(number_in("FAKE_NVML_GPUS", 3));
  return is_open ? kSuccess : kUninitialized;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  if (!is_open) return kUninitialized;
  if (static_cast<int>(index) >= number_in("FAKE_NVML_GPUS", 3)) return kInvalidArgument;
  if (static_cast<int>(index) == number_in("FAKE_NVML_REFUSED", -1)) return kNoPermission;
  devices[index] = static_cast<int>(index);
  *device = &devices[index];
  return kSuccess;
}
int nvmlDeviceGetMigMode(void* device, unsigned* current, unsigned* pending) {
  if (number_in("FAKE_NVML_MIG", -1) < 0) return kNotSupported;
  *current = *pending = *static_cast<int*>(device) == number_in("FAKE_NVML_MIG", -1) ? 1 : 0;
  return kSuccess;
}
int nvmlDeviceGetMaxMigDeviceCount(void*, unsigned* count) {
  *count = static_cast<unsigned>(kPlaces);
  return kSuccess;
}
int nvmlDeviceGetMigDeviceHandleByIndex(void* device, unsigned place, void** part) {
  if ((place != 0 && place != 3) || number_in("FAKE_NVML_PARTS", 2) == 0) return kNotFound;
  const int number = *static_cast<int*>(device) * kPlaces + static_cast<int>(place);
  parts[number] = number;
  *part = &parts[number];
  return kSuccess;
}
int nvmlDeviceGetUUID(void* device, char* uuid, unsigned length) {
  if (is_part(device))
    (void)std::snprintf(uuid, length, "MIG-%08d-0000", *static_cast<int*>(device));
  else
    (void)std::snprintf(uuid, length, "GPU-%08d-0000-0000-0000-000000000000", *static_cast<int*>(device));
  return kSuccess;
}
int nvmlDeviceGetHandleByUUID(const char* uuid, void** device) {
  int number = 0;
  if (std::sscanf(uuid, "MIG-%8d-", &number) == 1 && number < kDevices * kPlaces) {
    parts[number] = number;
    *device = &parts[number];
    return is_open ? kSuccess : kUninitialized;
  }
  if (std::sscanf(uuid, "GPU-%8d-", &number) != 1 || number >= number_in("FAKE_NVML_GPUS", 3)) return kNotFound;
  return nvmlDeviceGetHandleByIndex_v2(static_cast<unsigned>(number), device);
}
int nvmlDeviceGetUtilizationRates(void* device, unsigned* rates) {
  if (is_part(device)) return kNotSupported;
  if (is_lost(device)) return kGpuIsLost;
  rates[0] = 87;
  rates[1] = 40;
  return is_open ? kSuccess : kUninitialized;
}
int nvmlDeviceGetMemoryInfo(void* device, unsigned long long* bytes) {
  if (is_lost(device)) return kGpuIsLost;
  bytes[0] = 80ULL << 30;
  bytes[1] = 60ULL << 30;
  bytes[2] = 20ULL << 30;
  return kSuccess;
}
int nvmlDeviceGetTemperature(void* device, int, unsigned* celsius) {
  if (is_part(device)) return kNotSupported;
  if (is_lost(device)) return kGpuIsLost;
  *celsius = 61;
  return kSuccess;
}
}
