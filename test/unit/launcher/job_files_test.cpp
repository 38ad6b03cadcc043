// Files that jobs bring: what a list of them may say, what a store keeps and gives up, and their way to a node.

#include "launcher/coordinator/job_files.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "launcher/cli/file_upload.hpp"
#include "launcher/shipping/found_files.hpp"
#include "launcher/shipping/run_tree.hpp"
#include "transfer_support.hpp"

using namespace sgd;
using namespace sgd::test;
using shipping::FileSet;
using shipping::FileStore;
using shipping::sha256_of;

namespace {

std::string fault_of_files(std::vector<shipping::ShippedFile> files) {
  const auto parsed = shipping::parse_file_set(encode(FileSet{std::move(files)}));
  return parsed ? "" : parsed.error().message;
}

shipping::ShippedFile file_at(const std::string& path) {
  return {path, 1, sha256_of("x")};
}

std::shared_ptr<FileStore> store_in(const std::string& folder, FileStore::Limits limits = {}) {
  auto opened = FileStore::open(folder, limits);
  REQUIRE(opened.ok());
  return std::move(opened).value();
}

std::string add(FileStore& store, const std::string& bytes) {
  const std::string hash = sha256_of(bytes);
  const storage::Held held = store.append(hash, 0, bytes);
  if (!held.error.empty()) return held.error;
  REQUIRE(store.prove(hash).ok());
  return {};
}

void cut_short(const std::string& path, std::size_t bytes) {
  std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  std::filesystem::resize_file(path, bytes);
}

/// In the run's folder at the coordinator; returns the job's files by path.
std::map<std::string, std::string> bring(Transfers& at, const std::map<std::string, std::string>& files) {
  const auto store = store_in(at.folder.path("owner"));
  FileSet set;
  for (const auto& [path, bytes] : files) {
    REQUIRE(add(*store, bytes).empty());
    set.files.push_back({path, static_cast<std::int64_t>(bytes.size()), sha256_of(bytes)});
  }
  const std::string text = encode(set);
  REQUIRE(add(*store, text).empty());
  REQUIRE(shipping::keep_with_run(*store, sha256_of(text), at.run_dir).ok());
  return files;
}

std::optional<Status> brought_to(Transfers& at, Transfers::Node& node) {
  std::optional<Status> out;
  node.spool->bring_files("run1", std::nullopt, [&out](const Status& status) { out = status; });
  at.run_until([&] { return out.has_value(); });
  return out;
}

bool has_tree(const Transfers::Node& node, const std::map<std::string, std::string>& files) {
  return std::all_of(files.begin(), files.end(), [&](const auto& file) {
    const std::string path = node.spool->tree_of("run1") + file.first;
    struct stat info {};
    return ::stat(path.c_str(), &info) == 0 && (info.st_mode & 0777) == 0555 && slurp(path) == file.second;
  });
}

}  // namespace

TEST_CASE("job files: a list leads down, once, and has an end", "[files]") {
  CHECK(fault_of_files({file_at("/a/b"), file_at("/a/c")}).empty());
  for (const char* path : {"", "a", "../a", "/a/../b", "/a/./b", "/a//b", "/a/", "/"})
    CHECK(fault_of_files({file_at(path)}) != "");
  CHECK(fault_of_files({file_at(std::string("/a\0b", 4))}).find("zero") != std::string::npos);
  CHECK(fault_of_files({file_at("/a"), file_at("/a")}).find("twice") != std::string::npos);
  CHECK(fault_of_files({file_at("/a/b"), file_at("/a/b/c/d")}).find("folder of another") != std::string::npos);
  CHECK(fault_of_files({{"/a", -1, sha256_of("x")}}).find("less than no bytes") != std::string::npos);
  CHECK(fault_of_files({{"/a", 1, "../../x"}}).find("hash") != std::string::npos);
  CHECK(fault_of_files({}) != "");
  CHECK(fault_of_files({file_at("/" + std::string(FileSet::kNameBytesMax, 'n'))}).empty());
  CHECK(fault_of_files({file_at("/" + std::string(FileSet::kNameBytesMax + 1, 'n'))}) != "");
  std::string deep;
  while (deep.size() <= FileSet::kPathBytesMax) deep += "/folder";
  CHECK(fault_of_files({file_at(deep)}) != "");
  std::vector<shipping::ShippedFile> many;
  for (std::size_t i = 0; i <= FileSet::kFilesMax; ++i) many.push_back(file_at("/" + std::to_string(i)));
  CHECK(fault_of_files(many) != "");
  many.pop_back();
  CHECK(fault_of_files(many).empty());
  CHECK(!shipping::parse_file_set(std::string(FileSet::kTextBytesMax + 1, ' ')).ok());
  CHECK(!shipping::parse_file_set(R"({"format":1,"files":[{"path":[[[[1]]]]}]})")
             .ok());  // deeper than a list of files is
  CHECK(!shipping::parse_file_set(R"({"format":2,"files":[]})").ok());
}

TEST_CASE("job files: paths of a job that lie in them move, others stay", "[files]") {
  const nlohmann::json job = {{"name", "/j/a.py"},
                              {"files", {"/j/a.py", "/j/lib"}},
                              {"workdir", "/j"},
                              {"command", {"python3", "/j/a.py", "/j/library", "/j/lib/b", "a.py"}},
                              {"env", {{"X", "/j/lib"}}}};
  const nlohmann::json moved = shipping::with_files_below(job, "/n");
  CHECK(moved["name"] == "/j/a.py");
  CHECK(moved["files"] == job["files"]);
  CHECK(moved["workdir"] == "/n/j");
  CHECK(moved["command"] == nlohmann::json{"python3", "/n/j/a.py", "/j/library", "/n/j/lib/b", "a.py"});
  CHECK(moved["env"]["X"] == "/n/j/lib");
  CHECK(shipping::with_files_below(nullptr, "/n").is_null());
  nlohmann::json elsewhere = job;
  elsewhere["workdir"] = "/other";
  CHECK(shipping::with_files_below(elsewhere, "/n")["workdir"] == "/other");
}

TEST_CASE("job files: a store gives up what is unused, the oldest first, and never what is in use", "[files]") {
  const TemporaryFolder folder;
  const auto store = store_in(folder.path("store"), {3000, 100, false});
  const std::string a(1000, 'a'), b(1000, 'b'), c(1000, 'c'), d(1000, 'd');
  for (const std::string& one : {a, b, c}) REQUIRE(add(*store, one).empty());
  REQUIRE(store->link(sha256_of(a), folder.path("used")).ok());
  const timespec old[2] = {{1, 0}, {1, 0}};
  REQUIRE(::utimensat(AT_FDCWD, folder.path("store/" + sha256_of(c)).c_str(), old, 0) == 0);
  CHECK(add(*store, d).empty());
  CHECK(store->has(sha256_of(a), 1000));
  CHECK(store->has(sha256_of(b), 1000));
  CHECK(!store->has(sha256_of(c), 1000));
  CHECK(store->why_no_room(2000).empty());
  CHECK(store->why_no_room(2001) != "");
  REQUIRE(store->link(sha256_of(b), folder.path("used too")).ok());
  REQUIRE(store->link(sha256_of(d), folder.path("used three")).ok());
  const storage::Held held = store->append(sha256_of(c), 0, c);
  CHECK(held.is_too_much);
  CHECK(held.error.find("in use here") != std::string::npos);
  // What no run has any more makes room, also for the next life.
  REQUIRE(::unlink(folder.path("used").c_str()) == 0);
  CHECK(add(*store_in(folder.path("store"), {3000, 100, false}), c).empty());
  // So does what came of one to which nobody has added for a while; else somebody may be at work at it.
  const auto parts = store_in(folder.path("parts"), {3000, 100, false});
  REQUIRE(parts->append(sha256_of(a), 0, a.substr(0, 900)).error.empty());
  REQUIRE(parts->append(sha256_of(b), 0, b.substr(0, 900)).error.empty());
  CHECK(parts->append(sha256_of("more"), 0, std::string(2000, 'm')).is_too_much);
  CHECK(parts->held(sha256_of(a)).bytes == 900);
  REQUIRE(::utimensat(AT_FDCWD, folder.path("parts/" + sha256_of(a) + ".part").c_str(), old, 0) == 0);
  CHECK(parts->append(sha256_of("more"), 0, std::string(2000, 'm')).error.empty());
  CHECK(parts->held(sha256_of(a)).bytes == 0);
  CHECK(parts->held(sha256_of(b)).bytes == 900);
  // The one to which more comes stays, however old it is; when there is no room for it at all it goes, too.
  const timespec older[2] = {{0, 1}, {0, 1}};
  REQUIRE(::utimensat(AT_FDCWD, folder.path("parts/" + sha256_of("more") + ".part").c_str(), old, 0) == 0);
  REQUIRE(::utimensat(AT_FDCWD, folder.path("parts/" + sha256_of(b) + ".part").c_str(), older, 0) == 0);
  CHECK(parts->append(sha256_of(b), 900, std::string(200, 'b')).bytes == 1100);
  CHECK(parts->held(sha256_of("more")).bytes == 0);
  CHECK(parts->append(sha256_of(b), 1100, std::string(2000, 'b')).is_too_much);
  CHECK(parts->held(sha256_of(b)).bytes == 0);
  // The number of files has a limit, too.
  const auto few = store_in(folder.path("few"), {3000, 2, false});
  for (const char* bytes : {"1", "2"}) {
    REQUIRE(add(*few, bytes).empty());
    REQUIRE(few->link(sha256_of(bytes), folder.path(bytes)).ok());
  }
  CHECK(few->append(sha256_of("x"), 0, "x").is_too_much);
}

TEST_CASE("job files: what has no end, or too many errors, is refused in a bounded time", "[files]") {
  const TemporaryFolder folder;
  Diagnostics endless;
  (void)shipping::find_files({"/proc/self/pagemap"}, "job", endless);
  REQUIRE(endless.has_errors());
  std::vector<std::string> absent;
  for (int i = 0; i < 30; ++i) absent.push_back(folder.path("absent" + std::to_string(i)));
  Diagnostics many;
  (void)shipping::find_files(absent, "job", many);
  CHECK(many.items.size() == 21);
  CHECK(many.items.back().message.find("10 more errors") != std::string::npos);
}

TEST_CASE("job files: bytes of another hash are not kept; what has come so far is", "[files]") {
  const TemporaryFolder folder;
  auto store = store_in(folder.path("store"));
  const std::string hash = sha256_of("right");
  CHECK(store->append(hash, 0, "ri").bytes == 2);
  CHECK(store->append(hash, 3, "ht").is_gap);
  store = store_in(folder.path("store"));
  CHECK(store->held(hash).bytes == 2);
  CHECK(store->append(hash, 0, "rigXX").bytes == 5);
  CHECK(store->prove(hash).error().code == 0);
  CHECK(store->held(hash).bytes == 0);
  REQUIRE(add(*store, "right").empty());
  CHECK(store->append(hash, 0, "wrong").is_stored);
  CHECK(slurp(folder.path("store/" + hash)) == "right");
}

TEST_CASE("job files: a stored one that was cut short is given up where more of it comes", "[files]") {
  const TemporaryFolder folder;
  const auto store = store_in(folder.path("store"), {1000, 100, false});
  const std::string bytes = noise(1000, 1), hash = sha256_of(bytes);
  REQUIRE(add(*store, bytes).empty());
  CHECK(store->append(hash, 500, bytes.substr(500)).is_stored);
  cut_short(folder.path("store/" + hash), 500);
  const storage::Held held = store->append(hash, 500, bytes.substr(500));
  CHECK(held.is_gap);
  CHECK(held.bytes == 0);
  // There is room for it: what was cut off is not counted.
  REQUIRE(add(*store, bytes).empty());
  CHECK(slurp(folder.path("store/" + hash)) == bytes);
}

TEST_CASE("job files: one that was cut short on its node comes again, whole", "[files]") {
  const std::size_t bytes = GENERATE(std::size_t{1000}, std::size_t{5} << 20);  // One chunk, and several.
  const std::size_t left = GENERATE_COPY(std::size_t{0}, bytes / 2, bytes - 1);
  Transfers at;
  const auto files = bring(at, {{"/j/cut", noise(bytes, 1)}, {"/j/other", "other"}});
  Transfers::Node& node = at.add_node("node1");
  at.want(node);
  REQUIRE(brought_to(at, node)->ok());
  node.spool->end("run1");
  at.run_until([&] { return ::access(node.spool->tree_of("run1").c_str(), F_OK) != 0; });
  const std::string stored = node.state_dir + "/files/store/" + sha256_of(files.at("/j/cut"));
  cut_short(stored, left);
  at.want(node);
  const std::optional<Status> brought = brought_to(at, node);
  INFO(left << " of " << bytes << " bytes were left: " << (brought->ok() ? "" : brought->error().message));
  CHECK(brought->ok());
  CHECK(has_tree(node, files));
  CHECK(slurp(stored) == files.at("/j/cut"));
}

TEST_CASE("job files: they come to a node over a line that breaks and turns bits, once", "[files]") {
  Transfers at;
  std::map<std::string, std::string> files = {{"/j/large", noise(5 << 20, 1)}, {"/j/empty", ""}};
  for (int i = 0; i < 2 * agent::FileFetcher::kAskedMax; ++i)  // more files than questions may be open
    files["/j/sub/" + std::to_string(i)] = std::to_string(i);
  bring(at, files);
  Transfers::Node& node = at.add_node("node1");
  at.want(node);
  node.wire->cut_after_down = 1'400'000;
  int flips = 0;
  node.wire->on_down = [&](std::string& bytes) {
    if (bytes.size() > 20'000 && ++flips < 8) bytes[bytes.size() / 2] ^= 1;
  };
  CHECK(brought_to(at, node)->ok());
  CHECK(node.wire->connections > 1);
  CHECK(flips >= 8);
  CHECK(has_tree(node, files));
  // They are here: only the listing comes once more.
  const std::int64_t before = node.wire->down_bytes;
  CHECK(brought_to(at, node)->ok());
  CHECK(node.wire->down_bytes - before < 200'000);
  // With the run its folder goes, and the bytes stay for the next one.
  node.spool->end("run1");
  at.run_until([&] { return ::access(node.spool->tree_of("run1").c_str(), F_OK) != 0; });
  at.want(node);
  CHECK(brought_to(at, node)->ok());
  CHECK(node.wire->down_bytes - before < 1'000'000);
  CHECK(has_tree(node, files));
}

TEST_CASE("job files: a run without any, a foreign one, and names that are none are refused", "[files]") {
  Transfers at;
  Transfers::Node& node = at.add_node("node1");
  at.want(node);
  CHECK(brought_to(at, node)->error().message.find("has brought no files") != std::string::npos);
  bring(at, {{"/j/a", "a"}});
  at.foreign.insert("node2");
  Transfers::Node& other = at.add_node("node2");
  at.want(other);
  CHECK(brought_to(at, other)->error().message.find("no rank on this node") != std::string::npos);
  CHECK(!transfer::check_file("files/" + sha256_of("a")).ok());  // Nobody puts any.
  CHECK(!transfer::check_gettable("files/x").ok());
  for (const char* file : {"taken/0001/step-000000000100-gen-0001", "taken/0001/model.safetensors"})
    CHECK(!transfer::check_file(file).ok());
  CHECK(transfer::check_gettable("taken/0001/step-000000000100-gen-0001").ok());
  for (const char* path : {"taken/step-000000000100-gen-0001", "taken/../step-000000000100-gen-0001", "taken/0001/x",
                           "taken/0001/step-000000000100-gen-0001/x", "taken/.x/step-000000000100-gen-0001"})
    CHECK(!transfer::check_gettable(path).ok());
  CHECK(!transfer::check_gettable("files/../logs").ok());
}

TEST_CASE("job files: only so many owners' files are looked at at a time", "[files]") {
  const TemporaryFolder folder;
  boost::asio::io_context io;
  coordinator::JobFiles files(io, folder.path("files"), {});
  std::vector<std::string> kinds;
  const auto look = [&](const std::string& owner) {
    coordinator::Requester who;
    who.name = owner;
    const nlohmann::json request = {{"files", {{{"sha256", sha256_of("x")}, {"bytes", 1}}}}};
    files.look(who, request, [&kinds](const coordinator::ClientService::Answer& answer) {
      kinds.push_back(nlohmann::json::parse(answer.text).value("kind", "ok"));
    });
  };
  for (std::size_t i = 0; i < coordinator::JobFiles::kOwnersMax; ++i) look("owner" + std::to_string(i));
  look("one more");
  CHECK(kinds == std::vector<std::string>{"busy"});
  io.run();
  CHECK(kinds.size() == coordinator::JobFiles::kOwnersMax + 1);
  look("../one more");
  io.restart();
  io.run();
  CHECK(kinds.back() == "ok");
  for (const auto& entry : std::filesystem::directory_iterator(folder.path("files")))
    CHECK(entry.path().filename().string().starts_with("of-"));
}

TEST_CASE("job files: a coordinator ends with questions that have no answer", "[files]") {
  const TemporaryFolder folder;
  auto io = std::make_unique<boost::asio::io_context>();
  auto files = std::make_unique<coordinator::JobFiles>(*io, folder.path("files"), shipping::FileStore::Limits{});
  const nlohmann::json request = {{"files", {{{"sha256", sha256_of("x")}, {"bytes", 1}}}}};
  int answers = 0;
  for (const char* owner : {"ada", "ada", "eve"}) {
    coordinator::Requester who;
    who.name = owner;
    files->look(who, request, [&answers](const coordinator::ClientService::Answer&) { ++answers; });
  }
  files.reset();
  io.reset();  // With it goes what waits for the end of a time.
  CHECK(answers == 0);
}

TEST_CASE("job files: a hash gives nobody what another has brought, nor tells that it is there", "[files]") {
  const TemporaryFolder folder;
  boost::asio::io_context io;
  coordinator::JobFiles files(io, folder.path("files"), {});
  coordinator::Requester ada, eve;
  ada.name = "ada";
  eve.name = "eve";
  const std::string hash = sha256_of("secret");
  std::vector<nlohmann::json> answers;
  const auto keep = [&answers](const coordinator::ClientService::Answer& answer) {
    answers.push_back(nlohmann::json::parse(answer.text));
  };
  const auto done = [&] {
    io.restart();
    io.run();
    return answers.back();
  };
  files.put(ada, {hash, 0, 6, true}, "secret", keep);
  CHECK(done()["ok"] == true);
  const nlohmann::json request = {{"files", {{{"sha256", hash}, {"bytes", 6}}}}};
  files.look(ada, request, keep);
  CHECK(done()["missing"].empty());
  files.look(eve, request, keep);
  CHECK(done()["missing"].size() == 1);
  // Whoever has not got the bytes cannot end what has not come.
  files.put(eve, {hash, 6, 0, true}, "", keep);
  CHECK(done()["ok"] == false);
  const auto store = files.store_of(eve);
  REQUIRE(store.ok());
  CHECK(!store.value()->has(hash, 6));
}

TEST_CASE("job files: a coordinator that stays busy is not asked for ever", "[files]") {
  using Json = cli::FileUpload::Json;
  boost::asio::io_context io;
  std::unique_ptr<cli::FileUpload> upload;
  int questions = 0;
  std::string failed;
  bool is_users = true;
  cli::FileUpload::Handlers handlers;
  handlers.send = [&](const Json& message, std::string_view) {
    ++questions;
    REQUIRE(message["request"] == "files");
    const Json busy = {{"type", "answer"}, {"id", message["id"]}, {"ok", false}, {"kind", "busy"}, {"error", "full"}};
    boost::asio::post(io, [&upload, busy] { CHECK(upload->on(busy)); });
  };
  handlers.on_done = [](std::size_t, std::int64_t) { FAIL("nothing was taken"); };
  handlers.on_failed = [&](const std::string& error, bool of_user) {
    failed = error;
    is_users = of_user;
  };
  shipping::FoundFiles found;
  found.set.files.push_back(file_at("/a"));
  found.text = encode(found.set);
  found.sha256 = sha256_of(found.text);
  upload = std::make_unique<cli::FileUpload>(io, std::move(found), std::move(handlers), Duration{0});
  upload->begin();
  io.run();
  CHECK(questions == cli::FileUpload::kBusyMax);
  CHECK(failed == "the coordinator has taken no file for 400 questions in a row: full");
  CHECK_FALSE(is_users);
}
