#include "launcher/keeper/rank_output.hpp"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

namespace sgd::keeper {
namespace {

/// Large, so that a writer seldom waits for us; smaller where the user's pipe quota is used up.
constexpr int kPipeBytes = 1 << 20;

std::int64_t count_lines(std::string_view bytes) {
  return std::count(bytes.begin(), bytes.end(), '\n');
}

}  // namespace

Result<RankOutput> RankOutput::open(Generation generation, Rank rank, const std::string& log_path) {
  RankOutput output;
  output.generation_ = generation;
  output.rank_ = rank;
  output.log_path_ = log_path;
  if (!log_path.empty()) {
    std::error_code error;
    std::filesystem::create_directories(std::filesystem::path(log_path).parent_path(), error);
    output.file_.reset(::open(log_path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644));
    if (!output.file_) return system_error("cannot open log file " + log_path);
  }
  int ends[2] = {-1, -1};
  if (::pipe2(ends, O_CLOEXEC) != 0) return system_error("cannot make the output pipe of rank " + std::to_string(rank));
  output.read_end_.reset(ends[0]);
  output.write_end_.reset(ends[1]);
  if (!process::set_nonblocking(ends[0])) return system_error("cannot set up the output pipe");
  (void)::fcntl(ends[0], F_SETPIPE_SZ,
                kPipeBytes);  // Ignoring: the default size only makes the writer wait more.
  return output;
}

std::size_t RankOutput::waiting() const {
  int bytes = 0;
  if (!read_end_ || ::ioctl(read_end_.get(), FIONREAD, &bytes) != 0) return 0;
  return static_cast<std::size_t>(std::max(bytes, 0));
}

std::size_t RankOutput::read_once(ReadBuffer& buffer, AgentLink* agent, std::size_t bytes_max) {
  if (!read_end_) return 0;
  char* begin = buffer.read_begin();
  ssize_t count = -1;
  do {
    count = ::read(read_end_.get(), begin, std::min(bytes_max, kReadBytes));
  } while (count < 0 && errno == EINTR);
  if (count == 0 || (count < 0 && errno != EAGAIN)) read_end_.reset();
  if (count <= 0) return 0;
  const auto size = static_cast<std::size_t>(count);
  write_file(std::string_view(begin, size), agent);
  // The unfinished line stands right before the new bytes, so that lines are contiguous.
  begin -= rest_.size();
  std::memcpy(begin, rest_.data(), rest_.size());
  write_console(std::string_view(begin, rest_.size() + size), agent);
  return size;
}

void RankOutput::write_file(std::string_view bytes, AgentLink* agent) {
  if (!file_) return;
  while (!bytes.empty()) {
    const ssize_t written = ::write(file_.get(), bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) break;
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
  if (bytes.empty()) {
    if (file_error_.empty()) return;
    if (agent != nullptr) report(file_dropped_, file_error_, *agent);
    file_error_.clear();
    return;
  }
  const bool first = file_error_.empty();
  if (first) file_error_ = "log file " + log_path_ + ": " + std::strerror(errno);
  file_dropped_.lines += count_lines(bytes);
  file_dropped_.bytes += static_cast<std::int64_t>(bytes.size());
  // Said when it begins, and with the rest of the count when it ends.
  if (first && agent != nullptr) report(file_dropped_, file_error_, *agent);
}

void RankOutput::write_console(std::string_view bytes, AgentLink* agent) {
  cut_lines(bytes, kConsoleLineBytesMax, cut_);
  for (const ConsolePiece& piece : cut_.pieces) tail_.add(piece.bytes);
  console(cut_.pieces, false, agent);
  rest_.assign(cut_.rest);
}

void RankOutput::console(std::span<const ConsolePiece> pieces, bool finish_line, AgentLink* agent) {
  if (agent == nullptr || pieces.empty()) return;
  if (agent->window().state() != ConsoleWindow::State::kStalled) {
    agent->send_output(generation_, rank_, pieces, finish_line);
    return;
  }
  for (const ConsolePiece& piece : pieces) {
    console_dropped_.lines += count_lines(piece.bytes) + (piece.split || finish_line ? 1 : 0);
    console_dropped_.bytes += static_cast<std::int64_t>(piece.bytes.size());
  }
}

void RankOutput::finish(AgentLink* agent) {
  if (!rest_.empty()) {
    tail_.add(rest_);
    const ConsolePiece piece{rest_, false};
    console(std::span(&piece, 1), true, agent);
    rest_.clear();
  }
  read_end_.reset();
  write_end_.reset();
  file_.reset();
  if (agent == nullptr) return;
  report_console_drops(*agent);
  report(file_dropped_, file_error_, *agent);
}

void RankOutput::report_console_drops(AgentLink& agent) {
  report(console_dropped_, "the console does not take lines; the log file has them", agent);
}

void RankOutput::report(Dropped& dropped, const std::string& reason, AgentLink& agent) const {
  if (dropped.bytes == 0) return;
  agent.send(OutputDropped{rank_, dropped.lines, dropped.bytes, reason});
  dropped = {};
}

}  // namespace sgd::keeper
