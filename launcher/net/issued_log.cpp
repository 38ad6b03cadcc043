#include "launcher/net/issued_log.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

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

/// A crash may have left half a line; the next one begins on its own.
bool ends_inside_line(int fd, off_t size) {
  char last = '\n';
  return size > 0 && ::pread(fd, &last, 1, size - 1) == 1 && last != '\n';
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

}  // namespace

Result<IssuedLog> IssuedLog::load(const std::string& state_dir) {
  IssuedLog log(state_dir + "/issued.jsonl");
  if (const Status read = log.refresh(); !read) return read.error();
  return log;
}

Status IssuedLog::refresh() {
  if (stamp_of(path_).bytes < static_cast<std::int64_t>(read_bytes_)) {  // Begun anew by another process.
    read_bytes_ = 0;
    holders_.clear();
    of_serial_.clear();
  }
  const Result<std::string> text = read_from(path_, read_bytes_);
  if (!text) return text.error();
  std::string_view rest = text.value();
  for (std::size_t end = rest.find('\n'); end != std::string_view::npos; end = rest.find('\n')) {
    const Result<codec::Json> line = codec::parse_object(rest.substr(0, end), codec::kDepthMax);
    IssuedLine issued;
    if (line.ok() && codec::read_fields(line.value(), issued).ok())
      note({role_of(issued.role).value_or(Role::kNone), issued.name, issued.serial, issued.is_admin, issued.issued_s,
            issued.expires_s});
    read_bytes_ += end + 1;
    rest.remove_prefix(end + 1);
  }
  return {};
}

/// The old file is kept under another name; what still holds goes on in the new one.
Status IssuedLog::begin_anew(std::int64_t now_s) {
  std::erase_if(holders_, [&](const auto& one) { return one.second.expires_s <= now_s; });
  of_serial_.clear();
  std::string text;
  for (const auto& [key, holder] : holders_) {
    of_serial_[holder.serial] = key;
    text += line_of(holder, "carried over");
  }
  if (::rename(path_.c_str(), (path_ + ".old").c_str()) != 0) return system_error("cannot rename " + path_);
  read_bytes_ = text.size();
  return write_file(path_, text, Readers::kOwner);
}

void IssuedLog::note(PeerIdentity identity) {
  const std::string key = key_of(identity.role, identity.name);
  of_serial_[identity.serial] = key;
  PeerIdentity& holder = holders_[key];
  if (identity.expires_s >= holder.expires_s) holder = std::move(identity);
}

Status IssuedLog::add(const PeerIdentity& identity, const std::string& why) {
  if (stamp_of(path_).bytes > kFileBytesMax)
    if (const Status anew = begin_anew(identity.issued_s); !anew) return anew;
  const int fd = ::open(path_.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return system_error("cannot open " + path_);
  const off_t size = ::lseek(fd, 0, SEEK_END);
  const std::string text = (ends_inside_line(fd, size) ? "\n" : "") + line_of(identity, why);
  const bool is_written =
      ::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size()) && ::fsync(fd) == 0;
  Error failed = system_error("cannot write " + path_);
  // Nobody gets the certificate, so it must not take the name either.
  if (!is_written && (size < 0 || ::ftruncate(fd, size) != 0)) failed.message += "; a line of it may be there";
  ::close(fd);
  if (!is_written) return failed;
  note(identity);
  return {};
}

const PeerIdentity* IssuedLog::holder(Role role, const std::string& name) const {
  const auto found = holders_.find(key_of(role, name));
  return found == holders_.end() ? nullptr : &found->second;
}

const PeerIdentity* IssuedLog::holder_of(const std::string& serial) const {
  const auto key = of_serial_.find(serial);
  return key == of_serial_.end() ? nullptr : &holders_.at(key->second);
}

}  // namespace sgd::net
