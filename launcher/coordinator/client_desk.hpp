#pragma once
// Serves clients: visitors of the kind "client", who ask and follow. JSON messages, one a frame; chunk frames carry
// bytes of followed files.
//
//   {"type":"client","version":V}                      -> {"type":"welcome","version":V}
//   {"type":"request","id":7,"request":"status",...}   -> {"type":"answer","id":7,"ok":true,...} as on control.sock
//   {"type":"follow","id":8,"run":R,"events":true,"metrics":true,"logs":true,"rank":1,"generation":2,
//    "offsets":{"events.jsonl":120},"until_now":false} -> an answer with the run's id, then, as files grow:
//      {"type":"part","id":8,"file":F,"offset":N}, and a chunk frame with the bytes
//   {"type":"got","id":8,"file":F,"offset":N}             what the client has; no more than a window goes ahead of it
//      {"type":"end","id":8,"outcome":{...}|null}         all has been got, and the run is over (or "until_now" was
//      asked)
// An error of one message answers that message; a message that is none ends the connection.

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "common/base/result.hpp"
#include "common/json/nlohmann.hpp"
#include "launcher/coordinator/requester.hpp"
#include "launcher/coordinator/run_follower.hpp"
#include "launcher/net/door.hpp"

namespace sgd::coordinator {

inline constexpr const char* kClientKind = "client";

class ClientDesk {
 public:
  static constexpr std::size_t kClientsMax = 4096;
  static constexpr std::size_t kFollowersMax = 16;  ///< Of one client.

  using Json = nlohmann::ordered_json;
  using Reply = std::function<void(Json answer)>;
  struct FollowedRun {
    RunId id;
    std::string directory;
    std::optional<Json> outcome;  ///< Of a run that is over and whose files are whole.
    std::string owner = {};
  };
  struct Service {
    /// Answers once, now or later. Keys of `request` may have any type and be absent.
    std::function<void(const Requester& who, const nlohmann::json& request, Reply reply)> answer;
    /// By id or a unique prefix; empty: the latest.
    std::function<Result<FollowedRun>(const std::string& run)> find;
    /// Told of who begins to read a run's logs. May be absent.
    std::function<void(const Requester& who, const FollowedRun& run)> on_read = {};
  };

  explicit ClientDesk(Service service);
  ~ClientDesk();

  /// As net::Door::OnVisitor.
  void take(std::unique_ptr<net::Visitor> visitor);
  /// `file`, relative to the run's folder, has more bytes.
  void on_grown(const RunId& run, const std::string& file);
  /// The run is over and its files are whole.
  void on_settled(const RunId& run, const Json& outcome);
  [[nodiscard]] std::size_t clients() const { return clients_.size(); }

 private:
  struct Follow {
    RunId run;
    std::unique_ptr<RunFollower> follower;
    std::optional<Json> outcome;
  };
  struct Client {
    std::unique_ptr<net::Visitor> visitor;
    Requester who;
    std::map<std::int64_t, Follow> follows;
  };

  void on_frame(std::uint64_t id, const Frame& frame);
  void on_request(std::uint64_t id, std::int64_t number, const nlohmann::json& message);
  void on_follow(std::uint64_t id, std::int64_t number, const nlohmann::json& message);
  void on_got(std::uint64_t id, std::int64_t number, const nlohmann::json& message);
  void end_if_done(std::uint64_t id, std::int64_t number);
  void answer(std::uint64_t id, std::int64_t number, Json answer);
  [[nodiscard]] Client* find(std::uint64_t id);

  Service service_;
  std::map<std::uint64_t, Client> clients_;
  std::uint64_t next_ = 1;
  std::shared_ptr<bool> is_here_ = std::make_shared<bool>(true);  ///< A reply may come when the desk is gone.
};

}  // namespace sgd::coordinator
