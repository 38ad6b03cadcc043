// The part of NVML that a node asks, of a machine with three GPUs. Refuses to count before it is initialised.

namespace {
bool is_open = false;
}

extern "C" {
int nvmlInit_v2() {
  is_open = true;
  return 0;
}
int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = 3;
  return is_open ? 0 : 1;
}
int nvmlShutdown() {
  is_open = false;
  return 0;
}
}
