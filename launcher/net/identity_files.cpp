#include "launcher/net/identity_files.hpp"

#include <algorithm>
#include <cerrno>

#include <fmt/format.h>

#include "common/messages/codec.hpp"
#include "launcher/net/ca.hpp"
#include "launcher/net/certificate.hpp"
#include "launcher/net/private_files.hpp"

namespace sgd::net {
namespace {

constexpr std::size_t kRevokedBytesMax = RevokedList::kEntriesMax * (kNameBytesMax + 128);
constexpr std::string_view kKeyBegin = "-----BEGIN PRIVATE KEY-----";

struct RevokedFile {
  int schema_version = 1;
  std::vector<Revocation> revoked;
};

}  // namespace
}  // namespace sgd::net

namespace sgd::codec {

template <>
inline constexpr auto kMessage<net::Revocation> = message("", optional("serial", &net::Revocation::serial),
                                                          optional("name", &net::Revocation::name),
                                                          required("at_s", &net::Revocation::at_s));
template <>
inline constexpr auto kMessage<net::RevokedFile> = message(
    "", required("schema_version", &net::RevokedFile::schema_version), required("revoked", &net::RevokedFile::revoked));

}  // namespace sgd::codec

namespace sgd::net {

std::string identity_file(const std::string& folder) {
  return folder + "/identity.pem";
}
std::string ca_file(const std::string& folder) {
  return folder + "/ca.pem";
}
std::string revoked_file(const std::string& folder) {
  return folder + "/revoked.json";
}

Result<IdentityFiles> load_identity(const std::string& folder) {
  const Result<std::string> both = read_file(identity_file(folder), 2 * kPemBytesMax, Readers::kOwner);
  if (!both) return both.error();
  Result<std::string> ca = read_file(ca_file(folder), kPemBytesMax, Readers::kAnybody);
  if (!ca) return ca.error();
  const std::size_t key = both.value().find(kKeyBegin);
  if (key == std::string::npos) return Error{identity_file(folder) + " holds no private key"};
  IdentityFiles files{both.value().substr(0, key), both.value().substr(key), std::move(ca).value()};
  if (const Status whole = check_issued(files.certificate, files.key, files.ca); !whole)
    return Error{folder + ": " + whole.error().message};
  return files;
}

Status save_identity(const std::string& folder, const IdentityFiles& files) {
  if (const Status whole = check_issued(files.certificate, files.key, files.ca); !whole) return whole;
  if (const Status made = make_private_folder(folder); !made) return made;
  const Result<std::string> before = read_file(ca_file(folder), kPemBytesMax, Readers::kAnybody);
  if (before.ok() && before.value() != files.ca)
    return Error{
        fmt::format("{} holds an identity of another cluster: remove the folder, or name another one", folder)};
  if (!before.ok() && before.error().code != ENOENT) return before.error();
  if (!before.ok()) {
    if (const Status ca = write_file(ca_file(folder), files.ca, Readers::kAnybody); !ca) return ca;
  }
  return write_file(identity_file(folder), files.certificate + files.key, Readers::kOwner);
}

Result<RevokedList> RevokedList::load(const std::string& folder) {
  const Result<std::string> text = read_file(revoked_file(folder), kRevokedBytesMax, Readers::kAnybody);
  RevokedList list;
  if (!text && text.error().code == ENOENT) return list;
  if (!text) return text.error();
  const auto damaged = [&](const Error& error) { return Error{revoked_file(folder) + ": " + error.message}; };
  const Result<codec::Json> json = codec::parse_object(text.value(), codec::kDepthMax);
  if (!json) return damaged(json.error());
  RevokedFile file;
  if (const Status read = codec::read_fields(json.value(), file); !read) return damaged(read.error());
  for (Revocation& entry : file.revoked)
    if (const Status added = list.add(std::move(entry)); !added) return damaged(added.error());
  return list;
}

Status RevokedList::save(const std::string& folder, std::int64_t now_s) const {
  RevokedFile file;
  const std::int64_t longest_s = validity_s(Role::kCoordinator);
  const bool has_room = entries_.size() <= kEntriesMax / 2;
  std::copy_if(entries_.begin(), entries_.end(), std::back_inserter(file.revoked),
               [&](const Revocation& entry) { return has_room || entry.at_s + longest_s >= now_s; });
  return write_file(revoked_file(folder), codec::write_fields(file).dump(1) + "\n", Readers::kOwner);
}

Status RevokedList::add(Revocation entry) {
  if (entry.serial.empty() == entry.name.empty()) return Error{"an entry names either a serial or a name"};
  if (entries_.size() >= kEntriesMax) return Error{fmt::format("{} revocations: the list is full", kEntriesMax)};
  if (entry.serial.empty()) {
    std::int64_t& until_s = names_[entry.name];
    until_s = std::max(until_s, entry.at_s);
  } else {
    serials_.insert(entry.serial);
  }
  entries_.push_back(std::move(entry));
  return {};
}

bool RevokedList::contains(const PeerIdentity& identity) const {
  if (serials_.contains(identity.serial)) return true;
  const auto name = names_.find(identity.name);
  return name != names_.end() && identity.role != Role::kCoordinator && identity.issued_s <= name->second;
}

}  // namespace sgd::net
