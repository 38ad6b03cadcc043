#pragma once
// Where the two processes of the bench are, and the stream that a checkpoint is compared with: as many bytes over one
// socket, in plain text or by OpenSSL's own TLS 1.3, blocking, one thread on each side.

#include <cstddef>
#include <functional>
#include <string>

namespace sgd::bench {

struct Wire {
  std::string host = "127.0.0.1";  ///< Of the coordinator's process.
  std::string node_netns;          ///< Name of the network namespace of the node's process; empty: the same one.
  std::string head_identity;       ///< Identity folders; empty: plain text.
  std::string node_identity;
};

/// Runs `child` in a process of its own, the node; `parent` meanwhile.
void in_two(const Wire& wire, const std::function<void()>& child, const std::function<void()>& parent);

/// Seconds for `bytes` from the node to the coordinator: from memory, or from `from`, into nothing, or into `to`,
/// synced.
double raw_stream(const Wire& wire, std::size_t bytes, const std::string& from, const std::string& to);

}  // namespace sgd::bench
