// Those who share a secret are of one cluster without having met; those who do not, are not.

#include "launcher/rendezvous/membership.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include <catch2/catch.hpp>

#include "launcher/net/ca.hpp"
#include "launcher/net/certificate.hpp"
#include "launcher/net/cluster_state.hpp"
#include "launcher/net/identity_files.hpp"
#include "launcher/rendezvous/secret.hpp"

using namespace sgd;
using rendezvous::Folders;

namespace {

class Folder {
 public:
  Folder() {
    char name[] = "/tmp/sgd-rendezvous-XXXXXX";
    path_ = ::mkdtemp(name);
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  [[nodiscard]] std::string file(const std::string& name) const { return path_ + "/" + name; }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

constexpr const char* kSecret = "0123456789abcdef0123";

}  // namespace

TEST_CASE("derived authority: the same secret and label make one authority, others another one") {
  const auto derive = [](const char* secret, const char* label) {
    return net::CertificateAuthority::derive(secret, label, 1'700'000'000);
  };
  const auto one = derive(kSecret, "run");
  const auto same = derive(kSecret, "run");
  const auto key = [](const net::CertificateAuthority& ca) {
    return net::public_key_digest_in(ca.certificate()).value();
  };
  CHECK(key(one) == key(same));
  CHECK(key(one) != key(derive(kSecret, "other")));
  CHECK(key(one) != key(derive("0123456789abcdef0124", "run")));
  // What one has issued, the other one has signed.
  const std::string node_key = net::make_key();
  const auto issued =
      one.issue(net::make_request(node_key).value(), {net::Role::kAgent, "n1", false, {}}, 1'700'000'000);
  REQUIRE(issued.ok());
  CHECK(net::check_issued(issued.value(), node_key, same.certificate()).ok());
  CHECK_FALSE(net::check_issued(issued.value(), node_key, derive(kSecret, "other").certificate()).ok());
}

TEST_CASE("membership: each machine makes its own identities, the first one the coordinator's as well") {
  const Folder first;
  const Folder second;
  const Folders head = Folders::below(first.path());
  const Folders other = Folders::below(second.path());
  const auto a = rendezvous::make_identities(head, kSecret, "id", "node0000", true);
  const auto b = rendezvous::make_identities(other, kSecret, "id", "node0001", false);
  REQUIRE(a.ok());
  REQUIRE(b.ok());
  CHECK(b.value()->own().role == net::Role::kClient);
  CHECK(b.value()->own().is_admin);
  const auto agent = net::load_identity(other.agent + "/identity");
  const auto coordinator = net::load_identity(net::coordinator_identity_folder(head.coordinator));
  REQUIRE(agent.ok());
  REQUIRE(coordinator.ok());
  CHECK(net::identity_in(agent.value().certificate).value().name == "node0001");
  CHECK(net::check_issued(agent.value().certificate, agent.value().key, coordinator.value().ca).ok());
  CHECK(std::filesystem::exists(net::ca_folder(head.coordinator) + "/ca.key"));
  CHECK_FALSE(std::filesystem::exists(net::ca_folder(other.coordinator)));
}

TEST_CASE("secret: a file that is too short, absent or open to others is said with the remedy") {
  const Folder folder;
  const auto why_not = [](const Result<std::string>& secret) { return secret ? "" : secret.error().message; };
  const mode_t before = ::umask(077);
  CHECK_THAT(why_not(rendezvous::read_secret(folder.file("none"))), Catch::Contains("No such file"));
  std::ofstream(folder.file("short")) << "  secret \n\n";
  CHECK_THAT(why_not(rendezvous::read_secret(folder.file("short"))),
             Catch::Contains("a secret of 6 bytes, and fewer than 16 can be guessed"));
  std::ofstream(folder.file("long")) << std::string(64 << 10, 'x');
  CHECK(rendezvous::read_secret(folder.file("long")).ok());
  std::ofstream(folder.file("long"), std::ios::app) << "x";
  CHECK_THAT(why_not(rendezvous::read_secret(folder.file("long"))), Catch::Contains("more than 64KiB"));
  std::ofstream(folder.file("good")) << " " << kSecret << "\n";
  CHECK(rendezvous::read_secret(folder.file("good")).value() == kSecret);
  ::umask(before);
  ::chmod(folder.file("good").c_str(), 0640);  // As Kubernetes mounts it for a group.
  CHECK(rendezvous::read_secret(folder.file("good")).ok());
  ::chmod(folder.file("good").c_str(), 0644);
  if (::geteuid() == 0)
    CHECK(rendezvous::read_secret(folder.file("good")).ok());  // Root's own: as it mounts it for all.
  if (::geteuid() == 0) REQUIRE(::chown(folder.file("good").c_str(), 1000, 1000) == 0);
  CHECK_THAT(why_not(rendezvous::read_secret(folder.file("good"))),
             Catch::Contains("every account of this machine can read"));
  CHECK_THAT(why_not(rendezvous::read_secret(folder.file("good"))), Catch::Contains("chmod 600"));
  ::chmod(folder.file("good").c_str(), 0602);
  CHECK_THAT(why_not(rendezvous::read_secret(folder.file("good"))), Catch::Contains("can write"));
  ::chmod(folder.file("good").c_str(), 0644);
  CHECK_FALSE(rendezvous::read_or_make_secret(folder.file("good")).ok());  // The usual place is ours alone.
}

TEST_CASE("secret: however many make it at once, it is one") {
  const Folder folder;
  const std::string file = folder.file("below/secret");
  std::vector<std::string> found(8);
  std::vector<std::thread> threads;
  for (std::string& one : found)
    threads.emplace_back([&one, &file] { one = rendezvous::read_or_make_secret(file).value(); });
  for (std::thread& thread : threads) thread.join();
  for (const std::string& one : found) CHECK(one == found.front());
  CHECK(found.front().size() >= 40);
  struct stat facts {};
  REQUIRE(::stat(file.c_str(), &facts) == 0);
  CHECK((facts.st_mode & 0777) == 0600);
  CHECK(std::distance(std::filesystem::directory_iterator(folder.file("below")), {}) == 1);
}
