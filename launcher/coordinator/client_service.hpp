#pragma once
// Serves clients: sessions of the kind "client", which ask and follow. JSON messages, one a frame; chunk frames carry
// bytes of followed files.
//
//   {"type":"client","version":V}                      -> {"type":"welcome","version":V,"unix_s":S}, or
//      {"type":"refused","error":E}                          there are too many
//   {"type":"request","id":7,"request":"status",...}   -> {"type":"answer","id":7,"ok":true,...} as on control.sock
//   {"type":"follow","id":8,"run":R,"events":true,"metrics":true,"logs":true,"rank":1,"generation":2,
//    "offsets":{"events.jsonl":120},"until_now":false} -> an answer with the run's id, then, as files grow:
//      {"type":"part","id":8,"file":F,"offset":N}, and a chunk frame with the bytes
//   {"type":"got","id":8,"file":F,"offset":N}             what the client has; no more than a window goes ahead of it
//      {"type":"end","id":8,"outcome":{...}|null}         all has been got, and the run is over (or "until_now" was
//      asked)
//   {"type":"put","id":9,...}, and a chunk frame with bytes of a job's file: see job_files.hpp
// An error of one message answers that message; a message that is none ends the connection.

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <boost/asio/io_context.hpp>

#include "common/base/result.hpp"
#include "common/json/nlohmann.hpp"
#include "launcher/coordinator/requester.hpp"
#include "launcher/coordinator/run_follower.hpp"
#include "launcher/net/gateway.hpp"
#include "launcher/net/timer.hpp"

namespace sgd::coordinator {

inline constexpr const char* kClientKind = "client";

class ClientService {
 public:
  static constexpr std::size_t kClientsMax = 4096;
  /// Clients that were told that there are too many, and have not gone yet; a newer one takes the oldest one's place.
  static constexpr std::size_t kTurnedAwayMax = 64;
  /// Connections of one name, and bytes that all of them together have not taken: with more, one of them ends.
  static constexpr std::size_t kClientsOfOneMax = 512;
  static constexpr std::size_t kUntakenMax = 64 << 20;
  static constexpr std::size_t kFollowersMax = 16;   ///< Of one client.
  static constexpr std::size_t kUnansweredMax = 64;  ///< Requests of one client: others wait behind them.
  /// Of all clients of one name: answers of all names are made in one queue, which nobody may fill alone.
  static constexpr std::size_t kUnansweredOfOneMax = 64;
  static constexpr std::int64_t kPutBytesMax = 1 << 20;  ///< At a time.
  /// Who has more than that is not read for so long.
  static constexpr Duration kRest = std::chrono::milliseconds(2);
  /// What threads beside the event loop have to do for a request, about; counts as the client's work (net::WorkShare).
  static constexpr Duration kRequestWork = std::chrono::milliseconds(2);
  static constexpr Duration kStatusWork =
      std::chrono::microseconds(100);  ///< Whoever waits for a run asks twice a second.
  /// Who asks for what there is until now is told after so long that the disk does not answer.
  static constexpr Duration kDiskLimit = std::chrono::seconds(10);

  using Json = nlohmann::ordered_json;
  /// A JSON object, or the text of one: what is large is made beside the event loop.
  struct Answer {
    std::string text;
    Answer(const Json& json);
    static Answer of_text(std::string text);

   private:
    Answer() = default;
  };
  using Reply = std::function<void(Answer answer)>;
  /// Bytes of a file that a job brings.
  struct Put {
    std::string sha256;
    std::int64_t offset = 0;
    std::int64_t bytes = 0;
    bool is_last = false;
  };
  struct FollowedRun {
    RunId id;
    std::string directory;
    std::optional<Json> outcome;  ///< Of a run that is over and whose files are whole.
    std::string owner = {};
  };
  struct Handlers {
    /// Answers once, now or later. Keys of `request` may have any type and be absent.
    std::function<void(const Requester& who, const nlohmann::json& request, Reply reply)> answer;
    /// By id or a unique prefix; empty: the latest.
    std::function<Result<FollowedRun>(const std::string& run)> find;
    /// Told of who begins to read which files of a run. May be absent.
    std::function<void(const Requester& who, const FollowedRun& run, const FollowSelection& selection)> on_read = {};
    /// As `answer`, for bytes. May be absent.
    std::function<void(const Requester& who, const Put& put, std::string bytes, Reply reply)> put = {};
  };

  std::size_t clients_max = kClientsMax;
  std::size_t clients_of_one_max = kClientsOfOneMax;
  std::size_t untaken_max = kUntakenMax;
  Duration disk_limit = kDiskLimit;

  /// `io` must outlive it.
  ClientService(boost::asio::io_context& io, Handlers handlers);
  ~ClientService();

  /// As net::Gateway::OnSession.
  void take(std::unique_ptr<net::Session> session);
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
    bool has_limit = false;                 ///< It does not wait for ever for a disk that hangs.
    std::unique_ptr<net::Timer> look = {};  ///< At what the disk has not given, when nothing grows.
  };
  struct Client {
    std::unique_ptr<net::Session> session;
    Requester who;
    std::map<std::int64_t, Follow> follows;
    std::size_t unanswered = 0;
    std::optional<std::pair<std::int64_t, Put>> announced = {};  ///< Its bytes are the next frame; and its number.
  };

  void check_untaken(Client& client);
  [[nodiscard]] bool may_ask(const Client& client) const;
  void turn_away(std::unique_ptr<net::Session> session, const std::string& reason);
  [[nodiscard]] std::size_t clients_of(const std::string& name) const;
  void on_frame(std::uint64_t id, const Frame& frame);
  void on_request(std::uint64_t id, std::int64_t number, const nlohmann::json& message);
  void announce(std::uint64_t id, std::int64_t number, const nlohmann::json& message);
  void on_put(std::uint64_t id, std::int64_t number, const Put& put, std::string bytes);
  [[nodiscard]] bool refuse_busy(std::uint64_t id, std::int64_t number);
  [[nodiscard]] Reply reply_to(std::uint64_t id, std::int64_t number);
  void on_follow(std::uint64_t id, std::int64_t number, const nlohmann::json& message);
  void on_got(std::uint64_t id, std::int64_t number, const nlohmann::json& message);
  void end_if_done(std::uint64_t id, std::int64_t number);
  void settle(std::uint64_t id, std::int64_t number);
  void watch(std::uint64_t id, std::int64_t number);
  void answer(std::uint64_t id, std::int64_t number, const Answer& answer);
  [[nodiscard]] Client* find(std::uint64_t id);

  boost::asio::io_context& io_;
  Handlers handlers_;
  storage::FileThread files_;  ///< Of what is followed.
  std::map<std::uint64_t, Client> clients_;
  std::map<std::uint64_t, std::unique_ptr<net::Session>> turned_away_;
  std::uint64_t next_ = 1;
  std::shared_ptr<bool> is_here_ = std::make_shared<bool>(true);  ///< A reply may come when the service is gone.
};

}  // namespace sgd::coordinator
