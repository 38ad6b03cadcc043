#pragma once
// control.sock of a run: another terminal asks, this process answers. One request a line, one
// answer a line, JSON both; the owner of the run and root only. A client that is silent or
// sends too much is dropped.
//
//   {"request":"status"}                              -> {"ok":true,"status":{...}}
//   {"request":"stop","grace_s":30,"at_once":false}   -> {"ok":true}
//   {"request":"nodes"}                               -> {"ok":true,"nodes":[{"node":"localhost","slots":4,"used":2}]}
//   {"request":"set_slots","slots":4,"node":"..."}    -> as nodes; without "node": the only one
//   anything else                                     -> {"ok":false,"kind":"request","error":"..."}
// `kind` says what is wrong: "request", "value", "node" (no such one), "state".

#include <functional>
#include <optional>
#include <string>

#include <boost/asio/io_context.hpp>

#include "common/base/result.hpp"
#include "common/json/nlohmann.hpp"
#include "launcher/process/accept_loop.hpp"

namespace sgd::coordinator {

inline constexpr std::size_t kControlLineBytesMax = 64 << 10;

class ControlServer {
 public:
  using Answer = std::function<nlohmann::ordered_json(const nlohmann::json& request)>;

  ControlServer(boost::asio::io_context& io, Answer answer);
  /// Listens at `path`, which must not exist, in a folder that only the owner can enter.
  [[nodiscard]] Status listen(const std::string& path);
  void stop();

 private:
  boost::asio::io_context& io_;
  Answer answer_;
  std::optional<process::AcceptLoop> accepts_;
};

}  // namespace sgd::coordinator
