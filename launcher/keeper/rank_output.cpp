#include "launcher/keeper/rank_output.hpp"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "launcher/keeper/limits.hpp"
#include "launcher/keeper/rank_terminal.hpp"
#include "launcher/process/clock.hpp"

namespace sgd::keeper {
namespace {

/// Large, so that a writer seldom waits for us; smaller where the user's pipe quota is used up.
constexpr int kPipeBytes = 1 << 20;
/// Of a line that is being written, on the console.
constexpr std::size_t kOpenLineBytesMax = 4 << 10;

bool has_filtered(std::string_view line, const std::vector<std::string>& filters) {
  return std::any_of(filters.begin(), filters.end(),
                     [&](const std::string& filter) { return line.find(filter) != std::string_view::npos; });
}

}  // namespace

Result<RankOutput> RankOutput::open(const Spawn& spawn) {
  RankOutput output;
  output.generation_ = spawn.generation;
  output.rank_ = spawn.rank;
  output.line_prefix_ = spawn.line_prefix;
  output.has_terminal_ = spawn.has_terminal;
  output.console_dropped_ = {spawn.rank, 0, 0, "the console does not take lines; the log file has them", true};
  const auto open_file = [](LogFile& file, const std::string& path) -> Status {
    auto opened = LogFile::open(path);
    if (!opened) return opened.error();
    file = std::move(opened).value();
    return {};
  };
  if (Status opened = open_file(output.log_, spawn.log_path); !opened) return opened.error();
  for (const Stream stream : kStreams) {
    const StreamRules& rules = stream == Stream::kOut ? spawn.out : spawn.err;
    StreamOutput& one = output.of(stream);
    one.is_shown = rules.is_shown;
    one.filters = rules.filters;
    if (Status opened = open_file(one.file, rules.path); !opened) return opened.error();
    if (Status opened = open_file(one.filtered, rules.filtered_path); !opened) return opened.error();
    if (spawn.has_terminal) continue;
    int ends[2] = {-1, -1};
    if (::pipe2(ends, O_CLOEXEC) != 0)
      return system_error("cannot make the output pipes of rank " + std::to_string(spawn.rank));
    one.read_end.reset(ends[0]);
    one.write_end.reset(ends[1]);
    if (!process::set_nonblocking(ends[0])) return system_error("cannot set up the output pipe");
    (void)::fcntl(ends[0], F_SETPIPE_SZ,
                  kPipeBytes);  // Ignoring: the default size only makes the writer wait more.
  }
  if (!spawn.has_terminal) return output;
  auto terminal = open_terminal();
  if (!terminal) return terminal.error();
  output.of(Stream::kOut).read_end = std::move(terminal.value().master);
  output.of(Stream::kErr).write_end.reset(::fcntl(terminal.value().slave.get(), F_DUPFD_CLOEXEC, 3));
  output.of(Stream::kOut).write_end = std::move(terminal.value().slave);
  return output;
}

std::vector<process::UniqueFd> RankOutput::take_write_ends() {
  std::vector<process::UniqueFd> ends;
  for (StreamOutput& one : streams_) ends.push_back(std::move(one.write_end));
  return ends;
}

std::size_t RankOutput::write_input(std::string_view bytes) {
  const int terminal = of(Stream::kOut).read_end.get();
  const ssize_t count = has_terminal_ ? ::write(terminal, bytes.data(), bytes.size()) : 0;
  return count < 0 ? 0 : static_cast<std::size_t>(count);
}

void RankOutput::resize_terminal() {
  if (const int terminal = of(Stream::kOut).read_end.get(); has_terminal_ && terminal >= 0) take_size(terminal);
}

std::size_t RankOutput::waiting(Stream stream) const {
  int bytes = 0;
  const process::UniqueFd& pipe = of(stream).read_end;
  if (pipe && has_terminal_) return kReadBytes;  // It does not say; a read that finds nothing ends it.
  if (!pipe || ::ioctl(pipe.get(), FIONREAD, &bytes) != 0) return 0;
  return static_cast<std::size_t>(std::max(bytes, 0));
}

std::size_t RankOutput::read_once(Stream stream, TimePoint now, ReadBuffer& buffer, AgentConnection* agent,
                                  std::size_t bytes_max) {
  StreamOutput& output = of(stream);
  if (!output.read_end) return 0;
  char* begin = buffer.read_begin();
  ssize_t count = -1;
  do {
    count = ::read(output.read_end.get(), begin, std::min(bytes_max, kReadBytes));
  } while (count < 0 && errno == EINTR);
  const bool has_no_writer = count == 0 || (count < 0 && errno != EAGAIN);
  // Closed here, a terminal that its rank has put others in place of would end it by SIGHUP.
  unused_until_.reset();
  if (has_no_writer && has_terminal_) unused_until_ = now + kUnusedPause;
  if (has_no_writer && !has_terminal_) output.read_end.reset();
  if (count <= 0) return 0;
  const auto size = static_cast<std::size_t>(count);
  write_files(output, std::string_view(begin, size), agent);
  // The unfinished line stands right before the new bytes, so that lines are contiguous.
  begin -= output.rest.size();
  std::memcpy(begin, output.rest.data(), output.rest.size());
  take_lines(stream, std::string_view(begin, output.rest.size() + size), agent);
  output.open_line.changed(now, output.rest);
  return size;
}

void RankOutput::write_files(StreamOutput& output, std::string_view bytes, AgentConnection* agent) {
  for (LogFile* file : {&log_, &output.file}) {
    file->write(bytes);
    file->look(process::monotonic_now());
    const auto news = file->take_news(rank_);
    if (news && agent != nullptr) agent->send(*news);
  }
}

/// A bar on stderr is shown as it stands: a console that is no terminal would get all its frames in one line. What a
/// rank writes to stdout may be data, and is not touched.
void RankOutput::take_lines(Stream stream, std::string_view bytes, AgentConnection* agent) {
  if ((stream == Stream::kErr || has_terminal_) && bytes.find('\r') != std::string_view::npos) {
    newest_frames(bytes, frames_);
    bytes = frames_;
  }
  cut_lines(bytes, kConsoleLineBytesMax, cut_);
  for (const ConsolePiece& piece : cut_.pieces) note(stream, piece);
  console(stream, cut_.pieces, false, agent);
  of(stream).rest.assign(cut_.rest);
}

void RankOutput::note(Stream stream, const ConsolePiece& piece) {
  StreamOutput& output = of(stream);
  const bool goes_on = std::exchange(output.is_split, piece.split);
  tail_.add(piece.bytes, goes_on);
  if (stream == Stream::kErr || has_terminal_) traceback_.add(piece.bytes, process::unix_seconds());
  if (!output.filters.empty()) write_filtered(output, piece, goes_on, line_prefix_);
}

/// Other ranks write to the same file: each line there says whose it is, and the last one has its newline, too.
void RankOutput::write_filtered(StreamOutput& output, const ConsolePiece& piece, bool goes_on,
                                const std::string& prefix) {
  std::string found;
  std::string_view lines = piece.bytes;
  while (!lines.empty()) {
    const std::size_t end = std::min(lines.find('\n'), lines.size() - 1) + 1;
    const std::string_view line = lines.substr(0, end);
    lines.remove_prefix(end);
    const bool has_begun = std::exchange(goes_on, false) && output.is_filtered_open;
    output.is_filtered_open = has_begun || has_filtered(line, output.filters);
    if (!output.is_filtered_open) continue;
    if (!has_begun) found += prefix;
    found += line;
  }
  output.is_filtered_open = output.is_filtered_open && piece.split;
  if (!found.empty() && !found.ends_with('\n') && !piece.split) found += '\n';
  output.filtered.write(found);
}

void RankOutput::console(Stream stream, std::span<const ConsolePiece> pieces, bool finish_line,
                         AgentConnection* agent) {
  if (agent == nullptr || pieces.empty() || !of(stream).is_shown) return;
  const bool is_stalled = agent->window().state() == ConsoleWindow::State::kStalled;
  if (!is_stalled && agent->send_output(head(stream), pieces, finish_line) > 0) return;
  for (const ConsolePiece& piece : pieces) {
    console_dropped_.lines += count_lines(piece.bytes) + (piece.split || finish_line ? 1 : 0);
    console_dropped_.bytes += static_cast<std::int64_t>(piece.bytes.size());
  }
}

void RankOutput::show_open_lines(TimePoint now, AgentConnection& agent) {
  for (const Stream stream : kStreams) {
    StreamOutput& output = of(stream);
    const auto due = output.open_line.deadline();
    if (!due || now < *due) continue;
    output.open_line.shown(now);
    if (!output.is_shown || agent.window().state() != ConsoleWindow::State::kOpen) continue;
    newest_frames(output.rest, frames_);
    OutputHead open = head(stream);
    open.is_open = true;
    const ConsolePiece piece{std::string_view(frames_).substr(0, character_end(frames_, kOpenLineBytesMax)), false};
    agent.send_output(open, std::span(&piece, 1), false);
  }
}

std::optional<TimePoint> RankOutput::next_open_line() const {
  std::optional<TimePoint> next;
  for (const StreamOutput& output : streams_)
    if (const auto due = output.open_line.deadline()) next = next ? std::min(*next, *due) : due;
  return next;
}

void RankOutput::finish(AgentConnection* agent) {
  for (const Stream stream : kStreams) {
    StreamOutput& output = of(stream);
    if (!output.rest.empty()) {
      newest_frames(output.rest + "\n", frames_);
      const bool is_bar = stream == Stream::kErr || has_terminal_;
      const std::string_view line = is_bar ? std::string_view(frames_) : output.rest;
      const ConsolePiece piece{line, false};
      note(stream, piece);
      console(stream, std::span(&piece, 1), line.back() != '\n', agent);
      output.rest.clear();
    }
    output.read_end.reset();
    output.write_end.reset();
  }
  log_.look_last();
  for (StreamOutput& output : streams_) output.file.look_last();
  std::vector<std::optional<OutputDropped>> dropped = {log_.take_dropped(rank_)};
  log_ = {};
  for (StreamOutput& output : streams_) {
    for (LogFile* file : {&output.file, &output.filtered}) {
      dropped.push_back(file->take_dropped(rank_));
      *file = {};
    }
  }
  if (agent == nullptr) return;
  report_console_drops(*agent);
  for (const auto& one : dropped)
    if (one) agent->send(*one);
}

void RankOutput::report_console_drops(AgentConnection& agent) {
  if (console_dropped_.bytes == 0) return;
  agent.send(console_dropped_);
  console_dropped_.lines = console_dropped_.bytes = 0;
}

}  // namespace sgd::keeper
