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
constexpr int kRevokedSchema = 1;

struct RevokedFile {
  int schema_version = kRevokedSchema;
  std::vector<Revocation> revoked;
  std::vector<Readmission> readmitted;
};

}  // namespace
}  // namespace sgd::net

namespace sgd::codec {

template <>
inline constexpr auto kMessage<net::Revocation> = message("", optional("serial", &net::Revocation::serial),
                                                          optional("name", &net::Revocation::name),
                                                          required("at_s", &net::Revocation::at_s));
template <>
inline constexpr auto kMessage<net::Readmission> = message("", required("serial", &net::Readmission::serial),
                                                           required("name", &net::Readmission::name),
                                                           required("issued_s", &net::Readmission::issued_s));
template <>
inline constexpr auto kMessage<net::RevokedFile> =
    message("", required("schema_version", &net::RevokedFile::schema_version),
            required("revoked", &net::RevokedFile::revoked), optional("readmitted", &net::RevokedFile::readmitted));

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
  // Never taken as "nobody is revoked": who reads this refuses to begin, or goes on with what it has read before.
  const auto damaged = [&](const Error& error) {
    return Error{fmt::format(
        "{} is damaged: {}. Put a copy from before in its place. Or move it away, and before the coordinator's next "
        "start say `sgd-launch revoke` of each that was shut out (audit.jsonl has them, by \"action\":\"revoke\"): "
        "without it they all come in again",
        revoked_file(folder), error.message)};
  };
  const Result<codec::Json> json = codec::parse_object(text.value(), codec::kDepthMax);
  if (!json) return damaged(json.error());
  RevokedFile file;
  if (const Status read = codec::read_fields(json.value(), file); !read) return damaged(read.error());
  if (file.schema_version != kRevokedSchema)
    return damaged(
        Error{fmt::format("its schema_version is {}, and only {} is known", file.schema_version, kRevokedSchema)});
  for (Revocation& entry : file.revoked)
    if (const Status added = list.add(std::move(entry)); !added) return damaged(added.error());
  for (Readmission& entry : file.readmitted)
    if (const Status added = list.readmit(std::move(entry)); !added) return damaged(added.error());
  return list;
}

Status RevokedList::save(const std::string& folder, std::int64_t now_s) const {
  RevokedFile file;
  const std::int64_t longest_s = validity_s(Role::kCoordinator);
  const bool has_room = size() <= kEntriesMax / 2;
  std::copy_if(entries_.begin(), entries_.end(), std::back_inserter(file.revoked),
               [&](const Revocation& entry) { return has_room || entry.at_s + longest_s >= now_s; });
  for (const auto& [serial, entry] : readmitted_)
    if (has_room || entry.issued_s + longest_s >= now_s) file.readmitted.push_back(entry);
  return write_file(revoked_file(folder), codec::write_fields(file).dump(1) + "\n", Readers::kOwner);
}

Status RevokedList::add(Revocation entry) {
  if (entry.serial.empty() == entry.name.empty()) return Error{"an entry names either a serial or a name"};
  if (size() >= kEntriesMax) return Error{fmt::format("{} revocations: the list is full", kEntriesMax)};
  if (entry.serial.empty()) {
    std::int64_t& until_s = names_[entry.name];
    until_s = std::max(until_s, entry.at_s);
    std::erase_if(readmitted_, [&](const auto& one) { return one.second.name == entry.name; });
  } else {
    serials_.insert(entry.serial);
  }
  entries_.push_back(std::move(entry));
  return {};
}

Status RevokedList::readmit(Readmission entry) {
  if (entry.serial.empty() || entry.name.empty()) return Error{"who is let in again has a serial and a name"};
  if (size() >= kEntriesMax) return Error{fmt::format("{} revocations: the list is full", kEntriesMax)};
  const std::string serial = entry.serial;
  readmitted_[serial] = std::move(entry);
  return {};
}

bool RevokedList::contains(const PeerIdentity& identity) const {
  if (serials_.contains(identity.serial)) return true;
  if (readmitted_.contains(identity.serial)) return false;
  const auto name = names_.find(identity.name);
  return name != names_.end() && identity.role != Role::kCoordinator && identity.issued_s <= name->second;
}

}  // namespace sgd::net
