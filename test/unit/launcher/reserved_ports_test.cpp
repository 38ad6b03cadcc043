// Ports that an agent keeps for ranks of a command.

#include "launcher/agent/reserved_ports.hpp"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <optional>
#include <set>
#include <string>

#include <fmt/format.h>
#include <catch2/catch.hpp>

#include "launcher/storage/file_owner.hpp"

using namespace sgd;
using agent::ReservedPorts;

namespace {

/// As a program on this machine would listen at `port`; an empty one: it is refused.
process::UniqueFd listening(int port, bool reuses, std::uint32_t address = INADDR_ANY) {
  process::UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int one = 1;
  if (reuses) REQUIRE(::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) == 0);
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(address);
  at.sin_port = htons(static_cast<std::uint16_t>(port));
  const bool listens =
      ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&at), sizeof at) == 0 && ::listen(fd.get(), 1) == 0;
  return listens ? std::move(fd) : process::UniqueFd();
}

}  // namespace

TEST_CASE("reserved ports: rank 0 gets it, and nobody else") {
  ReservedPorts ports;
  const auto reserved = ports.reserve("run", 1);
  REQUIRE(reserved.ok());
  const int port = reserved.value().front();
  CHECK_FALSE(listening(port, false));
  CHECK_FALSE(listening(port, false, INADDR_LOOPBACK));
  const process::UniqueFd rank = listening(port, true);
  CHECK(rank);
  CHECK_FALSE(listening(port, true));  // It is rank 0's now.
  ports.release("run");
  CHECK_FALSE(listening(port, true));
}

TEST_CASE("reserved ports: two runs never have the same") {
  ReservedPorts one;
  ReservedPorts other;
  std::set<int> seen;
  for (int run = 0; run < 50; ++run) {
    seen.insert(one.reserve("a" + std::to_string(run), 1).value().front());
    seen.insert(other.reserve("b" + std::to_string(run), 1).value().front());
  }
  CHECK(seen.size() == 100);
}

TEST_CASE("reserved ports: a port is held again unless somebody listens there") {
  int port = 0;
  {
    ReservedPorts life;
    port = life.reserve("run", 1).value().front();
  }
  ReservedPorts next;
  CHECK(next.hold("run", {port}).ok());
  CHECK_FALSE(listening(port, false));
  next.release("run");
  const process::UniqueFd rank = listening(port, true);
  REQUIRE(rank);
  const Status held = next.hold("run", {port});
  REQUIRE_FALSE(held.ok());
  CHECK(held.error().message.find("Address already in use") != std::string::npos);
}

TEST_CASE("reserved ports: what is released is anybody's") {
  ReservedPorts ports;
  const int port = ports.reserve("run", 1).value().front();
  ports.release("run");
  CHECK(listening(port, false));
}

TEST_CASE("reserved ports: several of a run, all different, and those that are free are held again") {
  std::vector<int> kept;
  {
    ReservedPorts life;
    kept = life.reserve("run", 3).value();
    REQUIRE(kept.size() == 3);
    CHECK(std::set<int>(kept.begin(), kept.end()).size() == 3);
    for (const int port : kept) CHECK_FALSE(listening(port, false));
  }
  const process::UniqueFd rank = listening(kept[1], true);
  REQUIRE(rank);
  ReservedPorts next;
  const Status held = next.hold("run", kept);
  REQUIRE_FALSE(held.ok());
  CHECK(held.error().message.find(std::to_string(kept[1])) != std::string::npos);
  CHECK_FALSE(listening(kept[0], false));
  CHECK_FALSE(listening(kept[2], false));
}

TEST_CASE("reserved ports: who else listens at one is told, until there are other ports") {
  constexpr uid_t kOrdinary = 65534;
  std::optional<storage::FileOwner> other;  // Root may listen at any port, and is nobody to be named.
  if (::geteuid() == 0) other = storage::FileOwner{kOrdinary, kOrdinary};
  const uid_t taker = other ? other->uid : ::geteuid();
  ReservedPorts ports;
  const int own = ports.reserve("own", 1).value().front();
  const int taken = ports.reserve("taken", 2).value().back();
  process::UniqueFd first;
  process::UniqueFd second;
  {
    const storage::ScopedFileOwner as(other);  // A socket is the user's whose files would be.
    first = listening(own, true);
    second = listening(taken, true, INADDR_LOOPBACK);
  }
  REQUIRE((first && second));
  CHECK(ports.taken_by("own", taker).empty());
  CHECK(ports.taken_by("none", taker + 1).empty());
  const std::string told =
      fmt::format("user {} of this node has taken port {}, which was reserved for its run (MASTER_PORT)", taker, taken);
  CHECK(ports.taken_by("taken", taker + 1) == told);
  second.reset();
  CHECK(ports.taken_by("taken", taker + 1) == told);
  REQUIRE(ports.reserve("taken", 2));
  CHECK(ports.taken_by("taken", taker + 1).empty());
}
