#include "worker/torch/error_report.hpp"

#include <cxxabi.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <new>
#include <optional>
#include <string_view>
#include <typeinfo>

#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>

#include "common/exit_codes.hpp"
#include "common/json/nlohmann.hpp"
#include "worker/collective/device_gradients.hpp"
#include "worker/collective/factory.hpp"
#include "worker/link/client.hpp"
#include "worker/torch/device_error.hpp"
#include "worker/torch/errors.hpp"

namespace sgd::worker {
namespace {

constexpr std::size_t kMessageBytesMax = 8 << 10;  // A line of the link holds message and backtrace.
constexpr std::size_t kBacktraceBytesMax = 16 << 10;

std::string type_name(const std::exception& error) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> name(
      abi::__cxa_demangle(typeid(error).name(), nullptr, nullptr, &status), &std::free);
  return status == 0 && name ? name.get() : "exception";
}

std::string shortened(std::string text, std::size_t bytes_max) {
  if (text.size() > bytes_max) text.resize(bytes_max);
  return text;
}

Failure failure_of(int exit_code, const std::exception& error) {
  return {exit_code, type_name(error), shortened(error.what(), kMessageBytesMax), ""};
}

void write_error_file(const Failure& failure, const ReportTarget& target) {
  namespace fs = std::filesystem;
  const fs::path dir = fs::path(target.run_dir) / "errors";
  std::error_code ignored;
  fs::create_directories(dir, ignored);
  const double now_s = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  nlohmann::json body;
  nlohmann::json& message = body["message"];
  message["message"] = failure.type + ": " + failure.message;
  message["extraInfo"]["py_callstack"] = failure.backtrace;
  message["extraInfo"]["timestamp"] = std::to_string(static_cast<long long>(now_s));
  message["errorCode"] = failure.exit_code;
  // Renamed into place, so that nobody reads half of it.
  const fs::path path = dir / fmt::format("rank-{:04}.json", target.rank);
  const fs::path part = path.string() + ".part";
  {
    std::ofstream out(part);
    out << body.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << '\n';
  }
  fs::rename(part, path, ignored);
}

bool is_of_memory(const c10::Error& error) {
  const std::string_view words = error.what_without_backtrace();
  return dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr ||
         words.find("not enough memory") != std::string_view::npos ||
         words.find("CUBLAS_STATUS_ALLOC_FAILED") != std::string_view::npos;
}

/// A GPU that fails may first be noticed by a library that computes on it, whose error is of no kind of its own.
/// Whatever is waited for tells it again.
std::optional<DeviceError> fault_behind(const c10::Error& error, const Device& device) {
  const bool is_of_cuda = std::string_view(error.what_without_backtrace()).find("CUDA error") != std::string_view::npos;
  if (!is_of_cuda || !device.place().is_cuda()) return std::nullopt;
  try {
    c10::impl::VirtualGuardImpl(at::kCUDA).synchronizeDevice(device.place().index());
  } catch (const std::exception& again) {
    return device_error_of(again, device);
  }
  return std::nullopt;
}

/// Training is where an error is looked for first; of validation it is said.
std::string place_of(const ReportTarget& target) {
  if (target.link == nullptr || target.link->progress().phase != Progress::Phase::kValidate) return {};
  return fmt::format("in validation after step {}: ", target.link->progress().step.load());
}

}  // namespace

Failure describe(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const CollectiveError& e) {
    return failure_of(worker_exit::kPeerLost, e);
  } catch (const PeerFault& e) {
    return failure_of(worker_exit::kPeerLost, e);
  } catch (const CollectiveSetupError& e) {
    return failure_of(worker_exit::kConfiguration, e);
  } catch (const ConfigurationError& e) {
    return failure_of(worker_exit::kConfiguration, e);
  } catch (const DeviceFault& e) {
    return failure_of(worker_exit::kEnvironment, e);
  } catch (const EnvironmentError& e) {
    return failure_of(worker_exit::kEnvironment, e);
  } catch (const std::bad_alloc& e) {
    return {worker_exit::kEnvironment, type_name(e), "out of memory", ""};
  } catch (const c10::Error& e) {
    auto fault = device_error_of(e, Device::in_use());
    if (!fault) fault = fault_behind(e, Device::in_use());
    if (fault)
      return {fault->is_final ? worker_exit::kConfiguration : worker_exit::kEnvironment, type_name(e),
              shortened(fault->text, kMessageBytesMax), ""};
    Failure failure = failure_of(is_of_memory(e) ? worker_exit::kEnvironment : worker_exit::kUserError, e);
    failure.message = shortened(e.what_without_backtrace(), kMessageBytesMax);
    failure.backtrace = shortened(e.what(), kBacktraceBytesMax);
    return failure;
  } catch (const std::exception& e) {
    return failure_of(worker_exit::kUserError, e);
  } catch (...) {
    return {worker_exit::kUserError, "exception", "an exception that is no std::exception", ""};
  }
}

void report(const Failure& described, const ReportTarget& target) noexcept {
  try {
    Failure failure = described;
    failure.message.insert(0, place_of(target));
    // Without the rank, which the log's name and the launcher's prefix have: equal lines of all ranks are shown as one.
    std::fprintf(stderr, "sgd-worker: %s\n", failure.message.c_str());
    if (failure.exit_code == worker_exit::kPeerLost) return;  // Never the cause: its noise would hide the cause.
    if (target.link != nullptr) {
      link::Failed failed;
      failed.message = failure.message;
      failed.backtrace = failure.backtrace;
      (void)target.link->send(failed);  // Ignoring: the exit code says it, too.
    }
    if (!target.run_dir.empty() && target.rank >= 0) write_error_file(failure, target);
  } catch (...) {
    std::fputs("sgd-worker: the report of the error failed\n", stderr);
  }
}

}  // namespace sgd::worker
