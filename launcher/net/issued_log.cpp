#include "launcher/net/issued_log.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <optional>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "common/messages/codec.hpp"
#include "launcher/net/private_files.hpp"

namespace sgd::net {
namespace {

struct IssuedLine {
  std::int64_t issued_s = 0;
  std::int64_t expires_s = 0;
  std::string role;
  std::string name;
  bool is_admin = false;
  std::string serial;
  std::string why;
};

std::string key_of(Role role, const std::string& name) {
  return fmt::format("{}/{}", role_name(role), name);
}

Result<std::string> read_from(const std::string& path, std::uint64_t offset) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0 && errno == ENOENT) return std::string();
  if (fd < 0) return system_error("cannot open " + path);
  std::string all;
  std::array<char, 64 << 10> some;
  while (true) {
    const ssize_t count = ::pread(fd, some.data(), some.size(), static_cast<off_t>(offset + all.size()));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) {
      const Error failed = system_error("cannot read " + path);
      ::close(fd);
      if (count < 0) return failed;
      return all;
    }
    all.append(some.data(), static_cast<std::size_t>(count));
  }
}

constexpr off_t kTailBytes = 4096;  // More than a line of ours has.

/// What is behind the last end of a line, at most so much; nothing: it cannot be read.
std::optional<std::string> tail_of(int fd, off_t size) {
  if (size < 0) return std::nullopt;
  std::string last(static_cast<std::size_t>(std::min(size, kTailBytes)), '\0');
  const ssize_t count = ::pread(fd, last.data(), last.size(), size - static_cast<off_t>(last.size()));
  if (count != static_cast<ssize_t>(last.size())) return std::nullopt;
  const std::size_t end = last.rfind('\n');
  return end == std::string::npos ? last : last.substr(end + 1);
}

}  // namespace
}  // namespace sgd::net

namespace sgd::codec {

template <>
inline constexpr auto kMessage<net::IssuedLine> = message("", required("issued_s", &net::IssuedLine::issued_s),
                                                          required("expires_s", &net::IssuedLine::expires_s),
                                                          required("role", &net::IssuedLine::role),
                                                          required("name", &net::IssuedLine::name),
                                                          optional("is_admin", &net::IssuedLine::is_admin),
                                                          required("serial", &net::IssuedLine::serial),
                                                          optional("why", &net::IssuedLine::why));

}  // namespace sgd::codec

namespace sgd::net {

namespace {

std::string line_of(const PeerIdentity& identity, const std::string& why) {
  const IssuedLine line{identity.issued_s,
                        identity.expires_s,
                        role_name(identity.role),
                        identity.name,
                        identity.is_admin,
                        identity.serial,
                        why};
  return codec::print(codec::write_fields(line)) + "\n";
}

std::optional<PeerIdentity> read_line(std::string_view text) {
  const Result<codec::Json> line = codec::parse_object(text, codec::kDepthMax);
  IssuedLine issued;
  if (!line || !codec::read_fields(line.value(), issued).ok()) return std::nullopt;
  const std::optional<Role> role = role_of(issued.role);
  if (!role || issued.name.empty() || issued.serial.empty()) return std::nullopt;
  return PeerIdentity{*role, issued.name, issued.serial, issued.is_admin, issued.issued_s, issued.expires_s};
}

/// What is behind the last end of a line is left in `rest`.
std::optional<std::string_view> next_line(std::string_view& rest) {
  const std::size_t end = rest.find('\n');
  if (end == std::string_view::npos) return std::nullopt;
  const std::string_view line = rest.substr(0, end);
  rest.remove_prefix(end + 1);
  return line;
}

}  // namespace

Result<IssuedLog> IssuedLog::load(const std::string& state_dir) {
  IssuedLog log(state_dir + "/issued.jsonl");
  if (const Status read = log.refresh(); !read) return read.error();
  return log;
}

Status IssuedLog::refresh() {
  const FileStamp stamp = stamp_of(path_);
  if (stamp.inode != inode_ || stamp.bytes < static_cast<std::int64_t>(read_bytes_)) {  // Begun anew.
    inode_ = stamp.inode;
    read_bytes_ = 0;
    read_lines_ = 0;
    holders_.clear();
    of_serial_.clear();
  }
  const Result<std::string> text = read_from(path_, read_bytes_);
  if (!text) return text.error();
  std::string_view rest = text.value();
  while (const auto line = next_line(rest)) {
    auto identity = read_line(*line);
    if (!identity) {
      inode_ = 0;  // It is read from its beginning the next time: somebody may have mended it where it lies.
      return damaged(read_lines_ + 1);
    }
    ++read_lines_;
    note(std::move(*identity));
  }
  read_bytes_ += text.value().size() - rest.size();
  // An editor may have left out the last end: then it is a line all the same. It is read again with its end.
  if (auto last = read_line(rest)) note(std::move(*last));
  return {};
}

/// A line less would give a name away that somebody holds, and keep `revoke` from finding it.
Error IssuedLog::damaged(std::int64_t line) const {
  return Error{fmt::format(
      "{} is damaged in line {}, which said who holds a name. Put a copy from before in its place. Or take that line "
      "out, or move the file away: those certificates hold until they end (an agent's a day, a client's 90 days), "
      "while their names are free for whoever joins, and `sgd-launch revoke` shuts them out only with --unknown",
      path_, line)};
}

/// The old file is kept under another name; every certificate that still holds goes on in the new one, whoever has
/// added it: each can be revoked by its serial.
Status IssuedLog::begin_anew(std::int64_t now_s) {
  const Result<std::string> all = read_from(path_, 0);
  if (!all) return all.error();
  std::string_view rest = all.value();
  std::string kept;
  std::int64_t lines = 0;
  while (const auto line = next_line(rest)) {
    const auto identity = read_line(*line);
    ++lines;
    if (!identity) return damaged(lines);
    if (identity->expires_s > now_s) kept.append(*line).push_back('\n');
  }
  if (const auto last = read_line(rest); last && last->expires_s > now_s) kept.append(rest).push_back('\n');
  // By a second name, where the disk has such: so there is a whole file whatever happens meanwhile.
  const std::string old = path_ + ".old";
  (void)::unlink(old.c_str());  // Ignoring: it may not be there.
  if (::link(path_.c_str(), old.c_str()) != 0 && ::rename(path_.c_str(), old.c_str()) != 0)
    return system_error("cannot rename " + path_);
  if (const Status written = write_file(path_, kept, Readers::kOwner); !written) return written;
  kept_bytes_ = static_cast<std::int64_t>(kept.size());
  return refresh();
}

void IssuedLog::note(PeerIdentity identity) {
  const std::string key = key_of(identity.role, identity.name);
  of_serial_[identity.serial] = {key, identity.issued_s, identity.expires_s};
  PeerIdentity& holder = holders_[key];
  if (identity.expires_s >= holder.expires_s) holder = std::move(identity);
}

Status IssuedLog::add(const PeerIdentity& identity, const std::string& why) {
  // What had to be kept is no reason to begin anew each time.
  if (stamp_of(path_).bytes > std::max(file_bytes_max, 2 * kept_bytes_))
    if (const Status anew = begin_anew(identity.issued_s); !anew) return anew;
  if (const Status written = append(line_of(identity, why)); !written) return written;
  note(identity);
  return {};
}

Status IssuedLog::append(const std::string& line) const {
  const int fd = ::open(path_.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return system_error("cannot open " + path_);
  off_t size = ::lseek(fd, 0, SEEK_END);
  std::optional<std::string> tail = tail_of(fd, size);
  // A crash has left it: joined to the next line, or ended as one of its own, it would be damage.
  while (tail && !tail->empty() && !read_line(*tail)) {
    size -= static_cast<off_t>(tail->size());
    tail = ::ftruncate(fd, size) == 0 ? tail_of(fd, size) : std::nullopt;
  }
  if (!tail) {
    const Error failed = system_error("cannot mend the torn end of " + path_);
    ::close(fd);
    return failed;
  }
  const std::string text = (tail->empty() ? "" : "\n") + line;  // An editor may have left out the last end.
  const bool is_written =
      ::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size()) && ::fsync(fd) == 0;
  Error failed = system_error("cannot write " + path_);
  // Nobody gets the certificate, so it must not take the name either.
  if (!is_written && ::ftruncate(fd, size) != 0) failed.message += "; a line of it may be there";
  ::close(fd);
  if (!is_written) return failed;
  return {};
}

const PeerIdentity* IssuedLog::holder(Role role, const std::string& name) const {
  const auto found = holders_.find(key_of(role, name));
  return found == holders_.end() ? nullptr : &found->second;
}

const PeerIdentity* IssuedLog::holder_of(const std::string& serial) const {
  const auto key = of_serial_.find(serial);
  return key == of_serial_.end() ? nullptr : &holders_.at(key->second.key);
}

std::vector<IssuedLog::Certificate> IssuedLog::certificates_of(const std::string& name) const {
  const std::string agent = key_of(Role::kAgent, name), client = key_of(Role::kClient, name);
  std::vector<Certificate> found;
  for (const auto& [serial, noted] : of_serial_)
    if (noted.key == agent || noted.key == client) found.push_back({serial, noted.issued_s, noted.expires_s});
  return found;
}

}  // namespace sgd::net
