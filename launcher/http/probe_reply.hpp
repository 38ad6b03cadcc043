#pragma once
// What the probes answer: a whole HTTP response from a request, as text. No socket and no parsing here.
//   /metrics  the daemon's figures for Prometheus      /healthz  200 while it works, else 503 with the reason
//   /readyz   200 when it can be given work, else 503 with the reason      anything else  404; not GET or
//   HEAD  405

#include <functional>
#include <string>
#include <string_view>

#include "launcher/http/request_reader.hpp"

namespace sgd::http {

struct Health {
  bool is_alive = true;   ///< False: only a restart helps.
  bool is_ready = false;  ///< It can be given work.
  std::string reason;     ///< In words, when one of the two is false.
};

struct ProbeSources {
  std::function<std::string()> metrics;  ///< Prometheus' text format.
  std::function<Health()> health;
};

/// Answer to a request; `keep_alive` says whether another one may follow on the connection.
[[nodiscard]] std::string reply_to(const Request& request, const ProbeSources& sources, bool keep_alive);
/// Answer to bytes that are no request that is served here; the connection ends after it.
[[nodiscard]] std::string refusal(int status, std::string_view reason);

}  // namespace sgd::http
