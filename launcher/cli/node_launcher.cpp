#include "launcher/cli/node_launcher.hpp"

#include <unistd.h>

#include <csignal>
#include <utility>

#include <fmt/format.h>

#include "launcher/cli/member_name.hpp"
#include "launcher/cli/plain_verb.hpp"
#include "launcher/cli/program_files.hpp"
#include "launcher/cli/terminal_text.hpp"
#include "launcher/core/failure.hpp"
#include "launcher/process/clock.hpp"
#include "launcher/process/random_seed.hpp"
#include "launcher/rendezvous/secret.hpp"

namespace sgd::cli {

bool is_user_signal(int signal) {
  return signal == SIGUSR1 || signal == SIGUSR2;
}

NodeLauncher::NodeLauncher(const RunOptions& options, const rendezvous::NodesPlan& plan, int workers_here)
    : options_(options), plan_(plan), workers_here_(workers_here), begun_at_(process::monotonic_now()) {}

Status NodeLauncher::begin(bool is_head) {
  is_head_ = is_head;
  if (secret_.empty()) {
    auto text = read_secret();
    if (!text) return text.error();
    secret_ = std::move(text).value();
  }
  if (folder_.path().empty()) return Error{"no folder for temporary files can be made: set TMPDIR"};
  if (const Status made = make_sockets(); !made) return made;
  node_ = rendezvous::node_name(plan_.rank, is_head_, host_name(), ::getpid(),
                                static_cast<std::uint32_t>(process::random_seed().front()));
  folders_ = rendezvous::Folders::below(folder_.path() + "/" + node_);
  auto tls = rendezvous::make_identities(folders_, secret_, plan_.id, node_, is_head_);
  if (!tls) return tls.error();
  tls_ = std::move(tls).value();
  children_.emplace();
  has_agent_settled_ = false;
  if (!is_head_) return {};
  place_ = rendezvous::find_place(plan_.head);
  if (const Status started = start_coordinator(); !started) return started;
  return start_agent();
}

/// Paths of sockets are short: not below a TMPDIR of any length.
Status NodeLauncher::make_sockets() {
  if (options_.output_at_first || sockets_) return {};
  const auto base = process::runtime_base();
  if (!base) return base.error();
  (void)process::remove_dead_runtime_dirs(base.value());
  auto made = process::RuntimeDir::create(base.value());
  if (!made) return made.error();
  sockets_.emplace(std::move(made).value());
  return {};
}

Result<std::string> NodeLauncher::read_secret() const {
  if (plan_.is_open) return std::string(rendezvous::kNoSecret);
  const bool is_named = !plan_.secret_file.empty();
  const std::string file = is_named ? plan_.secret_file : rendezvous::usual_secret_file();
  const bool may_make = !is_named && plan_.shares_home && !file.empty();
  Result<std::string> read = may_make ? rendezvous::read_or_make_secret(file) : rendezvous::read_secret(file);
  if (read) return read;
  return Error{fmt::format(
      "{}. The machines of a run know each other by a secret that is the same on all of them: copy one there, and name "
      "it with --rdzv-secret-file FILE (made with: (umask 077; head -c 32 /dev/urandom | base64 > FILE)); or say "
      "--rdzv-insecure where nobody else reaches {}",
      read.error().message, to_text(plan_.head))};
}

std::string NodeLauncher::log_of(const char* daemon) const {
  return fmt::format("{}/{}.log", folder_.path(), daemon);
}

Status NodeLauncher::start_coordinator() {
  const net::Address listen{place_.listen, plan_.head.port};
  return children_->start({"coordinator",
                           {own_program(), "coordinator", "--until-eof", "--listen", to_text(listen), "--state-dir",
                            folders_.coordinator, "--runs-dir", absolute("runs"), "--log-format", "text"},
                           log_of("coordinator")});
}

Status NodeLauncher::start_agent() {
  std::vector<std::string> agent = {own_program(),      "agent",
                                    "--until-eof",      "--for-one-run",
                                    "--join",           to_text(plan_.head),
                                    "--name",           node_,
                                    "--slots",          fmt::format("{}", workers_here_),
                                    "--state-dir",      folders_.agent,
                                    "--orphan-timeout", format_duration(kHeadLostLimit),
                                    "--log-format",     "text"};
  agent.emplace_back(::geteuid() == 0 ? "--allow-root" : "--jobs-share-account");
  const std::string address = !options_.nodes.local_addr.empty() ? options_.nodes.local_addr
                              : is_head_                         ? place_.own
                                                                 : std::string();
  if (sockets_) agent.insert(agent.end(), {"--output-socket", output_socket()});
  if (!address.empty()) agent.insert(agent.end(), {"--node-address", address});
  return children_->start({"agent", std::move(agent), log_of("agent")});
}

/// One whose options are wrong ends before it says so.
void NodeLauncher::note_agent(bool is_sure) {
  if (has_agent_settled_) return;
  has_agent_settled_ = is_sure || children_->has_said("agent", "other nodes reach this one at ");
  if (has_agent_settled_) children_->settled();
}

Duration NodeLauncher::waited() const {
  return process::monotonic_now() - begun_at_;
}

std::string NodeLauncher::so_far() const {
  return fmt::format(" ({} so far)", format_duration(std::chrono::floor<std::chrono::seconds>(waited())));
}

void NodeLauncher::print(const std::string& text, bool is_trouble) const {
  const std::string shown = for_terminal(text, Steering::kNone);
  if (console_ != nullptr) return console_->narrate("sgd-launch: " + shown, is_trouble);
  if (!options_.quiet || is_trouble) fmt::print(stderr, "sgd-launch: {}\n", shown);
}

void NodeLauncher::print_waiting(const std::string& what, const std::string& more) {
  const TimePoint now = process::monotonic_now();
  if (what == said_ && now - said_at_ < kSayAgain) return;
  said_ = what;
  said_at_ = now;
  print(what + more, true);
}

void NodeLauncher::print_not_passed(int signal, const std::string& why) const {
  print(fmt::format("warning: signal {} is not passed on: {}", core::signal_words(signal), why), true);
}

}  // namespace sgd::cli
