#include "launcher/keeper/spare.hpp"

#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <utility>

#include "launcher/keeper/limits.hpp"
#include "launcher/process/clock.hpp"
#include "launcher/process/process_tree.hpp"
#include "launcher/process/spawn.hpp"
#include "launcher/process/unix_socket.hpp"

namespace sgd::keeper {
namespace {

constexpr std::size_t kWordBytes = 64 << 10;
constexpr std::size_t kStandardStreams = 3;
constexpr std::size_t kDescriptors = kStandardStreams + 1;  ///< And the link to the agent.

/// What a fork server is told that has been started for nobody: with what its ranks begin.
nlohmann::json job_with_setting(const StartForkServer& request) {
  process::SpawnOptions options;
  set_environment(request.environment, options);
  nlohmann::json environment = nlohmann::json::object();
  for (const std::string& entry : process::environment_of_child(options)) {
    const std::size_t equals = entry.find('=');
    environment[entry.substr(0, equals)] = entry.substr(equals + 1);
  }
  nlohmann::json job = request.job;
  job["environment"] = std::move(environment);
  std::array<char, 4096> folder{};
  const bool is_known = ::getcwd(folder.data(), folder.size()) != nullptr;
  job["workdir"] = !request.workdir.empty() || !is_known ? request.workdir : std::string(folder.data());
  return job;
}

}  // namespace

std::optional<Spare::Adopted> Spare::wait() {
  if (!process::set_nonblocking(holder_.get())) return std::nullopt;
  while (state_ != State::kUseless && state_ != State::kAdopted) {
    std::array<pollfd, 3> polled = {pollfd{holder_.get(), POLLIN, 0},
                                    pollfd{server_ ? server_->socket() : -1, POLLIN, 0},
                                    pollfd{server_ ? server_->pidfd() : -1, POLLIN, 0}};
    const int ready = ::poll(polled.data(), polled.size(), timeout_ms());
    if (ready < 0 && errno != EINTR) break;
    if (ready == 0) say("it was not ready in time");
    if (ready <= 0) continue;
    if (polled[1].revents != 0) read_fork_server();
    if (polled[2].revents != 0 && state_ != State::kAdopted && state_ != State::kUseless)
      say("the interpreter that was held ready has ended");
    if (polled[0].revents != 0 && state_ != State::kAdopted && state_ != State::kUseless) read_holder();
  }
  if (state_ == State::kAdopted) {
    Adopted adopted{std::move(descriptors_.back()), {std::move(*server_), std::move(request_)}};
    return adopted;
  }
  (void)process::kill_descendants({}, kOrphanKillLimit);  // Ignoring: there is nobody to tell.
  return std::nullopt;
}

int Spare::timeout_ms() const {
  const bool waits = state_ == State::kPreparing || state_ == State::kAdopting;
  return waits ? process::poll_timeout_ms(process::monotonic_now(), deadline_) : -1;
}

void Spare::read_holder() {
  std::vector<char> buffer(kWordBytes);
  auto received = process::receive_with_descriptors(holder_.get(), buffer);
  if (!received && received.error().code == EAGAIN) return;
  if (!received || received.value().bytes == 0 || received.value().truncated) {
    state_ = State::kUseless;
    return;
  }
  for (process::UniqueFd& fd : received.value().descriptors) descriptors_.push_back(std::move(fd));
  reader_.append({buffer.data(), received.value().bytes});
  for (;;) {
    const auto frame = reader_.next();
    if (frame && !frame.value()) return;
    auto message = frame ? warm::decode_to_spare(frame.value()->bytes) : Result<warm::ToSpare>(frame.error());
    if (!message) return say(message.error().message);
    std::visit([this](const auto& body) { take(body); }, message.value());
  }
}

void Spare::take(const warm::Prepare& prepare) {
  if (state_ != State::kNew) return say("it is prepared already");
  if (const Status became = become(prepare.setting); !became) return say(became.error().message);
  const TimePoint now = process::monotonic_now();
  auto server = ForkServerProcess::start(request_, now);
  if (!server) return say(server.error().message);
  server_ = std::move(server).value();
  state_ = State::kPreparing;
  deadline_ = now + kPrepareLimit;
}

void Spare::take(const warm::Adopt& adopt) {
  if (state_ != State::kReady) return say("it is not ready");
  if (descriptors_.size() != kDescriptors) return say("descriptors are missing");
  if (const Status became = become(adopt.setting); !became) return say(became.error().message);
  for (std::size_t stream = 0; stream < kStandardStreams; ++stream)
    if (::dup2(descriptors_[stream].get(), static_cast<int>(stream)) < 0)
      return say("it cannot take the run's standard streams");
  if (const Status asked = server_->prepare_again(request_.log_path, job_with_setting(request_)); !asked)
    return say(asked.error().message);
  state_ = State::kAdopting;
  deadline_ = process::monotonic_now() + kAdoptLimit;
}

/// What an exec would have given to this process.
Status Spare::become(const warm::Setting& setting) {
  auto request = warm::server_of(setting);
  if (!request) return request.error();
  request_ = std::move(request).value();
  if (::clearenv() != 0) return Error{"cannot set the environment"};
  for (const auto& [name, value] : setting.environment)
    if (::setenv(name.c_str(), value.c_str(), 1) != 0) return system_error("cannot set the variable " + name);
  if (::chdir(setting.workdir.c_str()) != 0) return system_error("cannot enter " + setting.workdir);
  return {};
}

void Spare::read_fork_server() {
  std::vector<ForkServerProcess::Reply> replies;
  if (const Status read = server_->receive(replies); !read) return say(read.error().message);
  for (const ForkServerProcess::Reply& reply : replies) {
    if (const auto* prepared = std::get_if<fork_server::Prepared>(&reply.message)) return answer(*prepared);
    if (const auto* failed = std::get_if<fork_server::PrepareFailed>(&reply.message)) return say(failed->message);
  }
}

void Spare::answer(const fork_server::Prepared& prepared) {
  if (!prepared.reason.empty()) return say(prepared.reason);
  if (prepared.threads != 1) return say("its modules start threads");
  if (state_ == State::kPreparing)
    state_ = State::kReady;
  else if (state_ == State::kAdopting)
    state_ = State::kAdopted;
  say("");
}

/// With a reason, it is of no use any more.
void Spare::say(const std::string& reason) {
  if (!reason.empty()) state_ = State::kUseless;
  // Ignoring: a holder that is gone is seen as the end of its link.
  (void)process::send_with_descriptors(holder_.get(), warm::encode(warm::FromSpare(warm::Ready{reason})), {});
}

}  // namespace sgd::keeper
