// In which family of addresses machines meet at a name, and what the first one listens on.

#include "launcher/rendezvous/own_host.hpp"

#include <string>
#include <vector>

#include <catch2/catch.hpp>

using namespace sgd;

TEST_CASE("own host: where the first machine listens and is reached is of one family, IPv4 where there is some") {
  using Texts = std::vector<std::string>;
  const Texts own = {"10.0.0.2", "fd00::2", "127.0.0.1", "::1", "fe80::2"};
  struct Row {
    std::string head;
    Texts named;
    Texts own;
    std::string listen;
    std::string reached;
  };
  const Row rows[] = {
      {"four", {"10.0.0.2"}, own, "0.0.0.0", "10.0.0.2"},
      {"six", {"fd00::2"}, own, "::", "fd00::2"},
      {"both", {"fd00::2", "10.0.0.2"}, own, "0.0.0.0", "10.0.0.2"},  // As getaddrinfo() orders them.
      {"fd00::2", {"fd00::2"}, own, "::", "fd00::2"},
      {"10.0.0.2", {"10.0.0.2"}, own, "0.0.0.0", "10.0.0.2"},
      // Of this machine alone, by its name.
      {"localhost", {"::1", "127.0.0.1"}, own, "127.0.0.1", ""},
      {"localhost", {"::1"}, own, "::1", ""},
      {"localhost", {}, own, "127.0.0.1", ""},
      {"127.0.0.5", {"127.0.0.5"}, own, "127.0.0.5", ""},
      {"::1", {"::1"}, own, "::1", ""},
      // A system's loopback address of its own name is not where others reach it.
      {"debian", {"127.0.1.1"}, own, "0.0.0.0", "10.0.0.2"},
      {"debian", {"127.0.1.1", "fd00::2"}, own, "::", "fd00::2"},
      // The name of something in front of this machine.
      {"service", {"192.0.2.7"}, own, "0.0.0.0", "10.0.0.2"},
      {"service", {"2001:db8::7"}, own, "::", "fd00::2"},
      {"service", {"2001:db8::7"}, {"10.0.0.2", "fe80::2"}, "::", ""},
      // One that is not known yet.
      {"later", {}, own, "0.0.0.0", "10.0.0.2"},
      {"later", {}, {}, "0.0.0.0", ""},
  };
  for (const Row& row : rows) {
    INFO(row.head << " with " << row.named.size() << " addresses");
    const rendezvous::HeadPlace place = rendezvous::place_of({row.head, 29500}, row.named, row.own);
    CHECK(place.listen == row.listen);
    CHECK(place.own == row.reached);
  }
}

TEST_CASE("own host: loopback is this machine, by its name or its address") {
  CHECK(rendezvous::is_own_host("localhost"));
  CHECK(rendezvous::is_own_host("127.0.0.1"));
  CHECK_FALSE(rendezvous::is_own_host("192.0.2.1"));
  CHECK(rendezvous::find_place({"127.0.0.1", 29500}).listen == "127.0.0.1");
}
