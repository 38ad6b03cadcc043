#pragma once
// Who keeps Python interpreters ready between runs ("sgd-launch warm"): what is said between it, those who use it, and
// the keepers that it holds ready. JSON frames over Unix sockets.
//
//   launcher ──Seek──────────────────► warm server
//            ◄──Found, or Refused──────
//            ──Take, 4 descriptors──► warm server ──Adopt, the same 4──► spare keeper      (Prepare came before)
//            ◄──Taken, or Refused───              ◄──Ready───────────────
//            ◄══ the keeper's own protocol (keeper.hpp) over the fourth descriptor ════════

#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "common/base/result.hpp"
#include "common/json/nlohmann.hpp"
#include "common/messages/keeper.hpp"

namespace sgd::warm {

/// What a process begins with, and which fork server it wants.
struct Setting {
  std::map<std::string, std::string> environment = {};
  std::string workdir = {};
  nlohmann::json server = {};  ///< See with_server().
};
[[nodiscard]] Setting with_server(Setting setting, const keeper::StartForkServer& server);
[[nodiscard]] Result<keeper::StartForkServer> server_of(const Setting& setting);

// ---- to the warm server ----

/// Is there one for such a run? Asked first, without descriptors: a server that stands still would hold the run's
/// standard streams open, and whoever reads them would wait for ever. Answered by Found or Refused.
struct Seek {
  Setting setting;
};
/// For a run that starts now. Descriptors: standard input, output and error, and the keeper's end of a socket pair.
struct Take {
  Setting setting;
};
/// Holds a keeper ready for runs like this one. Answered by Held.
struct Keep {
  Setting setting;
  std::string name;   ///< For people.
  double idle_s = 0;  ///< Without a run for so long, the server ends; 0: as before.
};
/// Answered by Held.
struct Look {};
/// Ends the server and what it holds, not the runs that have taken a keeper. Answered by Held, of what there was.
struct End {};
using ToServer = std::variant<Take, Keep, Look, End, Seek>;

// ---- from it ----

/// It may be taken now.
struct Found {};
struct Taken {
  int pid = 0;  ///< The keeper's.
};
struct Refused {
  std::string reason;
  bool is_near = false;  ///< One of the same interpreter is there, but for the reason.
};
struct Spare {
  std::string name;
  std::string state;        ///< starting, ready, resting (a run has taken one), failed.
  std::string reason = {};  ///< Of failed.
  int pid = 0;              ///< The keeper's.
  double start_s = 0;       ///< What its imports took.
  std::int64_t bytes = 0;   ///< Of memory that nobody else has.
  int runs = 0;             ///< That have taken one.
};
struct Held {
  std::vector<Spare> spares;
  int pid = 0;  ///< The server's.
  double idle_s = 0;
};
using FromServer = std::variant<Taken, Refused, Held, Found>;

// ---- to a spare keeper, and from it ----

struct Prepare {
  Setting setting;
};
/// With the descriptors of Take. After Ready without a reason the keeper is its taker's.
struct Adopt {
  Setting setting;
};
using ToSpare = std::variant<Prepare, Adopt>;
struct Ready {
  std::string reason = {};  ///< Why it cannot; it ends then.
};
using FromSpare = std::variant<Ready>;

[[nodiscard]] std::string encode(const ToServer& message);  ///< A whole frame, as all of them.
[[nodiscard]] std::string encode(const FromServer& message);
[[nodiscard]] std::string encode(const ToSpare& message);
[[nodiscard]] std::string encode(const FromSpare& message);
[[nodiscard]] Result<ToServer> decode_to_server(std::string_view json);
[[nodiscard]] Result<FromServer> decode_from_server(std::string_view json);
[[nodiscard]] Result<ToSpare> decode_to_spare(std::string_view json);
[[nodiscard]] Result<FromSpare> decode_from_spare(std::string_view json);

}  // namespace sgd::warm
