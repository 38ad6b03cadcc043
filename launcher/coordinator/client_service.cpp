#include "launcher/coordinator/client_service.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "common/json/lenient.hpp"
#include "common/messages/codec.hpp"
#include "common/messages/transfer.hpp"
#include "launcher/process/clock.hpp"

namespace sgd::coordinator {
namespace {

using Json = ClientService::Json;

std::string dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

/// `rest`: the text of a JSON object. What is too long for a client is refused, in its place.
void send(net::Session& to, const char* type, std::int64_t id, std::string_view rest) {
  const auto whole = [type, id](std::string_view object) {
    return fmt::format("{{\"type\":\"{}\",\"id\":{}{}{}", type, id, object.size() > 2 ? "," : "", object.substr(1));
  };
  const std::string text = whole(rest);
  if (to.send(FrameKind::kJson, text)) return;
  const std::string instead =
      whole(dump(refused("request", fmt::format("the answer has {} bytes; a client is sent at most {}: ask for less",
                                                text.size(), kMessageBytesMax))));
  if (const Status sent = to.send(FrameKind::kJson, instead); !sent) to.close(sent.error().message);
}

FollowSelection selection_of(const nlohmann::json& message) {
  FollowSelection selection;
  selection.events = message.value("events", false);
  selection.metrics = message.value("metrics", false);
  selection.logs = message.value("logs", false);
  if (message.contains("rank")) selection.rank = message.at("rank").get<Rank>();
  if (message.contains("generation")) selection.generation = message.at("generation").get<Generation>();
  const std::string checkpoint = message.value("checkpoint", "");
  if (transfer::check_checkpoint(checkpoint).ok()) selection.checkpoint = checkpoint;
  return selection;
}

}  // namespace

ClientService::Answer::Answer(const Json& json) : text(dump(json)) {}

ClientService::Answer ClientService::Answer::of_text(std::string text) {
  Answer answer;
  answer.text = std::move(text);
  return answer;
}

ClientService::ClientService(boost::asio::io_context& io, Handlers handlers)
    : io_(io), handlers_(std::move(handlers)), files_(io) {}

ClientService::~ClientService() {
  *is_here_ = false;
}

void ClientService::take(std::unique_ptr<net::Session> session) {
  if (clients_.size() >= clients_max)
    return turn_away(std::move(session), fmt::format("{} clients are connected", clients_.size()));
  Requester who = requester_of(*session);
  if (clients_of(who.name) >= clients_of_one_max)
    return turn_away(std::move(session), fmt::format("{} clients of {} are connected", clients_of_one_max, who.name));
  const std::uint64_t id = next_++;
  net::Session& client = *session;
  clients_[id].who = std::move(who);
  clients_[id].session = std::move(session);
  const Json welcome = {{"type", "welcome"}, {"version", SGD_VERSION}, {"unix_s", process::unix_seconds()}};
  (void)client.send(FrameKind::kJson, dump(welcome));  // Ignoring: a connection that has ended says so itself.
  client.start({[this, id](const Frame& frame) { on_frame(id, frame); },
                [this, id](const std::string&) { clients_.erase(id); }});
}

/// Nobody, where no name is proved.
std::size_t ClientService::clients_of(const std::string& name) const {
  if (name.empty()) return 0;
  return static_cast<std::size_t>(
      std::count_if(clients_.begin(), clients_.end(), [&](const auto& one) { return one.second.who.name == name; }));
}

bool ClientService::may_ask(const Client& client) const {
  if (client.unanswered >= kUnansweredMax) return false;
  if (client.who.name.empty()) return true;
  std::size_t unanswered = 0;
  for (const auto& [id, one] : clients_)
    if (one.who.name == client.who.name) unanswered += one.unanswered;
  return unanswered < kUnansweredOfOneMax;
}

/// What one connection does not take has a limit of its own; with hundreds of them that is no limit.
void ClientService::check_untaken(Client& client) {
  constexpr std::size_t kLittle = 1 << 20;
  if (client.who.name.empty() || client.session->unsent() < kLittle) return;
  std::size_t untaken = 0;
  for (const auto& [id, one] : clients_)
    if (one.who.name == client.who.name) untaken += one.session->unsent();
  if (untaken > untaken_max)
    client.session->close(fmt::format("clients of {} do not read: {} bytes wait for them", client.who.name, untaken),
                          net::RefusalKind::kSlow);
}

/// It goes when it has read why, or when others need its place.
void ClientService::turn_away(std::unique_ptr<net::Session> session, const std::string& reason) {
  if (turned_away_.size() >= kTurnedAwayMax) turned_away_.erase(turned_away_.begin());
  const std::uint64_t id = next_++;
  net::Session& client = *session;
  turned_away_[id] = std::move(session);
  const Json why = {{"type", "refused"}, {"error", reason + ": try again later"}};
  (void)client.send(FrameKind::kJson, dump(why));  // Ignoring: a connection that has ended says so itself.
  client.start({[](const Frame&) {}, [this, id](const std::string&) { turned_away_.erase(id); }});
}

ClientService::Client* ClientService::find(std::uint64_t id) {
  const auto place = clients_.find(id);
  return place == clients_.end() ? nullptr : &place->second;
}

void ClientService::on_frame(std::uint64_t id, const Frame& frame) {
  Client* client = find(id);
  if (client == nullptr) return;
  if (client->announced) {
    const auto [put_number, put] = *std::exchange(client->announced, std::nullopt);
    if (frame.kind != FrameKind::kChunk || static_cast<std::int64_t>(frame.bytes.size()) != put.bytes)
      return client->session->close("the bytes that were announced do not follow", net::RefusalKind::kBadMessage);
    return on_put(id, put_number, put, frame.bytes);
  }
  const auto parsed = frame.kind == FrameKind::kJson ? codec::parse_object(frame.bytes, codec::kDepthMax)
                                                     : Result<nlohmann::json>(Error{"it is a chunk"});
  if (!parsed)
    return client->session->close("a message of a client is no JSON object: " + parsed.error().message,
                                  net::RefusalKind::kBadMessage);
  const nlohmann::json& message = parsed.value();
  // Whatever a client writes: a value of a wrong type is its error, not ours.
  std::int64_t number = 0;
  try {
    number = message.at("id").get<std::int64_t>();
    const std::string type = message.at("type").get<std::string>();
    if (type == "request") return on_request(id, number, message);
    if (type == "follow") return on_follow(id, number, message);
    if (type == "got") return on_got(id, number, message);
    if (type == "put") return announce(id, number, message);
    answer(id, number, refused("request", fmt::format("unknown message \"{}\"", type)));
  } catch (const nlohmann::json::exception&) {
    answer(id, number, refused("request", fmt::format("bad request: {}", kWrongShape)));
  }
}

void ClientService::on_request(std::uint64_t id, std::int64_t number, const nlohmann::json& message) {
  if (refuse_busy(id, number)) return;
  const Client& client = *find(id);
  const auto what = message.find("request");
  client.session->charge(what != message.end() && *what == "status" ? kStatusWork : kRequestWork);
  handlers_.answer(client.who, message, reply_to(id, number));
}

bool ClientService::refuse_busy(std::uint64_t id, std::int64_t number) {
  Client& client = *find(id);
  if (may_ask(client)) return false;
  client.session->rest(kRest);
  answer(id, number,
         refused("busy", fmt::format("{} requests of {} have no answer yet: wait for one",
                                     client.unanswered >= kUnansweredMax ? kUnansweredMax : kUnansweredOfOneMax,
                                     client.who.name.empty() ? "this client" : client.who.name)));
  return true;
}

ClientService::Reply ClientService::reply_to(std::uint64_t id, std::int64_t number) {
  ++find(id)->unanswered;
  // Whatever becomes of the reply: its place is free when nobody holds it any more.
  const std::shared_ptr<void> place(nullptr, [this, id, is_here = is_here_](void*) {
    Client* asks = *is_here ? find(id) : nullptr;
    if (asks != nullptr) --asks->unanswered;
  });
  return [this, id, number, is_here = is_here_, place](const Answer& reply) {
    if (*is_here) answer(id, number, reply);
  };
}

// ---- files of jobs ----

/// What may throw comes before anything is kept.
void ClientService::announce(std::uint64_t id, std::int64_t number, const nlohmann::json& message) {
  const Put put{message.at("sha256").get<std::string>(), message.at("offset").get<std::int64_t>(),
                message.at("bytes").get<std::int64_t>(), message.value("last", false)};
  Client& client = *find(id);
  if (put.bytes < 0 || put.bytes > kPutBytesMax)
    return client.session->close("a chunk of an impossible size", net::RefusalKind::kBadMessage);
  if (put.bytes == 0) return on_put(id, number, put, {});
  client.announced.emplace(number, put);
}

void ClientService::on_put(std::uint64_t id, std::int64_t number, const Put& put, std::string bytes) {
  if (refuse_busy(id, number)) return;
  const Client& client = *find(id);
  client.session->charge(kStatusWork);
  if (!handlers_.put) return answer(id, number, refused("request", "no files are taken here"));
  handlers_.put(client.who, put, std::move(bytes), reply_to(id, number));
}

void ClientService::answer(std::uint64_t id, std::int64_t number, const Answer& answer) {
  Client* client = find(id);
  if (client == nullptr) return;
  send(*client->session, "answer", number, answer.text);
  check_untaken(*client);
}

void ClientService::on_follow(std::uint64_t id, std::int64_t number, const nlohmann::json& message) {
  Client* client = find(id);
  if (client->follows.size() >= kFollowersMax || client->follows.contains(number))
    return answer(id, number, refused("request", fmt::format("a client follows at most {} runs", kFollowersMax)));
  Result<FollowedRun> run = handlers_.find(message.value("run", ""));
  if (!run) return answer(id, number, refused("run", run.error().message));
  const auto offsets = message.value("offsets", std::map<std::string, std::uint64_t>());
  const FollowSelection selection = selection_of(message);  // What may throw comes before anything is kept.
  const auto send_part = [this, id, number](const std::string& file, std::uint64_t offset, const std::string& bytes) {
    Client* to = find(id);
    if (to == nullptr) return;
    const Json part = {{"file", file}, {"offset", offset}};
    send(*to->session, "part", number, dump(part));
    (void)to->session->send(FrameKind::kChunk, bytes);
    check_untaken(*to);
  };
  if (handlers_.on_read) handlers_.on_read(client->who, run.value(), selection);
  Follow& follow = client->follows[number];
  follow.run = run.value().id;
  follow.outcome = run.value().outcome;
  follow.follower = std::make_unique<RunFollower>(files_, run.value().directory, selection, offsets, send_part,
                                                  [this, id, number] { end_if_done(id, number); });
  answer(id, number, Json{{"ok", true}, {"run", follow.run}, {"run_dir", run.value().directory}});
  follow.has_limit = follow.outcome || message.value("until_now", false);
  if (!follow.has_limit) return follow.follower->begin();
  settle(id, number);
  end_if_done(id, number);  // Where it follows nothing at all.
}

/// Nothing grows any more.
void ClientService::settle(std::uint64_t id, std::int64_t number) {
  Follow& follow = find(id)->follows.at(number);
  if (!follow.look) {
    follow.look = std::make_unique<net::Timer>(io_);
    watch(id, number);
  }
  follow.follower->settle();
}

void ClientService::watch(std::uint64_t id, std::int64_t number) {
  net::Timer& timer = *find(id)->follows.at(number).look;
  timer.after(disk_limit / 4, [this, id, number] {
    Client* client = find(id);
    if (client == nullptr || !client->follows.contains(number)) return;
    const Follow& follow = client->follows.at(number);
    const std::string trouble = follow.follower->trouble();
    const bool is_late = follow.follower->unanswered_for(process::monotonic_now()) >= disk_limit;
    if (!is_late || (trouble.empty() && !follow.has_limit)) {
      follow.follower->try_again();
      return watch(id, number);
    }
    client->follows.erase(number);
    answer(
        id, number,
        refused("state", trouble.empty() ? fmt::format("the disk has not answered for {}", format_duration(disk_limit))
                                         : trouble));
  });
}

void ClientService::on_got(std::uint64_t id, std::int64_t number, const nlohmann::json& message) {
  Client* client = find(id);
  const auto follow = client->follows.find(number);
  if (follow == client->follows.end()) return;
  follow->second.follower->acknowledge(message.at("file").get<std::string>(),
                                       message.at("offset").get<std::uint64_t>());
  end_if_done(id, number);
}

void ClientService::end_if_done(std::uint64_t id, std::int64_t number) {
  Client* client = find(id);
  if (client == nullptr) return;
  const auto follow = client->follows.find(number);
  if (follow == client->follows.end() || !follow->second.follower->is_done()) return;
  const Json end = {{"outcome", follow->second.outcome.value_or(Json())}};
  send(*client->session, "end", number, dump(end));
  client->follows.erase(follow);
}

void ClientService::on_grown(const RunId& run, const std::string& file) {
  for (auto& [id, client] : clients_)
    for (auto& [number, follow] : client.follows)
      if (follow.run == run) follow.follower->on_grown(file);
}

void ClientService::on_settled(const RunId& run, const Json& outcome) {
  std::vector<std::pair<std::uint64_t, std::int64_t>> settled;
  for (auto& [id, client] : clients_) {
    for (auto& [number, follow] : client.follows) {
      if (follow.run != run) continue;
      follow.outcome = outcome;
      settle(id, number);
      settled.emplace_back(id, number);
    }
  }
  for (const auto& [id, number] : settled) end_if_done(id, number);
}

}  // namespace sgd::coordinator
