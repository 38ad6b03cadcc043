#include "launcher/agent/agent_journal.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include <fmt/format.h>

#include "common/checkpoint/crc32c.hpp"

namespace sgd::agent {
namespace {

constexpr std::string_view kMagic = "sgd-agent-journal 3\n";
constexpr std::size_t kHeadBytes = 8;

void put_u32(std::string& out, std::uint32_t value) {
  for (int shift = 0; shift < 32; shift += 8) out.push_back(static_cast<char>(value >> shift & 0xff));
}

std::uint32_t get_u32(std::string_view bytes) {
  std::uint32_t value = 0;
  for (std::size_t i = 4; i-- > 0;) value = value << 8 | static_cast<unsigned char>(bytes[i]);
  return value;
}

std::uint32_t checksum(std::string_view text) {
  return checkpoint::crc32c(0, std::as_bytes(std::span(text)));
}

void put_record(std::string& out, std::string_view text) {
  put_u32(out, static_cast<std::uint32_t>(text.size()));
  put_u32(out, checksum(text));
  out.append(text);
}

Status write_whole(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return system_error("cannot write the journal");
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
  return {};
}

Result<std::string> read_whole(int fd) {
  std::string bytes;
  char piece[64 << 10];
  for (;;) {
    const ssize_t count = ::read(fd, piece, sizeof piece);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return system_error("cannot read the journal");
    if (count == 0) return bytes;
    bytes.append(piece, static_cast<std::size_t>(count));
    if (bytes.size() > AgentJournal::kBytesMax + (4 << 20)) return Error{"the journal is too long"};
  }
}

}  // namespace

// ---- reading ----

Result<std::optional<PastJournal>> PastJournal::open(const std::string& path) {
  const process::UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!file && errno == ENOENT) return std::optional<PastJournal>();
  if (!file) return system_error("cannot open " + path);
  auto bytes = read_whole(file.get());
  if (!bytes) return bytes.error();
  PastJournal past;
  past.bytes_ = std::move(bytes).value();
  if (!past.bytes_.starts_with(kMagic)) return Error{path + " is not a journal of this program"};
  past.at_ = kMagic.size();
  const auto text = past.next_text();
  if (!text) return Error{path + " has no whole header"};
  auto header = decode_header(*text);
  if (!header) return Error{path + ": " + header.error().message};
  past.header_ = std::move(header).value();
  if (const Status read = past.read_start(); !read) return Error{path + ": " + read.error().message};
  past.first_at_ = past.at_;
  return std::optional<PastJournal>(std::move(past));
}

Status PastJournal::read_start() {
  std::vector<storage::StateRow> rows;
  for (std::size_t row = 0; row < header_.rows; ++row) {
    const auto text = next_text();
    if (!text) return Error{"its state is not whole"};
    auto read = decode_row(*text);
    if (!read) return read.error();
    rows.push_back(std::move(read).value());
  }
  auto start = decode_start(std::move(rows));
  if (!start) return start.error();
  start_ = std::move(start).value();
  return {};
}

std::optional<std::string_view> PastJournal::next_text() {
  const std::string_view rest = std::string_view(bytes_).substr(at_);
  if (rest.size() < kHeadBytes) return std::nullopt;
  const std::size_t length = get_u32(rest);
  if (rest.size() - kHeadBytes < length) return std::nullopt;
  const std::string_view text = rest.substr(kHeadBytes, length);
  if (checksum(text) != get_u32(rest.substr(4))) return std::nullopt;
  at_ += kHeadBytes + length;
  return text;
}

Result<std::optional<JournalRecord>> PastJournal::next() {
  const auto text = next_text();
  if (!text) return std::optional<JournalRecord>();
  auto record = decode_record(*text);
  if (!record) return record.error();
  return std::optional<JournalRecord>(std::move(record).value());
}

// ---- writing ----

Status AgentJournal::begin(JournalHeader header, const std::vector<storage::StateRow>& state) {
  const std::string fresh = path_ + ".new";
  header.rows = state.size();
  std::string bytes(kMagic);
  put_record(bytes, encode(header));
  for (const storage::StateRow& row : state) put_record(bytes, encode(row));
  long_bytes_ = std::max({rewrite_bytes_, 2 * bytes.size(), 2 * bytes_});  // Tried again then, should it fail.
  if (bytes.size() > kBytesMax)
    return Error{
        fmt::format("what this agent knows takes {} MiB, {} can be kept", bytes.size() >> 20, kBytesMax >> 20)};
  process::UniqueFd file(::open(fresh.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file) return system_error("cannot create " + fresh);
  Status put = write_whole(file.get(), bytes);
  if (put && ::rename(fresh.c_str(), path_.c_str()) != 0) put = system_error("cannot put the journal at " + path_);
  if (!put) {
    (void)::unlink(fresh.c_str());  // Ignoring: the next one takes its place.
    return put;
  }
  file_ = std::move(file);
  bytes_ = bytes.size();
  long_bytes_ = std::max(rewrite_bytes_, 2 * bytes_);
  return {};
}

Status AgentJournal::go_on(std::size_t bytes) {
  file_.reset(::open(path_.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC | O_NOFOLLOW));
  if (!file_) return system_error("cannot open " + path_);
  if (::ftruncate(file_.get(), static_cast<off_t>(bytes)) != 0) {
    file_.reset();
    return system_error("cannot cut " + path_);
  }
  bytes_ = bytes;
  return {};
}

Status AgentJournal::append(std::span<const core::TimedEvent> events, std::int64_t told) {
  if (!is_on() || events.empty()) return {};
  std::string bytes;
  for (const core::TimedEvent& event : events)
    put_record(bytes, encode(event, &event == &events.back() ? told : kNotChecked));
  Status status;
  if (bytes_ + bytes.size() > kBytesMax) {
    status = Error{fmt::format("its journal has more than {} MiB, and could not be rewritten", kBytesMax >> 20)};
  } else {
    status = write_whole(file_.get(), bytes);
  }
  if (!status) remove();
  bytes_ += bytes.size();
  return status;
}

void AgentJournal::remove() {
  file_.reset();
  (void)::unlink(path_.c_str());  // Ignoring: there may be none.
}

std::string boot_id() {
  const process::UniqueFd file(::open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC));
  if (!file) return {};
  auto text = read_whole(file.get());
  if (!text) return {};
  std::string id = std::move(text).value();
  while (!id.empty() && id.back() == '\n') id.pop_back();
  return id;
}

}  // namespace sgd::agent
