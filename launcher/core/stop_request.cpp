#include "launcher/core/stop_request.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "common/exit_codes.hpp"
#include "common/json/lenient.hpp"

namespace sgd::core {

Result<StopRequest> stop_request_of(const nlohmann::json& request) {
  constexpr double kLongestGraceS = 1e9;  // It is added to times.
  try {
    StopRequest stop;
    const std::string why = request.value("why", "cancelled");
    if (why == "signal") stop.why = StopRequest::Why::kSignal;
    if (why == "timeout") stop.why = StopRequest::Why::kTimeout;
    stop.signal = request.value("signal", 0);
    stop.at_once = request.value("at_once", false);
    if (request.contains("grace_s"))
      stop.grace = from_seconds(std::clamp(request.at("grace_s").get<double>(), 0.0, kLongestGraceS));
    return stop;
  } catch (const nlohmann::json::exception&) {
    return Error{fmt::format("bad request: {}", kWrongShape)};
  }
}

std::string state_of(const StopRequest& request) {
  switch (request.why) {
    case StopRequest::Why::kSignal:
      return "interrupted";
    case StopRequest::Why::kCancelled:
      return "cancelled";
    case StopRequest::Why::kTimeout:
      return "timed_out";
  }
  return "cancelled";
}

int exit_code_of(const StopRequest& request) {
  switch (request.why) {
    case StopRequest::Why::kSignal:
      return exit_code::kSignalBase + request.signal;
    case StopRequest::Why::kCancelled:
      return exit_code::kCancelled;
    case StopRequest::Why::kTimeout:
      return exit_code::kTimeout;
  }
  return exit_code::kCancelled;
}

std::string words(const StopRequest& request) {
  switch (request.why) {
    case StopRequest::Why::kSignal:
      return "stopped by signal " + signal_words(request.signal);
    case StopRequest::Why::kCancelled:
      return "stopped by request";
    case StopRequest::Why::kTimeout:
      return "stopped by --timeout";
  }
  return "stopped";
}

}  // namespace sgd::core
