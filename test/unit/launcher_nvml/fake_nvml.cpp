// The part of NVML that a node asks, of a machine with FAKE_NVML_GPUS devices (3), of which the one that FAKE_NVML_MIG
// names is divided into two parts. Refuses everything before it is initialised, as NVML does.

#include <cstdio>
#include <cstdlib>

namespace {

constexpr int kSuccess = 0;
constexpr int kUninitialized = 1;
constexpr int kNotSupported = 3;
constexpr int kNotFound = 6;
constexpr unsigned kPlaces = 7;

bool is_open = false;
int devices[64];  // A handle is the address of its device's or part's number.
int parts[64 * kPlaces];

int number_in(const char* variable, int otherwise) {
  const char* value = std::getenv(variable);
  return value == nullptr ? otherwise : std::atoi(value);
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
  *count = kPlaces;
  return kSuccess;
}
int nvmlDeviceGetMigDeviceHandleByIndex(void* device, unsigned place, void** part) {
  if (place != 0 && place != 3) return kNotFound;
  const unsigned number = static_cast<unsigned>(*static_cast<int*>(device)) * kPlaces + place;
  parts[number] = static_cast<int>(number);
  *part = &parts[number];
  return kSuccess;
}
int nvmlDeviceGetUUID(void* part, char* uuid, unsigned length) {
  (void)std::snprintf(uuid, length, "MIG-%08d-0000", *static_cast<int*>(part));
  return kSuccess;
}
int nvmlDeviceGetHandleByUUID(const char*, void** device) {
  return nvmlDeviceGetHandleByIndex_v2(0, device);
}
int nvmlDeviceGetUtilizationRates(void*, unsigned* rates) {
  rates[0] = 87;
  rates[1] = 40;
  return is_open ? kSuccess : kUninitialized;
}
int nvmlDeviceGetMemoryInfo(void*, unsigned long long* bytes) {
  bytes[0] = 80ULL << 30;
  bytes[1] = 60ULL << 30;
  bytes[2] = 20ULL << 30;
  return kSuccess;
}
int nvmlDeviceGetTemperature(void*, int, unsigned* celsius) {
  *celsius = 61;
  return kSuccess;
}
}
