#include "launcher/cli/several_nodes.hpp"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "common/exit_codes.hpp"
#include "common/job/cluster_checks.hpp"
#include "common/json/lenient.hpp"
#include "launcher/cli/cluster_line.hpp"
#include "launcher/cli/member_name.hpp"
#include "launcher/cli/passing_folder.hpp"
#include "launcher/cli/plain_verb.hpp"
#include "launcher/cli/program_files.hpp"
#include "launcher/cli/remote_run.hpp"
#include "launcher/cli/run_naming.hpp"
#include "launcher/cli/start_checks.hpp"
#include "launcher/cli/verbs.hpp"
#include "launcher/process/clock.hpp"
#include "launcher/rendezvous/daemon_children.hpp"
#include "launcher/rendezvous/membership.hpp"
#include "launcher/rendezvous/own_host.hpp"
#include "launcher/rendezvous/secret.hpp"

namespace sgd::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr Duration kAskLimit = std::chrono::seconds(15);
constexpr Duration kDialLimit = std::chrono::seconds(2);  ///< Of a coordinator that may not be there yet.
constexpr Duration kQuiet = std::chrono::seconds(1);      ///< What takes no longer is not told.
constexpr Duration kLook = std::chrono::milliseconds(50);
constexpr Duration kLookAtRun = std::chrono::milliseconds(200);
constexpr Duration kSayAgain = std::chrono::seconds(10);
constexpr Duration kHeadLostLimit = std::chrono::seconds(15);
constexpr Duration kLingerLimit = std::chrono::seconds(5);
constexpr Duration kLeaveLimit = std::chrono::seconds(60);

/// A launcher's part in a run of several.
class Member {
 public:
  Member(const RunOptions& options, const rendezvous::NodesPlan& plan, job::JobSpec job, int workers_here)
      : options_(options), plan_(plan), job_(std::move(job)), workers_here_(workers_here) {}

  [[nodiscard]] int run() {
    is_head_ = plan_.rank ? *plan_.rank == 0 : rendezvous::is_own_host(plan_.head.host);
    if (const Status begun = begin(); !begun) return refuse(exit_code::kUsage, begun.error().message);
    if (!is_head_) return take_part();
    const std::optional<int> ended = gather();
    if (ended) return *ended;
    if (!is_head_) return take_part();
    RemoteRun run(options_, plan_.head, tls_);
    run.on_run_dir = [this](const std::string& run_dir) {
      if (const Status noted = note_coordinator(run_dir, plan_.head, folders_.client); !noted)
        say("other terminals cannot reach this run: " + noted.error().message);
    };
    const int code = run.submit({{"job", job_.resolved}}, false);
    linger();
    return code;
  }

 private:
  [[nodiscard]] Status begin();
  [[nodiscard]] Status start_daemons();
  [[nodiscard]] std::string refused_twin() const;
  [[nodiscard]] bool gives_way(const std::string& why) const;
  [[nodiscard]] std::optional<int> gather();
  [[nodiscard]] std::optional<int> look_for_nodes(ClusterLine& line);
  [[nodiscard]] int take_part();
  [[nodiscard]] std::optional<int> follow_run(ClusterLine& line);
  [[nodiscard]] std::optional<int> on_lost(const std::string& why);
  [[nodiscard]] std::optional<int> on_signal(ClusterLine& line, int signal);
  [[nodiscard]] int leave(ClusterLine& line, int signal);
  void linger();
  [[nodiscard]] static std::set<std::string> connected(const Json& answer);
  [[nodiscard]] std::string missing(const std::set<std::string>& there) const;

  void say(const std::string& text) const {
    if (!options_.quiet) fmt::print(stderr, "sgd-launch: {}\n", text);
  }
  /// At most once in kSayAgain, unless it is new.
  void say_waiting(const std::string& what, const std::string& so_far);
  [[nodiscard]] Duration waited() const { return process::monotonic_now() - begun_at_; }

  const RunOptions& options_;
  const rendezvous::NodesPlan& plan_;
  job::JobSpec job_;
  int workers_here_;
  bool is_head_ = false;
  std::string node_;
  PassingFolder folder_{"sgd-nodes"};
  rendezvous::Folders folders_;
  std::shared_ptr<const net::TlsContext> tls_;
  std::optional<rendezvous::DaemonChildren> children_;
  TimePoint begun_at_ = process::monotonic_now();
  TimePoint said_at_{};
  std::string said_;
  std::optional<TimePoint> last_call_;  ///< Of the first machine: it has enough, and waits so long for more.
  std::string run_;                     ///< Of the others: once there is one.
  bool was_there_ = false;
  TimePoint lost_at_{};  ///< Of the others: since when the first machine does not answer; none: it does.
  int signals_ = 0;
  bool is_serving_ = false;  ///< Of the first machine: its coordinator has the port.
};

Status Member::begin() {
  std::string secret = rendezvous::kNoSecret;
  if (!plan_.is_open) {
    const bool is_named = !plan_.secret_file.empty();
    const std::string file = is_named ? plan_.secret_file : rendezvous::usual_secret_file();
    const bool may_make = !is_named && plan_.shares_home && !file.empty();
    Result<std::string> read = may_make ? rendezvous::read_or_make_secret(file) : rendezvous::read_secret(file);
    if (!read)
      return Error{fmt::format(
          "{}. The machines of a run know each other by a secret that is the same on all of them: copy one there, and "
          "name "
          "it with --rdzv-secret-file FILE (made with: (umask 077; head -c 32 /dev/urandom | base64 > FILE)); or say "
          "--rdzv-insecure where nobody else reaches {}",
          read.error().message, to_text(plan_.head))};
    secret = read.value();
  }
  if (folder_.path().empty()) return Error{"no folder for temporary files can be made: set TMPDIR"};
  node_ = rendezvous::node_name(plan_.rank, is_head_, host_name(), ::getpid());
  folders_ = rendezvous::Folders::below(folder_.path() + "/" + node_);
  auto tls = rendezvous::make_identities(folders_, secret, plan_.id, node_, is_head_);
  if (!tls) return tls.error();
  tls_ = std::move(tls).value();
  return start_daemons();
}

Status Member::start_daemons() {
  children_.emplace();
  const std::string program = own_program();
  const auto log = [this](const char* name) { return fmt::format("{}/{}.log", folder_.path(), name); };
  if (is_head_) {
    const bool is_ipv6 = plan_.head.host.find(':') != std::string::npos;
    const net::Address listen{net::is_loopback(plan_.head) ? plan_.head.host
                              : is_ipv6                    ? "::"
                                                           : "0.0.0.0",
                              plan_.head.port};
    const Status started =
        children_->start({"coordinator",
                          {program, "coordinator", "--until-eof", "--listen", to_text(listen), "--state-dir",
                           folders_.coordinator, "--runs-dir", absolute("runs"), "--log-format", "text"},
                          log("coordinator")});
    if (!started) return started;
  }
  std::vector<std::string> agent = {program,
                                    "agent",
                                    "--until-eof",
                                    "--for-one-run",
                                    "--join",
                                    to_text(plan_.head),
                                    "--name",
                                    node_,
                                    "--slots",
                                    fmt::format("{}", workers_here_),
                                    "--state-dir",
                                    folders_.agent,
                                    "--orphan-timeout",
                                    format_duration(kHeadLostLimit),
                                    "--log-format",
                                    "text"};
  agent.emplace_back(::geteuid() == 0 ? "--allow-root" : "--jobs-share-account");
  const std::string address = !options_.nodes.local_addr.empty() ? options_.nodes.local_addr
                              : is_head_                         ? rendezvous::own_address(plan_.head)
                                                                 : std::string();
  if (!address.empty()) agent.insert(agent.end(), {"--node-address", address});
  return children_->start({"agent", std::move(agent), log("agent")});
}

void Member::say_waiting(const std::string& what, const std::string& so_far) {
  const TimePoint now = process::monotonic_now();
  if (what == said_ && now - said_at_ < kSayAgain) return;
  said_ = what;
  said_at_ = now;
  say(what + so_far);
}

std::set<std::string> Member::connected(const Json& answer) {
  std::set<std::string> names;
  for (const Json& node : member(answer, "nodes"))
    if (read_or(node, "state", "") == "connected") names.insert(read_or(node, "node", ""));
  return names;
}

std::string Member::missing(const std::set<std::string>& there) const {
  std::string names;
  for (int rank = 0; plan_.rank && rank < plan_.most && names.size() < 200; ++rank)
    if (!there.contains(rendezvous::node_name(rank, rank == 0, "", 0)))
      names += fmt::format("{}{}", names.empty() ? ": node " : ", ", rank);
  return names;
}

// ---- the first machine ----

/// What the coordinator says of a machine that has another one's rank; empty: there is none.
std::string Member::refused_twin() const {
  const std::string words = children_->last_words("coordinator");
  const bool is_twin = words.find(": refused: an agent with the name") != std::string::npos;
  return is_twin ? fmt::format("; two launchers have one --node-rank: {}", words) : std::string();
}

/// Where nobody has said who is first, it is the launcher that has the port; this one is another, then.
bool Member::gives_way(const std::string& why) const {
  return !plan_.rank && why.find(std::strerror(EADDRINUSE)) != std::string::npos;
}

/// Nothing: enough machines are there, or this is not the first one; else the exit code.
std::optional<int> Member::gather() {
  ClusterLine line(plan_.head, tls_);
  for (;;) {
    if (const auto signal = line.take_signal()) return exit_code::kSignalBase + *signal;
    if (const auto why = children_->refusal()) {
      if (!gives_way(*why)) return refuse(exit_code::kFailed, *why);
      is_head_ = false;
      if (const Status begun = begin(); !begun) return refuse(exit_code::kUsage, begun.error().message);
      return std::nullopt;
    }
    // Until ours listens, it may be another launcher's coordinator that answers.
    is_serving_ = is_serving_ || children_->has_said("coordinator", "listening on");
    const auto ended = is_serving_ ? look_for_nodes(line) : std::nullopt;
    if (ended) return *ended == exit_code::kSucceeded ? std::nullopt : ended;
    line.wait(kLook);
  }
}

/// kSucceeded: enough are there.
std::optional<int> Member::look_for_nodes(ClusterLine& line) {
  const auto answer = line.ask({{"request", "nodes"}}, kDialLimit);
  const std::set<std::string> there = answer ? connected(answer.value()) : std::set<std::string>();
  const int count = static_cast<int>(there.size());
  if (there.contains(node_)) children_->settled();
  if (count >= plan_.most) return exit_code::kSucceeded;
  const TimePoint now = process::monotonic_now();
  const std::string so_far =
      fmt::format(" ({} so far)", format_duration(std::chrono::floor<std::chrono::seconds>(waited())));
  if (count >= plan_.least) {
    if (!last_call_) last_call_ = now + plan_.last_call;
    if (now >= *last_call_) return exit_code::kSucceeded;
    say_waiting(fmt::format("{} of at most {} nodes are here, enough to begin; more may come within {}", count,
                            plan_.most, format_duration(plan_.last_call)),
                "");
    return std::nullopt;
  }
  last_call_.reset();
  if (waited() < kQuiet) return std::nullopt;  // They are on their way.
  if (waited() >= plan_.join_limit)
    return refuse(exit_code::kNotPlaced,
                  fmt::format("{} of {} nodes came to {} within {}{}", count, plan_.least, to_text(plan_.head),
                              format_duration(plan_.join_limit), missing(there)));
  say_waiting(fmt::format("{} of {} nodes are at {}, waiting for {} more{}", count, plan_.least, to_text(plan_.head),
                          plan_.least - count, missing(there)),
              so_far + refused_twin());
  return std::nullopt;
}

/// The others ask how the run has ended before they go.
void Member::linger() {
  ClusterLine line(plan_.head, tls_);
  const TimePoint deadline = process::monotonic_now() + kLingerLimit;
  while (process::monotonic_now() < deadline && !line.take_signal()) {
    const auto answer = line.ask({{"request", "nodes"}}, kDialLimit);
    std::set<std::string> there = answer ? connected(answer.value()) : std::set<std::string>();
    there.erase(node_);
    if (answer.ok() && there.empty()) return;
    line.wait(kLook);
  }
}

// ---- the others ----

int Member::take_part() {
  ClusterLine line(plan_.head, tls_);
  for (;;) {
    if (const auto signal = line.take_signal())
      if (const auto ended = on_signal(line, *signal)) return *ended;
    if (const auto why = children_->refusal()) return refuse(exit_code::kFailed, *why);
    if (const auto ended = follow_run(line)) return *ended;
    line.wait(run_.empty() ? kLook : kLookAtRun);
  }
}

std::optional<int> Member::follow_run(ClusterLine& line) {
  const Json question =
      run_.empty() ? Json{{"request", "ps"}, {"all", true}} : Json{{"request", "status"}, {"run", run_}};
  const auto answer = line.ask(question, was_there_ ? kAskLimit : kDialLimit);
  if (!answer) return on_lost(answer.error().message);
  if (!std::exchange(was_there_, true)) say(fmt::format("{} has joined {}", node_, to_text(plan_.head)));
  children_->settled();
  lost_at_ = {};
  if (run_.empty()) {
    const Json runs = member(answer.value(), "runs");
    if (!runs.empty()) {
      run_ = read_or(runs.front(), "run", "");
      say(fmt::format("run {}: {} worker{} here, output and results at node 0", run_, workers_here_,
                      workers_here_ == 1 ? "" : "s"));
    } else {
      const std::string words = waited() < kSayAgain ? "" : children_->last_words("agent");
      if (waited() >= kQuiet)
        say_waiting("waiting for the other nodes",
                    words.empty() ? "" : fmt::format("; the agent here says: {}", words));
    }
    return std::nullopt;
  }
  if (!read_or(answer.value(), "is_settled", false))
    return std::nullopt;  // What was said here is on its way to node 0.
  const Json& summary = member(answer.value(), "summary");
  say(fmt::format("run {}: {}", run_, read_or(summary, "state", "has ended")));
  return read_or(summary, "exit_code", exit_code::kFailed);
}

std::optional<int> Member::on_lost(const std::string& why) {
  const bool is_stranger = why.find("authority") != std::string::npos;
  const std::string reason = is_stranger ? why + " (it has another secret, or another --rdzv-id)" : why;
  const TimePoint now = process::monotonic_now();
  if (was_there_) {
    if (lost_at_ == TimePoint{}) lost_at_ = now;
    if (now - lost_at_ < kHeadLostLimit) return std::nullopt;
    return refuse(exit_code::kFailed,
                  fmt::format("node 0 at {} is gone ({}): what ran here is ended", to_text(plan_.head), reason));
  }
  if (waited() >= plan_.join_limit)
    return refuse(exit_code::kNotPlaced, fmt::format("node 0 was not reached at {} within {}: {}", to_text(plan_.head),
                                                     format_duration(plan_.join_limit), reason));
  if (waited() > kDialLimit)
    say_waiting(fmt::format("waiting for node 0 at {}: {}", to_text(plan_.head), reason),
                fmt::format(" ({} so far)", format_duration(std::chrono::floor<std::chrono::seconds>(waited()))));
  return std::nullopt;
}

/// The first one is for all where all are needed, else for this machine; the second one is obeyed at once.
std::optional<int> Member::on_signal(ClusterLine& line, int signal) {
  if (++signals_ > 1 || run_.empty()) return exit_code::kSignalBase + signal;
  if (plan_.least < plan_.most) return leave(line, signal);
  say(fmt::format("signal {}: stopping the run on all nodes; once more to leave at once",
                  process::signal_name(signal)));
  (void)line.ask({{"request", "stop"}, {"run", run_}, {"why", "signal"}, {"signal", signal}, {"at_once", false}},
                 kAskLimit);  // Ignoring: who does not answer is seen as lost.
  return std::nullopt;
}

int Member::leave(ClusterLine& line, int signal) {
  say(fmt::format("signal {}: this node leaves, the run goes on without it; once more to leave at once",
                  process::signal_name(signal)));
  children_->terminate("agent");
  const TimePoint deadline = process::monotonic_now() + kLeaveLimit;
  while (children_->pid("agent") != 0 && process::monotonic_now() < deadline && !line.take_signal()) line.wait(kLook);
  return exit_code::kSignalBase + signal;
}

// ---- what is to be run ----

/// torchrun's number of workers is that of each node, a job's is that of all.
void count_for_all(RunOptions& options, const rendezvous::NodesPlan& plan) {
  std::erase_if(options.overrides.sets, [](const job::Overrides::Set& one) {
    return one.path == "process.master_addr" ||
           one.path == "process.master_port";  // Where rank 0 is, the run finds out.
  });
  std::optional<int> each;
  for (const job::Overrides::Set& one : options.overrides.sets)
    if (one.path == "num_workers") each = whole_number(one.value);
  if (!each && options.job_file.empty()) each = 1;
  if (!each) return;
  const auto set = [&options](const char* path, const std::string& value) {
    options.overrides.sets.push_back({path, value, "--nnodes"});
  };
  set("num_workers", fmt::format("{}", *each * plan.most));
  if (plan.least == plan.most) return;
  set("min_workers", fmt::format("{}", *each * plan.least));
  set("start", "elastic");
  if (!options.job_file.empty()) return;
  // As torchrun does; a job says itself when it grows.
  set("recovery.scale_up", "at_once");
  set("recovery.cooldown", "1s");
}

}  // namespace

int run_on_several_nodes(RunOptions options, Diagnostics found) {
  const rendezvous::NodesPlan plan = *options.several_nodes;
  count_for_all(options, plan);
  job::LoadResult loaded = load_named_job(options, std::move(found));
  job::check_for_cluster(loaded);
  refuse_local_options(options, loaded.diagnostics);
  if (loaded.job) check_start(*loaded.job, options.job_file, loaded.diagnostics);
  print(loaded.diagnostics);
  if (loaded.diagnostics.has_errors()) return exit_code::kUsage;
  const int each = (loaded.job->num_workers + plan.most - 1) / plan.most;
  return Member(options, plan, std::move(*loaded.job), each).run();
}

}  // namespace sgd::cli
