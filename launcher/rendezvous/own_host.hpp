#pragma once
// Whether a name is this machine's, and where others reach it.

#include <string>
#include <vector>

#include "launcher/net/address.hpp"

namespace sgd::rendezvous {

/// `host`: a name or an IP address. One that cannot be looked up is nobody's.
[[nodiscard]] bool is_own_host(const std::string& host);

/// Of the first machine, all of one family of addresses. Who dials a name tries all that it stands for, and gets
/// through where somebody listens: so all machines meet in the family that the first one has chosen.
struct HeadPlace {
  std::string listen;  ///< The IP address that the coordinator listens on: of all interfaces, or of loopback alone.
  /// Where ranks of other machines reach this one's: not the loopback address that some systems give to their own name.
  /// Empty: it is not known, or `head` is loopback, and its connection tells.
  std::string own;
};

/// Pure. `named`: the addresses that the name of `head` stands for; `own`: this machine's, the preferred ones first.
/// IPv4 where there is some: more networks have it, and what ranks are made of knows it better.
[[nodiscard]] HeadPlace place_of(const net::Address& head, const std::vector<std::string>& named,
                                 const std::vector<std::string>& own);

/// The same, of this machine as it is now: looks the name up.
[[nodiscard]] HeadPlace find_place(const net::Address& head);

}  // namespace sgd::rendezvous
