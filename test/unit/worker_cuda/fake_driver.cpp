// The place of CUDA's driver library, which libraries beneath LibTorch load without beginning anything.
//
//   FAKE_CUDA_BEGUN=1   somebody has called cuInit() in this process

#include <cstdlib>

extern "C" int cuDeviceGetCount(int* count) {
  constexpr int kSuccess = 0, kNotInitialized = 3;
  const char* begun = std::getenv("FAKE_CUDA_BEGUN");
  if (begun == nullptr || begun[0] != '1') return kNotInitialized;
  *count = 1;
  return kSuccess;
}
