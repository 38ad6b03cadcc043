#include "launcher/agent/agent_books.hpp"

#include "common/messages/state_codec.hpp"

namespace sgd::codec {

template <>
inline constexpr auto kMessage<agent::KeptKeeper> = message("", required("number", &agent::KeptKeeper::number),
                                                            required("was_started", &agent::KeptKeeper::was_started),
                                                            required("received", &agent::KeptKeeper::received),
                                                            required("sent", &agent::KeptKeeper::sent),
                                                            required("kept", &agent::KeptKeeper::kept));
template <>
inline constexpr auto kMessage<agent::KeptLink> =
    message("", required("run", &agent::KeptLink::run), required("token", &agent::KeptLink::token),
            required("peer_pid", &agent::KeptLink::peer_pid), required("returns", &agent::KeptLink::returns),
            required("is_paused", &agent::KeptLink::is_paused), required("received", &agent::KeptLink::received),
            required("sent", &agent::KeptLink::sent), required("kept", &agent::KeptLink::kept));
template <>
inline constexpr auto kMessage<agent::AgentBooks> = message("",
                                                            required("keepers_made", &agent::AgentBooks::keepers_made),
                                                            required("next_link", &agent::AgentBooks::next_link),
                                                            required("keepers", &agent::AgentBooks::keepers),
                                                            required("links", &agent::AgentBooks::links),
                                                            required("link_paths", &agent::AgentBooks::link_paths),
                                                            required("remotes", &agent::AgentBooks::remotes));

}  // namespace sgd::codec

namespace sgd::agent {

storage::StateRow encode(const AgentBooks& books) {
  return {"books", "", codec::print(codec::write(books))};
}

Result<AgentBooks> decode_books(const storage::StateRow& row) {
  const auto json = codec::parse_object(row.text, codec::kDepthMax);
  if (!json) return Error{"books: " + json.error().message};
  AgentBooks books;
  if (const Status status = codec::read(json.value(), "books", books); !status) return status.error();
  return books;
}

}  // namespace sgd::agent
