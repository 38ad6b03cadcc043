// What a rank does with its device, as far as a machine without one can tell: a device of LibTorch's private kind,
// whose events and streams are played here.
#include "worker/torch/device.hpp"

#include <catch2/catch.hpp>

#include <cmath>
#include <string>

#include <c10/core/Event.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "worker/torch/device_usage.hpp"

namespace sgd::worker {
namespace {

/// An event of it comes at the third look; who waits for it in the device's own way waits for nothing.
class PlayedDevice final : public c10::impl::NoOpDeviceGuardImpl<at::kPrivateUse1> {
 public:
  c10::DeviceIndex deviceCount() const noexcept override { return 0; }  // Nothing else is to use it.
  void record(void** event, const c10::Stream&, c10::DeviceIndex, c10::EventFlag) const override { *event = &looks; }
  bool queryEvent(void*) const override { return ++looks >= 3; }
  void synchronizeEvent(void*) const override { has_spun = true; }
  void destroyEvent(void*, c10::DeviceIndex) const noexcept override {}

  static inline int looks = 0;
  static inline bool has_spun = false;
};

}  // namespace

TEST_CASE("device: who waits for a mark looks at it again and again, and lets its core go between") {
  static const c10::impl::DeviceGuardImplRegistrar played(at::kPrivateUse1, new PlayedDevice);  // LibTorch keeps it.
  const at::Device place(at::kPrivateUse1, 0);
  DeviceMark mark(place);
  CHECK(mark.is_done());  // Of nothing.
  mark.record(c10::Stream(c10::Stream::DEFAULT, place));
  mark.wait();
  CHECK(PlayedDevice::looks == 3);
  CHECK_FALSE(PlayedDevice::has_spun);
}

TEST_CASE("device: a part of a divided GPU has a UUID of its own kind") {
  const unsigned char bytes[16] = {0x8f, 0x5c, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14};
  CHECK(uuid_text(bytes, false) == "GPU-8f5c0102-0304-0506-0708-090a0b0c0d0e");
  CHECK(uuid_text(bytes, true) == "MIG-8f5c0102-0304-0506-0708-090a0b0c0d0e");
}

TEST_CASE("device: of a part of a divided GPU is told what the driver knows") {
  const auto usage = [](const char* uuid) { return DeviceMonitor::open(uuid, FAKE_NVML)->now(); };
  REQUIRE(usage("MIG-00000003-0000"));
  CHECK(usage("MIG-00000003-0000")->memory_mib == 20480);
  CHECK(std::isnan(usage("MIG-00000003-0000")->busy_percent));
  CHECK(std::isnan(usage("MIG-00000003-0000")->celsius));
  CHECK(usage("")->busy_percent == 87);
  CHECK(usage("")->celsius == 61);
}

}  // namespace sgd::worker
