#pragma once
// The few calls of NVML that a node needs. The library belongs to the driver, so it is opened when it is there and
// never linked: https://docs.nvidia.com/deploy/nvml-api (names and numbers of its C interface are kept by NVIDIA).

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace sgd::process {

class Nvml {
 public:
  /// Nothing: the library is not there, lacks a call, or finds no driver.
  [[nodiscard]] static std::unique_ptr<Nvml> open(const std::string& library);
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  [[nodiscard]] unsigned count() const;
  /// Empty: the device cannot be had, as one without permission or one that is lost.
  [[nodiscard]] std::string uuid(unsigned index) const;
  /// UUIDs of the parts of device `index`; nothing: it is not divided. A divided one (MIG) may have no part yet: CUDA
  /// does not see it then.
  [[nodiscard]] std::optional<std::vector<std::string>> parts(unsigned index) const;

 private:
  Nvml(void* library, int (*shut_down)()) : library_(library), shut_down_(shut_down) {}

  /// A call of the library by its name; null: this version lacks it.
  template <typename Call>
  [[nodiscard]] Call* call(const char* name) const;

  void* library_;
  int (*shut_down_)();
};

}  // namespace sgd::process
