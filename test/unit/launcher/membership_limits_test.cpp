// Written limits of a cluster's books: of tokens, of who is let in no more, and of what is read of a certificate.

#include <catch2/catch.hpp>

#include "launcher/net/ca.hpp"
#include "launcher/net/certificate.hpp"
#include "launcher/net/identity_files.hpp"
#include "launcher/net/issued_log.hpp"
#include "launcher/net/private_files.hpp"
#include "launcher/net/token_store.hpp"
#include "test/unit/launcher/tls_test_support.hpp"

using namespace sgd;
using net::Role;

TEST_CASE("ca: a request or an identity that is too long is not read; limit kPemBytesMax", "[net]") {
  test::TemporaryFolder folder;
  const std::int64_t now_s = test::unix_now_s();
  const net::CertificateAuthority ca = net::CertificateAuthority::create(now_s);
  const auto refused = ca.issue(std::string(net::kPemBytesMax + 1, 'x'), {Role::kAgent, "n1", false, {}}, now_s, 10);
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().message == "a signing request of 8193 bytes");
  const std::string file = net::identity_file(folder.path());
  REQUIRE(net::write_file(file, std::string(2 * net::kPemBytesMax + 1, 'x'), net::Readers::kOwner).ok());
  CHECK_FALSE(net::load_identity(folder.path()).ok());
}

TEST_CASE("token store: full, it says what to do, can be read again, and its tokens hold; limit kTokensMax", "[net]") {
  test::TemporaryFolder folder;
  const std::int64_t now_s = test::unix_now_s();
  const net::JoinToken first = net::make_join_token(net::sha256({}), Role::kAgent);
  const std::string longest(net::kNameBytesMax, 'n');
  net::TokenStore store;
  REQUIRE(store.add(first, longest, true, now_s, 900).ok());
  store.mark_used(net::to_hex(first.id), longest, now_s);
  for (std::size_t number = 1; number < net::TokenStore::kTokensMax; ++number) {
    net::JoinToken token = first;
    for (std::size_t byte = 0; byte < 4; ++byte) token.id[byte] = static_cast<std::uint8_t>(number >> (8 * byte));
    REQUIRE(store.add(token, longest, true, now_s, 900).ok());
    store.mark_used(net::to_hex(token.id), longest, now_s);
  }
  const Status full = store.add(net::make_join_token(first.ca_key, Role::kAgent), "", false, now_s, 900);
  REQUIRE_FALSE(full.ok());
  CHECK(full.error().message == "10000 join tokens are waiting: revoke some");
  REQUIRE(net::save_tokens(folder.path(), store).ok());
  const auto again = net::load_tokens(folder.path());
  REQUIRE(again.ok());
  net::StoredToken found;
  CHECK(again.value().check(first, now_s, found) == net::TokenFault::kUsed);
}

TEST_CASE("revoked list: full, it says so, can be read again, and gets room as entries age; limit kEntriesMax",
          "[net]") {
  test::TemporaryFolder folder;
  const std::int64_t now_s = test::unix_now_s();
  net::RevokedList list;
  std::string name(net::kNameBytesMax, 'n');
  for (std::size_t number = 0; number < net::RevokedList::kEntriesMax; ++number) {
    const std::string digits = std::to_string(number);
    name.replace(0, digits.size(), digits);
    REQUIRE(list.add({"", name, now_s}).ok());
  }
  const Status full = list.add({"aa", "", now_s});
  REQUIRE_FALSE(full.ok());
  CHECK_THAT(full.error().message, Catch::StartsWith("50000 revocations: the list is full"));
  REQUIRE(list.save(folder.path(), now_s).ok());
  const auto again = net::RevokedList::load(folder.path());
  REQUIRE(again.ok());
  CHECK(again.value().contains({Role::kClient, name, "bb", false, now_s, now_s + 100}));
  // What is older than any certificate is not kept, and is no reason to refuse.
  const std::int64_t later_s = now_s + net::validity_s(Role::kCoordinator) + 1;
  REQUIRE(again.value().save(folder.path(), later_s).ok());
  CHECK(net::RevokedList::load(folder.path()).value().add({"aa", "", later_s}).ok());
}

TEST_CASE("revoked list: what was revoked stays so, however old a clock makes it, while there is room", "[net]") {
  test::TemporaryFolder folder;
  const std::int64_t now_s = test::unix_now_s();
  net::RevokedList list;
  REQUIRE(list.add({"aa", "", now_s}).ok());
  REQUIRE(list.save(folder.path(), now_s + 10 * net::validity_s(Role::kCoordinator)).ok());
  const auto again = net::RevokedList::load(folder.path());
  REQUIRE(again.ok());
  CHECK(again.value().contains({Role::kClient, "n", "aa", false, now_s, now_s + 100}));
}

TEST_CASE("issued log: a new file knows every certificate that holds, whoever has noted it; limit kFileBytesMax",
          "[net]") {
  test::TemporaryFolder folder;
  const auto load = [&folder] { return net::IssuedLog::load(folder.path()).value(); };
  const auto add = [](net::IssuedLog& log, const std::string& name, const std::string& serial, std::int64_t issued_s,
                      std::int64_t expires_s) {
    REQUIRE(log.add({Role::kAgent, name, serial, false, issued_s, expires_s}, "renew").ok());
  };
  const auto old_one = [&folder] { return net::stamp_of(folder.path() + "/issued.jsonl.old"); };
  auto log = load();
  CHECK(log.file_bytes_max == net::IssuedLog::kFileBytesMax);
  log.file_bytes_max = 400;  // Of lines of about 110 bytes.
  add(log, "node0", "ended", 0, 50);
  auto stale = load();
  add(log, "node1", "first", 1, 200);
  add(log, "node1", "renewed", 2, 300);
  auto other = load();
  add(other, "node3", "of-another", 3, 300);
  add(log, "node4", "last", 100, 400);
  REQUIRE(stale.refresh().ok());
  REQUIRE(other.refresh().ok());
  CHECK(old_one().bytes > 400);
  for (const net::IssuedLog& one : {log, stale, other, load()}) {
    CHECK(one.holder_of("ended") == nullptr);
    CHECK(one.holder(Role::kAgent, "node0") == nullptr);
    REQUIRE(one.holder_of("first") != nullptr);
    CHECK(one.holder_of("first")->serial == "renewed");
    REQUIRE(one.holder_of("of-another") != nullptr);
    CHECK(one.holder(Role::kAgent, "node3")->expires_s == 300);
    CHECK(one.holder_of("last") != nullptr);
  }
  // The file is as large again, with what has to be kept.
  const auto before = old_one();
  add(log, "node5", "next", 101, 400);
  CHECK(old_one() == before);
}
