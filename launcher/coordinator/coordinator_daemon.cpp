#include "launcher/coordinator/coordinator_daemon.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <filesystem>
#include <utility>

#include <fmt/format.h>

#include "launcher/net/cluster_state.hpp"
#include "launcher/net/tcp_link.hpp"
#include "launcher/net/wall_clock.hpp"
#include "launcher/process/heap_trim.hpp"
#include "launcher/storage/folder_anchor.hpp"

namespace sgd::coordinator {
namespace {

constexpr Duration kRenewalLook = std::chrono::hours(24);

}  // namespace

CoordinatorDaemon::CoordinatorDaemon(CoordinatorOptions options)
    : options_(std::move(options)),
      log_(process::stderr_log(options_.log_format)),
      shell_(io_, core::CoordinatorSettings{.node_timeout = options_.node_timeout, .files_travel = true}),
      probes_(io_, shell_, [this](const std::string& line) { log(line); }),
      audit_([this](const std::string& message) { log(message, process::LogLevel::kError); }),
      service_(io_, shell_, options_.runs(), options_.files(), audit_, [this](const std::string& line) { log(line); }),
      files_(io_, file_handlers(), storage::Quota{.keeps_disk_free = true}),
      file_completion_(io_, {[this](const NodeId& node) { return shell_.is_expected(node); },
                             [this](const RunId& run, bool is_whole) {
                               service_.settle(run, is_whole ? std::string() : files_.trouble_of(run));
                               files_.settle(run);
                             },
                             [this](const RunId& run) { return shell_.nodes_of(run); }}),
      signals_(io_, SIGINT, SIGTERM, SIGHUP),
      renewal_(io_) {
  audit_.write_beside(io_);
  service_.quota = options_.quota;
  service_.do_nodes_keep = options_.runs_dir.empty();
  service_.job_files().limits() = options_.files_of_one;
  service_.retention().owner_bytes_max = options_.quota.bytes_max;
  service_.retention().retention = options_.runs_dir.empty() ? options_.retention : storage::Retention{};
  service_.watch({[this](const RunId& run, const nlohmann::ordered_json& event) {
                    file_completion_.on_event(run, event);
                    probes_.on_event(event);
                  },
                  [this](const RunId& run, const std::vector<std::string>& paths) { files_.keep(run, paths); },
                  [this](const RunId& run) { file_completion_.on_over(run); },
                  [this](const RunId& run, const std::string& state) {
                    if (!shell_.is_trial(run)) probes_.on_run_ended(state);
                  }});
  probes_.fill = [this](http::CoordinatorMetrics& metrics) {
    metrics.clients = static_cast<std::int64_t>(service_.client_service().clients());
    if (!gateway_) return;
    metrics.frames_received = gateway_->frames.received;
    metrics.frames_sent = gateway_->frames.sent;
  };
}

Status CoordinatorDaemon::open() {
  // Before the store's thread: it changes the environment.
  if (const Status probes = probes_.open(options_.metrics_port); !probes) return probes;
  if (const Status state = open_state_dir(); !state) return state;
  if (storage::can_be_exchanged(options_.runs()))
    log(fmt::format("others may rename a folder above {}, and could put theirs in its place, where root would write: "
                    "close it to them, or name another one with --state-dir",
                    options_.runs()),
        process::LogLevel::kWarning);
  // No order depends on it, so it keeps nobody from starting.
  if (const std::string damage = AuditLog::damage_in(options_.state_dir); !damage.empty())
    log(damage, process::LogLevel::kWarning);
  if (const Status audit = audit_.open(options_.state_dir); !audit) return audit;
  const Status store = shell_.open_store(
      options_.state_dir,
      {[this](const std::string& message) { log(message, process::LogLevel::kError); },
       [this] { log("the store takes events again"); }, [this](Duration took) { probes_.on_commit(took); }});
  if (!store) return store;
  auto tls = open_identity();
  if (!tls) return tls.error();
  if (const Status opened = open_gateway(std::move(tls).value()); !opened) return opened;
  return service_.restore();
}

/// What is in it is nobody else's to read: runs, keys, the audit log. Whatever the umask was.
Status CoordinatorDaemon::open_state_dir() const {
  ::umask(0077);
  for (const std::string& folder : {options_.state_dir, options_.runs()}) {
    std::error_code error;
    std::filesystem::create_directories(folder, error);
    if (error) return Error{fmt::format("cannot create {}: {}", folder, error.message())};
    if (folder == options_.runs_dir) continue;
    struct stat facts {};
    if (::lstat(folder.c_str(), &facts) != 0) return system_error("cannot look at " + folder);
    if (!S_ISDIR(facts.st_mode) || facts.st_uid != ::geteuid())
      return Error{fmt::format("{} is not a folder of this account: name another one with --state-dir", folder)};
    if ((facts.st_mode & 0077) != 0 && ::chmod(folder.c_str(), 0700) != 0)
      return system_error(fmt::format("cannot close {} to others", folder));
  }
  return {};
}

/// The state's lock is held: what is left of a socket in its folder is of nobody.
Status CoordinatorDaemon::open_gateway(std::shared_ptr<const net::TlsContext> tls) {
  const std::string own_socket = net::coordinator_socket(options_.state_dir);
  if (!options_.listen)
    options_.listen = tls ? net::Address{"127.0.0.1", net::kDefaultPort} : net::Address{{}, 0, own_socket};
  net::Address& listen = *options_.listen;
  if (tls && options_.insecure_loopback)
    return Error{"--insecure-loopback is for a coordinator without an identity, and this one has one: leave it out"};
  if (!tls && !listen.is_local_socket() && net::is_loopback(listen) && !options_.insecure_loopback)
    return Error{fmt::format(
        "cannot listen on {}: without a TLS identity everybody on this machine could run anything here. Leave --listen "
        "out for a Unix socket of this account, or run `sgd-launch init` to make an identity, or say "
        "--insecure-loopback",
        to_text(listen))};
  if (!(listen.path == own_socket)) (void)::unlink(own_socket.c_str());
  auto listener = net::Listener::open(io_, listen, std::move(tls));
  if (!listener) return listener.error();
  if (!listen.is_local_socket()) listen.port = listener.value()->port();
  gateway_ = std::make_unique<net::Gateway>(io_, std::move(listener).value());
  return {};
}

/// Null without one, and where a Unix socket is listened on: it needs none.
Result<std::shared_ptr<const net::TlsContext>> CoordinatorDaemon::open_identity() {
  if (options_.listen && options_.listen->is_local_socket()) return std::shared_ptr<const net::TlsContext>();
  auto tls = net::TlsContext::load(net::coordinator_identity_folder(options_.state_dir));
  if (!tls && tls.error().code == ENOENT) return std::shared_ptr<const net::TlsContext>();
  if (!tls) return tls.error();
  renew_identity();
  auto service = net::JoinService::open(io_, options_.state_dir);
  if (!service) return service.error();
  join_service_ = std::move(service).value();
  return tls;
}

void CoordinatorDaemon::renew_identity() {
  const Result<bool> renewed = net::renew_coordinator(options_.state_dir, net::unix_now_s());
  if (!renewed)
    log("cannot renew the coordinator's certificate: " + renewed.error().message, process::LogLevel::kWarning);
  if (renewed.ok() && renewed.value()) log("the coordinator's certificate is renewed");
  renewal_.after(kRenewalLook, [this] { renew_identity(); });
}

void CoordinatorDaemon::run() {
  (void)std::signal(SIGPIPE, SIG_IGN);
  serve();
  wait_signal();
  probes_.on_ready();
  if (options_.runs_dir.empty()) service_.retention().start();
  if (options_.ends_with_input) input_.emplace(io_, STDIN_FILENO, [this] { end("standard input has ended"); });
  const process::HeapTrim trim(io_);
  io_.run();
}

void CoordinatorDaemon::serve() {
  const auto refuse = [this](const std::string& peer, const net::Refusal& refusal) {
    probes_.metrics.connections_refused.add(name(refusal.kind));
    log_.write(process::LogLevel::kWarning, fmt::format("refused {}", name(refusal.kind)),
               fmt::format("{} is refused: {}", peer, refusal.reason));
  };
  const auto welcome = [this](const NodeId& node, std::unique_ptr<net::CoordinatorLink> link) {
    log(fmt::format("node {}: connected", node));
    shell_.add_agent(node, std::move(link));
  };
  shell_.on_refused = [this](const NodeId& node, const std::string& reason) {
    probes_.metrics.connections_refused.add(name(net::RefusalKind::kNodeTaken));
    log_.write(process::LogLevel::kInfo, "refused node", fmt::format("node {}: refused: {}", node, reason));
  };
  shell_.on_link_lost = [this](const NodeId& node, const std::string& reason) {
    log_.write(process::LogLevel::kInfo, "disconnected", fmt::format("node {}: disconnected: {}", node, reason));
  };
  net::Gateway::Handlers handlers;
  handlers.kinds[net::kAgentKind] = net::serve_agents(io_, welcome, refuse);
  handlers.kinds[FileService::kKind] = [this](std::unique_ptr<net::Session> session, const nlohmann::json& first) {
    files_.take(std::move(session), first);
  };
  handlers.kinds[kClientKind] = [this](std::unique_ptr<net::Session> session, const nlohmann::json&) {
    service_.client_service().take(std::move(session));
  };
  for (const char* kind : {"join", "renew"}) {
    if (!join_service_) break;
    handlers.kinds[kind] = [this](std::unique_ptr<net::Session> session, const nlohmann::json& first) {
      join_service_->take(std::move(session), first);
    };
  }
  if (join_service_)
    join_service_->on_join = [this](const net::JoinService::Member& member) {
      AuditLog::Json about = {{"role", role_name(member.identity.role)}, {"token", member.token}};
      if (member.identity.is_admin) about["admin"] = true;
      audit_.add({member.identity.name, member.identity.serial, member.peer}, "join", about, member.refused);
    };
  if (join_service_)
    join_service_->on_trouble = [this](const std::string& message) {
      log_.write(process::LogLevel::kError, "records", "nobody can join: " + message);
    };
  if (join_service_)
    join_service_->on_refused = [this](const std::string& peer, net::JoinOutcome outcome, const std::string& reason) {
      probes_.metrics.connections_refused.add(fmt::format("join_{}", net::join_outcome_name(outcome)));
      log_.write(process::LogLevel::kWarning, "refused join", fmt::format("{} may not join: {}", peer, reason));
    };
  handlers.on_refused = refuse;
  handlers.on_broken = [this](const std::string& peer, const net::Refusal& refusal) {
    probes_.metrics.frames_refused.add(name(refusal.kind));
    log_.write(process::LogLevel::kWarning, fmt::format("broken {}", name(refusal.kind)),
               fmt::format("{} is disconnected: {}", peer, refusal.reason));
  };
  handlers.on_trouble = [this](const std::string& message) {
    log(message + "; until then what was read before stays in force", process::LogLevel::kError);
  };
  gateway_->start(std::move(handlers));
}

FileService::Handlers CoordinatorDaemon::file_handlers() {
  FileService::Handlers handlers;
  handlers.directory_of = [this](const RunId& run) { return service_.directory_of(run); };
  handlers.directory_of_files = [this](const RunId& run) { return service_.directory_of_files(run); };
  handlers.is_settled = [this](const RunId& run) { return service_.is_settled(run); };
  handlers.charge_of = [this](const RunId& run) { return service_.charge_of(run); };
  handlers.may_touch = [this](const RunId& run, const NodeId& node) { return shell_.may_touch(run, node); };
  handlers.on_log_grown = [this](const RunId& run, const std::string& file, std::int64_t) {
    service_.on_log_grown(run, file);
  };
  handlers.on_checkpoint_stored = [this](const RunId& run, const std::string& path) {
    shell_.checkpoint_stored(run, path);
  };
  handlers.on_all_sent = [this](const RunId& run, const NodeId& node) {
    if (service_.is_settled(run)) return files_.settle(run);  // It came late, and had opened them again.
    file_completion_.on_all_sent(run, node);
  };
  handlers.on_refused = [this](const std::string& peer, const char* kind, const std::string& reason) {
    probes_.metrics.frames_refused.add(kind);
    log_.write(process::LogLevel::kWarning, "files refused", fmt::format("files of {} are refused: {}", peer, reason));
  };
  return handlers;
}

void CoordinatorDaemon::wait_signal() {
  signals_.async_wait([this](const boost::system::error_code& error, int signal) {
    if (error) return;
    if (signal == SIGHUP) {
      probes_.on_reload();
      log("reloaded");
      return wait_signal();
    }
    end(fmt::format("signal {}", signal));
  });
}

void CoordinatorDaemon::end(const std::string& why) {
  log(why + ": the coordinator ends, runs go on");
  probes_.on_stop();
  shell_.stop();
  files_.stop();
  service_.retention().stop();
  io_.stop();
}

void CoordinatorDaemon::log(const std::string& line, process::LogLevel level) {
  log_.write(level, "", line);
}

}  // namespace sgd::coordinator
