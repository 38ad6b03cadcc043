#include "launcher/core/stop_request.hpp"

#include "common/exit_codes.hpp"

namespace sgd::core {

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
