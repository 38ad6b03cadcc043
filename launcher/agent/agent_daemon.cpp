#include "launcher/agent/agent_daemon.hpp"

#include <grp.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <utility>

#include <fmt/format.h>

#include "launcher/agent/key_guard.hpp"
#include "launcher/net/tcp_link.hpp"
#include "launcher/process/cgroup_leaf.hpp"
#include "launcher/process/clock.hpp"
#include "launcher/process/cpu_quota.hpp"
#include "launcher/process/cpu_set.hpp"
#include "launcher/process/heap_trim.hpp"
#include "launcher/process/process_tree.hpp"
#include "launcher/process/random_seed.hpp"
#include "launcher/process/strays.hpp"
#include "launcher/storage/file_owner.hpp"

namespace sgd::agent {
namespace {

constexpr Duration kBeat = std::chrono::seconds(1);
constexpr Duration kLeaveLimit = std::chrono::seconds(60);
constexpr Duration kLookAgain = std::chrono::milliseconds(20);
// A coordinator waits 5 s for a node that has gone without a word, whose name the next agent there has.
constexpr Duration kRefusedLimit = std::chrono::seconds(7);
constexpr Duration kRefusalsApart = std::chrono::seconds(10);  // Longer than between two attempts: another story.
constexpr Duration kPastStraysLimit = std::chrono::seconds(10);

constexpr const char* kLoopback = "127.0.0.1";

std::string host_name() {
  char name[256] = {};
  if (::gethostname(name, sizeof name - 1) != 0 || name[0] == '\0') return "node";
  return name;
}

}  // namespace

AgentDaemon::AgentDaemon(AgentOptions options)
    : options_(std::move(options)),
      log_(process::stderr_log(options_.log_format)),
      signals_(io_, SIGINT, SIGTERM, SIGHUP),
      leave_timer_(io_),
      look_timer_(io_) {}

Status AgentDaemon::open() {
  // Before any thread: it changes the environment.
  auto notify = process::ServiceNotify::open(process::take_notify_environment());
  if (!notify) return notify.error();
  notify_ = std::move(notify).value();
  feeder_ = std::make_unique<process::WatchdogFeeder>(io_, notify_);
  const Status subreaper = process::become_subreaper();
  if (!subreaper) return subreaper;
  if (const Status identity = open_identity(); !identity) return identity;
  if (const Status accounts = settle_accounts(); !accounts) return accounts;
  if (const Status coordinator = check_coordinator(); !coordinator) return coordinator;
  auto lock = storage::StateLock::take(options_.state_dir, "agent");
  if (!lock) return lock.error();
  lock_.emplace(std::move(lock).value());
  if (options_.name.empty()) options_.name = host_name();
  if (options_.coordinator.is_local_socket() && options_.address.empty()) options_.address = kLoopback;
  auto persistence = open_past();
  if (!persistence) return persistence.error();
  const core::AgentFacts& facts = persistence.value().facts;
  slots_ = persistence.value().now.slots;
  Spool::Setup files;
  files.state_dir = options_.state_dir;
  files.coordinator = options_.coordinator;
  files.node = facts.node;
  files.incarnation = facts.incarnation;
  files.tls = tls_;
  files.has_other_owners = has_others();
  files.files.keeps_disk_free = true;
  if (options_.files_bytes) files.files.bytes = static_cast<std::uint64_t>(*options_.files_bytes);
  auto spool = std::make_unique<Spool>(io_, std::move(files), core::Random(process::random_seed()));
  auto link = net::make_tcp_agent_link(io_, buffer_, options_.coordinator, core::Random(process::random_seed()), tls_);
  relay_ = make_relay();
  shell_ = std::make_unique<AgentShell>(io_, std::move(persistence).value(), options_.own_program, std::move(link),
                                        observer(), std::move(spool));
  return {};
}

/// What the life before has left is taken over, or cleared.
Result<AgentShell::Persistence> AgentDaemon::open_past() {
  const auto base = runtime_base();
  if (!base) return base.error();
  (void)process::remove_dead_runtime_dirs(base.value());
  auto mark = keeper_mark(options_.state_dir);
  if (!mark) return mark.error();
  AgentShell::Persistence persistence;
  persistence.journal_path = options_.state_dir + "/agent.journal";
  persistence.mark = mark.value();
  persistence.wait = options_.orphan_timeout;
  persistence.accounts = options_.accounts;
  persistence.accounts.identity = options_.identity();
  PreviousAgent past = find_previous_agent(persistence.journal_path, options_.name);
  if (!past.why_not.empty())
    log("what the agent before this one has left cannot be taken over: " + past.why_not, process::LogLevel::kWarning);
  runtime_ = std::move(past.runtime);
  if (!past.journal) {
    for (const process::CgroupLeaf& leaf :
         process::CgroupLeaf::all("sgd-" + persistence.mark.substr(persistence.mark.find('=') + 1))) {
      if (const Status cleared = leaf.kill(kPastStraysLimit); !cleared) return cleared.error();
      leaf.remove();
    }
    const auto killed = process::kill_strays({persistence.mark, true}, kPastStraysLimit);
    if (!killed) return killed.error();
    if (killed.value() > 0)
      log(fmt::format("{} processes that it had started are killed", killed.value()), process::LogLevel::kWarning);
    auto runtime = process::RuntimeDir::create(base.value());
    if (!runtime) return runtime.error();
    runtime_.emplace(std::move(runtime).value());
  }
  if (has_others())
    if (const Status passable = runtime_->let_others_pass(); !passable) return passable.error();
  if (const Status kept = runtime_->keep_for(options_.state_dir + "/runtime"); !kept) return kept.error();
  persistence.sockets = runtime_->path() + "/";
  const core::AgentFacts now = facts();
  persistence.now = {now.slots, options_.address, now.memory_bytes, now.labels};
  persistence.takes_address = options_.address.empty();
  persistence.header = JournalHeader{boot_id(), SGD_VERSION, runtime_->path(), now.node};
  persistence.facts = past.journal ? past.journal->start().machine.state.facts_ : now;
  persistence.token_key = process::random_seed();
  persistence.passes_environment = options_.is_for_one_run;
  if (options_.journal_bytes) persistence.rewrite_bytes = static_cast<std::size_t>(*options_.journal_bytes);
  persistence.past = std::move(past.journal);
  return persistence;
}

std::unique_ptr<OutputRelay> AgentDaemon::make_relay() {
  if (options_.output_socket.empty()) return nullptr;
  OutputRelay::Handlers handlers;
  handlers.on_taken = [this](const RunId& run, std::size_t bytes) { shell_->acknowledge_output(run, bytes); };
  handlers.on_trouble = [this](const std::string& message) { log(message, process::LogLevel::kWarning); };
  return std::make_unique<OutputRelay>(io_, options_.output_socket, std::move(handlers));
}

AgentObserver AgentDaemon::observer() {
  AgentObserver observer;
  observer.on_output = [this](Output output) {
    if (relay_) return relay_->pass(std::move(output));
    shell_->acknowledge_output(output.run, output.bytes().size());
  };
  observer.on_warning = [this](const std::string& message) {
    const bool is_link = message.starts_with("coordinator: ");
    if (is_link && message == last_lost_) return;
    if (is_link) last_lost_ = message;
    log(message, process::LogLevel::kWarning);
    if (!is_link && relay_) relay_->warn(message);
  };
  observer.on_told = [this](const std::string& message) { log(message, process::LogLevel::kWarning); };
  observer.on_refused = [this](const std::string& reason) { on_refused(reason); };
  observer.on_address = [this](const std::string& address) { on_address(address); };
  observer.on_run_gone = [this](const RunId& run, bool is_known) {
    log(fmt::format(
        "run {}: {}", run,
        is_known ? "nothing of it is left here" : "it has ended here; what cannot be seen of it may be left"));
    if (relay_ && shell_->is_idle()) relay_->end();
    if (signals_seen_ > 0) end_if_idle();
  };
  return observer;
}

Status AgentDaemon::open_identity() {
  if (options_.coordinator.is_local_socket()) return {};  // The kernel says who is there.
  const std::string folder = options_.identity();
  auto tls = net::TlsContext::load(folder);
  if (!tls && tls.error().code == ENOENT) return {};
  if (!tls) return tls.error();
  tls_ = std::move(tls).value();
  if (options_.name.empty()) options_.name = tls_->own().name;
  if (tls_->own().role != net::Role::kAgent || tls_->own().name != options_.name)
    return Error{fmt::format("{} is the identity of {} {}, not of agent {}", folder, net::role_name(tls_->own().role),
                             tls_->own().name, options_.name)};
  renewer_ = std::make_unique<net::Renewer>(io_, options_.coordinator, folder, tls_, net::Renewer::Pace{});
  return {};
}

/// `fixed`: whose all jobs are; null: ours. However the coordinator is reached: a key that lies here is one.
Status AgentDaemon::guard_keys(const process::Account* fixed) const {
  if (options_.jobs_share_account) return {};
  const char* own_home = std::getenv("HOME");
  const std::string home = fixed != nullptr ? fixed->home : own_home != nullptr ? own_home : "";
  const std::string key = open_key(fixed != nullptr ? fixed->uid : ::geteuid(), key_paths(options_.identity(), home));
  if (key.empty()) return {};
  if (fixed != nullptr)
    return Error{fmt::format("--run-as: {} {}: name an account that owns no key", fixed->name, key)};
  return Error{fmt::format(
      "jobs would run under this account, which {}: any job could speak as this node, or as anybody. Start the agent "
      "as root, which "
      "gives each run its owner's account (or one for all: --run-as ACCOUNT), as scripts/systemd does; or say "
      "--jobs-share-account, if all who may submit may also be this node",
      key)};
}

/// It runs what the coordinator says: who that is must be proved, by certificates or by the kernel.
Status AgentDaemon::check_coordinator() const {
  if (tls_ || options_.coordinator.is_local_socket()) return {};
  const std::string name = to_text(options_.coordinator);
  if (!net::is_loopback(options_.coordinator))
    return Error{fmt::format("this node has no identity for {}: sgd-launch join {} --token-file FILE", name, name)};
  if (options_.insecure_loopback) return {};
  return Error{fmt::format(
      "without an identity this node would run whatever it is told by whoever listens on {}: join the cluster "
      "(sgd-launch "
      "join), or leave --join out for the Unix socket of this account's coordinator, or say --insecure-loopback",
      name)};
}

/// Root that works for others first gives up what it has by its groups: only its own rights to files are given up and
/// taken back later, again and again.
Status AgentDaemon::settle_accounts() const {
  if (!has_others()) return guard_keys(nullptr);
  if (::geteuid() != 0) return Error{"only an agent that runs as root can start runs as other users"};
  if (options_.accounts.kind == AccountRule::Kind::kOwner && !tls_) {
    return Error{
        "this agent runs as root, so each run would get its owner's account, and without certificates anybody can "
        "claim to be any owner: give this node an identity (sgd-launch join), or name one account for all runs "
        "(--run-as ACCOUNT), or let workers run as root (--allow-root)"};
  }
  if (options_.accounts.kind == AccountRule::Kind::kFixed) {
    const auto account = process::find_account(options_.accounts.name, RunAccounts::kLookupLimit);
    if (!account) return Error{"--run-as: " + account.error().message};
    if (account.value().uid == 0)
      return Error{"--run-as: " + options_.accounts.name + " has root's uid 0; --allow-root lets workers run as root"};
    if (const Status guarded = guard_keys(&account.value()); !guarded) return guarded;
  }
  if (::setgroups(0, nullptr) != 0) return system_error("cannot leave root's groups");
  return {};
}

/// Users of runs must get through to the sockets; a session's own folder is closed to them.
Result<std::string> AgentDaemon::runtime_base() const {
  auto base = process::runtime_base();
  if (!base || !has_others()) return base;
  return storage::is_within_reach_of_all(std::filesystem::path(base.value()).parent_path()) ? base
                                                                                            : process::runtime_base("");
}

core::AgentFacts AgentDaemon::facts() const {
  core::AgentFacts facts;
  facts.node = options_.name;
  facts.version = SGD_VERSION;
  facts.address = options_.address.empty() ? kLoopback : options_.address;
  facts.incarnation = process::random_seed().front();
  facts.allowed_cores = process::allowed_cores();
  facts.is_shared = !options_.is_for_one_run;
  facts.counts_cpus = !options_.slots;
  facts.slots = options_.slots.value_or(process::usable_cpus());
  facts.orphan_timeout = options_.orphan_timeout;
  facts.returns_within = options_.orphan_timeout;
  facts.gpus = options_.gpus;
  facts.are_gpus_by_bus = options_.are_gpus_by_bus;
  facts.memory_bytes = options_.memory_bytes;
  facts.labels = options_.labels;
  facts.worker_program = options_.worker_program;
  facts.numa_nodes = process::by_numa_node(facts.allowed_cores);
  facts.python_folder = options_.python_folder;
  facts.beat_interval = kBeat;
  return facts;
}

Status AgentDaemon::run() {
  (void)std::signal(SIGPIPE, SIG_IGN);
  log(fmt::format("node {}: {} slot{}{}{}, coordinator {}", options_.name, slots_, slots_ == 1 ? "" : "s",
                  options_.address.empty() ? "" : " at ", options_.address, to_text(options_.coordinator)));
  const Status started = shell_->start();
  if (!started) return started;
  if (renewer_)
    renewer_->start({[this](const net::PeerIdentity&) { log("the node's certificate is renewed"); },
                     [this](const std::string& reason) {
                       log("cannot renew the node's certificate: " + reason, process::LogLevel::kWarning);
                     }});
  wait_signal();
  if (options_.ends_with_input)
    input_.emplace(io_, STDIN_FILENO, [this] {
      log("standard input has ended: what still runs here is killed");
      io_.stop();
    });
  if (const Status said = notify_.ready(fmt::format("node {}, {} slots", options_.name, slots_)); !said)
    log(said.error().message, process::LogLevel::kWarning);
  const process::HeapTrim trim(io_);
  io_.run();
  shell_->end_everything();
  if (!refused_for_.empty()) return Error{refused_for_, ECONNREFUSED};
  return {};
}

void AgentDaemon::on_address(const std::string& address) {
  if (std::exchange(last_address_, address) == address) return;
  log("other nodes reach this one at " + address);
  const net::Address own{address};
  if (tls_ && net::is_loopback(own))
    log(fmt::format("ranks on other nodes cannot reach {}: if there are other nodes, say --node-address IP, or join by "
                    "an address of the coordinator that they have, too",
                    address),
        process::LogLevel::kWarning);
}

/// Who serves for long comes again and again; under a launcher somebody waits for an answer.
void AgentDaemon::on_refused(const std::string& reason) {
  const TimePoint now = process::monotonic_now();
  if (now - refused_at_ > kRefusalsApart) refused_since_ = now;
  refused_at_ = now;
  if (!options_.is_for_one_run || now - refused_since_ < kRefusedLimit) return;
  refused_for_ = reason;
  io_.stop();
}

void AgentDaemon::wait_signal() {
  signals_.async_wait([this](const boost::system::error_code& error, int signal) {
    if (error) return;
    on_signal(signal);
    wait_signal();
  });
}

void AgentDaemon::on_signal(int signal) {
  if (signal == SIGHUP) {  // Its identity is read anew whenever the files change.
    (void)notify_.reloading(process::monotonic_now());
    (void)notify_.ready(fmt::format("node {}, {} slots", options_.name, slots_));
    return log("reloaded");
  }
  if (++signals_seen_ > 1) {
    log("once more: what still runs here is killed");
    return io_.stop();
  }
  log(fmt::format("signal {}: this node leaves; its runs save and go on elsewhere", signal));
  (void)notify_.stopping("leaving: runs save and go on elsewhere");
  notify_.extend_timeout(kLeaveLimit);
  shell_->leave();
  leave_timer_.after(kLeaveLimit, [this] { io_.stop(); });
  end_if_idle();
}

/// What is still to be brought to the coordinator goes first; what does not get there is brought by this node's next
/// agent.
void AgentDaemon::end_if_idle() {
  if (!shell_->is_idle()) return;
  if (!shell_->is_sending()) return io_.stop();
  look_timer_.after(kLookAgain, [this] { end_if_idle(); });
}

void AgentDaemon::log(const std::string& line, process::LogLevel level) {
  log_.write(level, "", line);
}

}  // namespace sgd::agent
