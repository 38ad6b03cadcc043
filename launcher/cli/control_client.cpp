#include "launcher/cli/control_client.hpp"

#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include <fmt/format.h>

#include "common/base/time.hpp"
#include "common/json/lenient.hpp"
#include "launcher/process/unix_socket.hpp"

namespace sgd::cli {
namespace {

constexpr auto kLocalDeadline = std::chrono::seconds(5);
constexpr std::size_t kAnswerBytesMax = 16 << 20;

/// Where the launcher listens that has the run in `run_dir`; empty: nowhere.
std::string socket_in(const std::string& run_dir) {
  std::error_code error;
  const auto target = std::filesystem::read_symlink(run_dir + "/control.sock", error);
  return error ? std::string() : target.string();
}

/// It is there, or nobody would have taken the question.
std::string silent(const std::string& run_dir) {
  return fmt::format("the launcher of {} has not answered within {}; one that is suspended (Ctrl-Z) does so after fg",
                     run_dir, format_duration(kLocalDeadline));
}

}  // namespace

Result<std::optional<nlohmann::ordered_json>> ask_run(const std::string& run_dir, const nlohmann::json& request) {
  using Answer = std::optional<nlohmann::ordered_json>;
  if (const std::string socket = socket_in(run_dir); !socket.empty()) return ask_socket(socket, run_dir, request);
  const std::filesystem::path folder(run_dir);
  const std::filesystem::path trials = folder.parent_path();
  const std::string socket = trials.filename() == "trials" ? socket_in(trials.parent_path()) : std::string();
  if (socket.empty()) return Answer{};  // It ended and took its socket away.
  nlohmann::json of_trial = request;
  of_trial["trial"] = folder.filename().string();
  auto answer = ask_socket(socket, run_dir, of_trial);
  if (answer && answer.value() && read_or(*answer.value(), "is_over", false)) return Answer{};
  return answer;
}

Result<std::optional<nlohmann::ordered_json>> ask_socket(const std::string& path, const std::string& run_dir,
                                                         const nlohmann::json& request) {
  using Answer = std::optional<nlohmann::ordered_json>;
  auto socket = process::connect_unix(path, kLocalDeadline);
  if (!socket) {
    if (socket.error().code == ENOENT || socket.error().code == ECONNREFUSED) return Answer{};
    return socket.error();
  }
  const timeval limit{std::chrono::duration_cast<std::chrono::seconds>(kLocalDeadline).count(), 0};
  (void)::setsockopt(socket.value().get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  const std::string line = dump_text(request) + "\n";
  const auto sent = process::send_with_descriptors(socket.value().get(), line, {});
  if (!sent) return sent.error();
  std::string answer;
  char buffer[65536];
  while (answer.find('\n') == std::string::npos) {
    const ssize_t count = ::read(socket.value().get(), buffer, sizeof buffer);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) return Error{silent(run_dir)};
    if (count < 0) return system_error("no answer from the launcher of " + run_dir);
    if (count == 0) return Answer{};
    answer.append(buffer, static_cast<std::size_t>(count));
    if (answer.size() > kAnswerBytesMax) return Error{"answer of the launcher of " + run_dir + " is too long"};
  }
  auto json = nlohmann::ordered_json::parse(answer, nullptr, false);
  if (json.is_discarded()) return Error{"answer of the launcher of " + run_dir + " is no JSON"};
  return Answer{std::move(json)};
}

}  // namespace sgd::cli
