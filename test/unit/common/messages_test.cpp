// Every alternative of every protocol, as it travels: the text is the contract with other
// programs and other versions, and reading it back must give the same message.

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "common/messages/cluster.hpp"
#include "common/messages/fork_server.hpp"
#include "common/messages/frame.hpp"
#include "common/messages/keeper.hpp"
#include "common/messages/link.hpp"
#include "common/messages/transfer.hpp"

namespace sgd {
namespace {

using Json = nlohmann::json;

const RankError kSaid{"ValueError", "bad", {"f"}, 2.5, true};
const std::vector<OtherError> kOthersSaid{{3, {"E", "o", {}, 1.5}}};

/// The JSON text of a keeper frame.
std::string unframed(const std::string& bytes) {
  FrameReader reader;
  reader.append(bytes);
  auto frame = reader.next();
  REQUIRE(frame.ok());
  REQUIRE(frame.value().has_value());
  CHECK(frame.value()->kind == FrameKind::kJson);
  return frame.value()->bytes;
}

template <class Variant>
struct Case {
  Variant message;
  const char* text;
};

/// `text_of` gives the JSON text of an encoded message; `decode` reads that text.
template <class Variant, class TextOf, class Decode>
void check_cases(const std::vector<Case<Variant>>& cases, TextOf text_of, Decode decode) {
  std::vector<bool> seen(std::variant_size_v<Variant>);
  for (const auto& [message, expected] : cases) {
    INFO(expected);
    seen[message.index()] = true;
    const std::string text = text_of(message);
    CHECK(Json::parse(text) == Json::parse(expected));
    const auto back = decode(text);
    REQUIRE(back.ok());
    CHECK(back.value().index() == message.index());
    CHECK(text_of(back.value()) == text);
  }
  CHECK(std::find(seen.begin(), seen.end(), false) == seen.end());
}

}  // namespace

TEST_CASE("link: worker to agent") {
  using namespace link;
  const std::vector<Case<FromWorker>> cases{
      {Hello{"secret", 7, 2, "0.1", true, 3},
       R"({"type":"hello","token":"secret","pid":7,"protocol":2,"version":"0.1","returns":true,"received":3})"},
      {Ready{12, 3, "memory", "", 0.5, 4},
       R"({"type":"ready","step":12,"epoch":3,"source":"memory","path":"","restore_s":0.5,"redone":4})"},
      {FirstStep{13}, R"({"type":"first_step","step":13})"},
      {Heartbeat{5, 1, "train", 0.5, 100.5, 64, true, 7, false, {87, 512.5, 61}},
       R"({"type":"heartbeat","step":5,"epoch":1,"phase":"train","loss":0.5,"samples_per_s":100.5,
           "samples":64,"waiting":true,"fetched":7,"watched":false,"gpu":[87,512.5,61]})"},
      {Report{{2, "validate", 4, 6}, 9, {{"val_loss", 0.25}}},
       R"({"type":"report","key":{"epoch":2,"phase":"validate","batch":4,"sequence":6},"step":9,
           "metrics":{"val_loss":0.25}})"},
      {CheckpointSaved{"checkpoints/x", 10, 1, 99, 0.5, 1.5, 2},
       R"({"type":"checkpoint","path":"checkpoints/x","step":10,"epoch":1,"bytes":99,"stall_s":0.5,"write_s":1.5,
           "skipped":2})"},
      {CheckpointFailed{10, "full"}, R"({"type":"checkpoint_failed","step":10,"reason":"full"})"},
      {CheckpointRejected{"/c", "damaged"}, R"({"type":"checkpoint_rejected","path":"/c","reason":"damaged"})"},
      {Fetch{"/c"}, R"({"type":"fetch","path":"/c"})"},
      {ExchangePut{"gloo", {1, 2}}, R"({"type":"exchange","key":"gloo","value":[1,2]})"},
      {Stoppable{}, R"({"type":"stoppable"})"},
      {Failed{"bad label", "#0"}, R"({"type":"failed","message":"bad label","backtrace":"#0"})"},
      {ResultMade{"r"}, R"({"type":"result","value":"r"})"},
      {Received{4}, R"({"type":"received","count":4})"},
      {Unknown{"novelty"}, R"({"type":"novelty"})"},
  };
  check_cases(
      cases, [](const FromWorker& message) { return encode(message); },
      [](const std::string& line) { return decode_from_worker(line); });
}

TEST_CASE("link: agent to worker") {
  using namespace link;
  Assignment assignment{"run-1", 3, 1, 1, 2, 2, 4, 5, "10.0.0.1", "/runs/1", {"/c", "/b"}, 6, {{"name", "x"}}};
  const std::vector<Case<ToWorker>> cases{
      {assignment,
       R"({"type":"assignment","run":"run-1","generation":3,"rank":1,"local_rank":1,"world_size":2,
           "local_world_size":2,"node_rank":4,"node_count":5,"bind_address":"10.0.0.1","run_dir":"/runs/1",
           "resume_from":["/c","/b"],"cpus":6,"config":{"name":"x"}})"},
      {ExchangeValue{"k", 1, 2, nullptr}, R"({"type":"exchange","key":"k","rank":1,"count":2,"value":null})"},
      {Fetching{"/c", 9}, R"({"type":"fetching","path":"/c","bytes":9})"},
      {Fetched{"/c", "gone", true}, R"({"type":"fetched","path":"/c","error":"gone","missing":true})"},
      {Abort{4}, R"({"type":"abort","generation":4})"},
      {Stop{2.5, false}, R"({"type":"stop","deadline_s":2.5,"checkpoint":false})"},
      {StopAtEpoch{true}, R"({"type":"stop_at_epoch","at_checkpoint":true})"},
      {Received{4}, R"({"type":"received","count":4})"},
      {Dropped{"no"}, R"({"type":"dropped","reason":"no"})"},
      {Unknown{"novelty"}, R"({"type":"novelty"})"},
  };
  check_cases(
      cases, [](const ToWorker& message) { return encode(message); },
      [](const std::string& line) { return decode_to_worker(line); });
  CHECK(encode(ToWorker(Abort{4})) == "{\"generation\":4,\"type\":\"abort\"}\n");
}

TEST_CASE("keeper") {
  using namespace keeper;
  const std::vector<Case<ToKeeper>> down{
      {StartForkServer{{"w", "--x"}, {{"a", 1}}, "/l", {{{"A", "b"}}, {}, {}}, "/w"},
       R"({"type":"start_fork_server","argv":["w","--x"],"job":{"a":1},"log_path":"/l",
           "environment":{"set":{"A":"b"},"defaults":{},"appended":{}},"workdir":"/w"})"},
      {Spawn{2,
             1,
             true,
             {"true"},
             {{{"A", "b"}}, {{"C", "d"}}, {{"P", "/p"}}},
             "/w",
             {0, 3},
             4,
             "/l",
             {true, "/o", {"x"}, "/f"},
             {false, "", {}, ""},
             true,
             true,
             "/e",
             "[0]:"},
       R"({"type":"spawn","generation":2,"rank":1,"fork_server":true,"argv":["true"],
           "environment":{"set":{"A":"b"},"defaults":{"C":"d"},"appended":{"P":"/p"}},
           "workdir":"/w","cpus":[0,3],"threads":4,"log_path":"/l",
           "out":{"is_shown":true,"path":"/o","filters":["x"],"filtered_path":"/f"},
           "err":{"is_shown":false,"path":"","filters":[],"filtered_path":""},
           "has_input":true,"has_terminal":true,"error_file":"/e","line_prefix":"[0]:"})"},
      {Signal{2, 1, 15, true}, R"({"type":"signal","generation":2,"rank":1,"signal":15,"is_for_group":true})"},
      {SignalAll{10}, R"({"type":"signal_all","signal":10})"},
      {AskErrors{2}, R"({"type":"ask_errors","generation":2})"},
      {Clear{2}, R"({"type":"clear","generation":2})"},
      {Close{}, R"({"type":"close"})"},
      {OutputAck{4096}, R"({"type":"output_ack","bytes":4096})"},
      {Attach{2}, R"({"type":"attach","received":2})"},
      {Received{4}, R"({"type":"received","count":4})"},
      {AgentEnds{}, R"({"type":"agent_ends"})"},
  };
  check_cases(
      down, [](const ToKeeper& message) { return unframed(encode(message)); },
      [](const std::string& text) { return decode_to_keeper(text); });
  const std::vector<Case<FromKeeper>> up{
      {Started{5, 2}, R"({"type":"started","pid":5,"received":2})"},
      {Received{4}, R"({"type":"received","count":4})"},
      {ForkServerReady{5, 0.5, 2, false, "r"},
       R"({"type":"fork_server_ready","pid":5,"start_s":0.5,"threads":2,"can_fork":false,"reason":"r"})"},
      {ForkServerFailed{2, 9, "m"}, R"({"type":"fork_server_failed","exit_code":2,"signal":9,"message":"m"})"},
      {Spawned{1, 2, 3}, R"({"type":"spawned","generation":1,"rank":2,"pid":3})"},
      {SpawnFailed{1, 2, 13, "m", 0},
       R"({"type":"spawn_failed","generation":1,"rank":2,"error":13,"message":"m","signal":0})"},
      {Exited{1, 2, 3, 4, 5, true, 6, 1.5, {"last"}, "{}", "m", kSaid, kOthersSaid},
       R"({"type":"exited","generation":1,"rank":2,"pid":3,"exit_code":4,"signal":5,"core_dumped":true,
           "sequence":6,"detected_s":1.5,"tail":["last"],"last_object":"{}","reason":"m",
           "error":{"type":"ValueError","message":"bad","frames":["f"],"at_s":2.5,"is_aside":true},
           "others":[{"rank":3,"error":{"type":"E","message":"o","frames":[],"at_s":1.5,"is_aside":false},"gpu":""}]})"},
      {Cleared{1, 2}, R"({"type":"cleared","generation":1,"killed":2})"},
      {ErrorsSaid{1, {{2, {"E", "m", {}, 0.5}}}},
       R"({"type":"errors_said","generation":1,"others":[{"rank":2,"error":{"type":"E","message":"m","frames":[],"at_s":0.5,"is_aside":false},"gpu":""}]})"},
      {OutputDropped{1, 2, 3, "slow", true},
       R"({"type":"output_dropped","rank":1,"lines":2,"bytes":3,"reason":"slow","is_on_console":true})"},
  };
  check_cases(
      up, [](const FromKeeper& message) { return unframed(encode(message)); },
      [](const std::string& text) { return decode_from_keeper(text); });
}

TEST_CASE("keeper: the head of an output chunk") {
  using namespace keeper;
  for (const OutputHead& head :
       {OutputHead{1, 2, Stream::kOut, false}, OutputHead{70000, 300, Stream::kErr, true, ~0ULL, 1ULL << 40}}) {
    const std::string bytes = encode(head);
    CHECK(bytes.size() == kOutputHeaderBytes);
    const auto read = decode_output_head(bytes + "text");
    REQUIRE(read);
    CHECK(read.value().generation == head.generation);
    CHECK(read.value().rank == head.rank);
    CHECK(read.value().stream == head.stream);
    CHECK(read.value().is_open == head.is_open);
    CHECK(read.value().keeper == head.keeper);
    CHECK(read.value().end == head.end);
  }
  CHECK(decode_output_head("12345678").error().message == "output without a header");
  CHECK(decode_output_head(std::string(24, '\0') + "\x02").error().message == "output of the unknown stream 2");
}

TEST_CASE("fork server") {
  using namespace fork_server;
  const std::vector<Case<ToForkServer>> down{
      {Prepare{{{"name", "x"}}}, R"({"type":"prepare","job":{"name":"x"}})"},
      {Fork{1, 2, 3, {{"SGD_TOKEN", "t"}}, {4}, 5, {"p"}},
       R"({"type":"fork","generation":1,"rank":2,"keeper_pid":3,"env":{"SGD_TOKEN":"t"},"cpus":[4],"threads":5,
           "argv":["p"]})"},
  };
  check_cases(
      down, [](const ToForkServer& message) { return encode(message); },
      [](const std::string& text) { return decode_to_fork_server(text); });
  const std::vector<Case<FromForkServer>> up{
      {Prepared{2, "r"}, R"({"type":"prepared","threads":2,"reason":"r"})"},
      {PrepareFailed{3, "m"}, R"({"type":"prepare_failed","exit_code":3,"message":"m"})"},
      {Forked{1, 2, 3}, R"({"type":"forked","generation":1,"rank":2,"pid":3})"},
      {ForkFailed{1, 2, 11, "m"}, R"({"type":"fork_failed","generation":1,"rank":2,"error":11,"message":"m"})"},
  };
  check_cases(
      up, [](const FromForkServer& message) { return encode(message); },
      [](const std::string& text) { return decode_from_fork_server(text); });
}

TEST_CASE("cluster: coordinator to agent") {
  using namespace cluster;
  DesiredRun desired{
      "r", 2,   77, Want::kStop, {{0, 0}, {3, 1}},         4,     1,    2,       "host", 29500, 1, {"/c"}, 30.5,
      10,  1.5, 2,  "/d",        nlohmann::json{{"a", 1}}, "eva", true, {"h:1"}, {1, 2}, {"6"}};
  const std::vector<Case<ToAgent>> cases{
      {desired,
       R"({"type":"desired_run","run":"r","generation":2,"uid":77,"want":"stop",
           "ranks":[{"rank":0,"local_rank":0},{"rank":3,"local_rank":1}],"world_size":4,"node_rank":1,"node_count":2,
           "master_address":"host","master_port":29500,"restart_count":1,"resume_from":["/c"],"stop_grace_s":30.5,"stop_signal":10,"clear_grace_s":1.5,
           "keeper_from":2,"run_dir":"/d","job":{"a":1},"owner":"eva","may_be_root":true,"endpoints":["h:1"],"ranks_by_node":[1,2],"left_out_gpus":["6"]})"},
      {ExchangeDone{"r", 2, "k", 3, 5, {1, "two"}},
       R"({"type":"exchange_done","run":"r","generation":2,"key":"k","first":3,"count":5,"values":[1,"two"]})"},
      {FactAck{18446744073709551615u, 9}, R"({"type":"fact_ack","incarnation":18446744073709551615,"sequence":9})"},
      {AccountAsk{3, "eva", true}, R"({"type":"account_ask","number":3,"owner":"eva","may_be_root":true})"},
      {PassSignal{"r", 2, 77, 10}, R"({"type":"pass_signal","run":"r","generation":2,"uid":77,"signal":10})"},
      {AgentRefused{"m"}, R"({"type":"agent_refused","reason":"m"})"},
      {ErrorsAsk{"r", 2, 77}, R"({"type":"errors_ask","run":"r","generation":2,"uid":77})"},
  };
  check_cases(
      cases, [](const ToAgent& message) { return encode(message); },
      [](const std::string& text) { return decode_to_agent(text); });
  for (const Want want : {Want::kPrepare, Want::kRun, Want::kLeave, Want::kStop, Want::kClear, Want::kGone}) {
    desired.want = want;
    const auto back = decode_to_agent(encode(ToAgent(desired)));
    REQUIRE(back.ok());
    CHECK(std::get<DesiredRun>(back.value()).want == want);
  }
}

TEST_CASE("cluster: agent to coordinator") {
  using namespace cluster;
  const std::vector<Case<FromAgent>> cases{
      {NodeState{"n", 5, "a", 2, 4, true, {{"r", 3, 2, 4, 78}}, true, 8, 1 << 30, {{"gpu", "h100"}}, "1.2.3", true, 7},
       R"({"type":"node_state","node":"n","incarnation":5,"address":"a","slots":2,"cpus":4,"is_new_link":true,
           "runs":[{"run":"r","generation":3,"workers":2,"world_size":4,"uid":78}],"counts_cpus":true,"gpus":8,"memory_bytes":1073741824,
           "labels":{"gpu":"h100"},"version":"1.2.3","is_leaving":true,"acknowledged":7})"},
      {Beat{}, R"({"type":"beat"})"},
      {Fact{5, 6, "r", 7, KeeperLost{9, "m", true}, 79},
       R"({"type":"fact","incarnation":5,"sequence":6,"run":"r","generation":7,"uid":79,
           "body":{"type":"keeper_lost","signal":9,"message":"m","with_agent":true,"never_started":false}})"},
      {Fact{5, 7, "r", 1, ExchangePut{2, "k", "v"}, 80},
       R"({"type":"fact","incarnation":5,"sequence":7,"run":"r","generation":1,"uid":80,
           "body":{"type":"exchange_put","rank":2,"key":"k","value":"v"}})"},
      {ExchangeAsk{"r", 1, "k", 81}, R"({"type":"exchange_ask","run":"r","generation":1,"key":"k","uid":81})"},
      {Progress{"r", 1, 2, {5, 1, "train", 0.5, 2.5, 8, false}},
       R"({"type":"progress","run":"r","generation":1,"rank":2,"heartbeat":{"type":"heartbeat","step":5,"epoch":1,
           "phase":"train","loss":0.5,"samples_per_s":2.5,"samples":8,"waiting":false,"fetched":0,
           "watched":true,"gpu":[]}})"},
      {AccountAnswer{3, "m"}, R"({"type":"account_answer","number":3,"why_not":"m"})"},
  };
  check_cases(
      cases, [](const FromAgent& message) { return encode(message); },
      [](const std::string& text) { return decode_from_agent(text); });
}

TEST_CASE("cluster: the state of a node as an older agent tells it") {
  const auto back =
      cluster::decode_from_agent(R"({"type":"node_state","node":"n","incarnation":5,"slots":2,"cpus":4})");
  REQUIRE(back.ok());
  const auto& state = std::get<cluster::NodeState>(back.value());
  CHECK_FALSE(state.counts_cpus);  // Its workers take slots, as they did.
  CHECK(state.gpus == 0);
  CHECK(state.memory_bytes == 0);
  CHECK(state.labels.empty());
  CHECK_FALSE(state.is_leaving);
}

TEST_CASE("cluster: bodies of facts") {
  using namespace cluster;
  const std::vector<Case<FactBody>> cases{
      {PortReserved{29500, {29501, 29502}}, R"({"type":"port_reserved","port":29500,"worker_ports":[29501,29502]})"},
      {RanksRaised{{{1, {"ValueError", "NaN", {"f"}, 2.5}, "4"}}},
       R"({"type":"ranks_raised","others":[{"rank":1,"error":{"type":"ValueError","message":"NaN","frames":["f"],"at_s":2.5,"is_aside":false},"gpu":"4"}]})"},
      {PortRefused{"m"}, R"({"type":"port_refused","message":"m"})"},
      {WorkerStarted{1, 2, {"4", "GPU-a"}}, R"({"type":"worker_started","rank":1,"pid":2,"gpus":["4","GPU-a"]})"},
      {WorkerReady{1, {2, 3, "disk", "/c", 0.5, 1}},
       R"({"type":"worker_ready","rank":1,"ready":{"type":"ready","step":2,"epoch":3,"source":"disk","path":"/c",
           "restore_s":0.5,"redone":1}})"},
      {WorkerSilent{1, 2, true, true, 1.5, "m"},
       R"({"type":"worker_silent","rank":1,"pid":2,"waiting":true,"stalled":true,"silent_s":1.5,"message":"m"})"},
      {CheckpointFailed{{10, "full"}},
       R"({"type":"checkpoint_failed","checkpoint":{"type":"checkpoint_failed","step":10,"reason":"full"}})"},
      {CheckpointRejected{{"/c", "damaged"}},
       R"({"type":"checkpoint_rejected","checkpoint":{"type":"checkpoint_rejected","path":"/c","reason":"damaged"}})"},
      {WorkerFirstStep{1, 2}, R"({"type":"worker_first_step","rank":1,"step":2})"},
      {WorkerExited{1, 2, 3, 4, true, true, "m", {"t"}, "{}", 7, 0.5, kSaid, kOthersSaid, "5"},
       R"({"type":"worker_exited","rank":1,"pid":2,"exit_code":3,"signal":4,"core_dumped":true,
           "caused_by_agent":true,"message":"m","tail":["t"],"last_object":"{}","step":7,"notice_s":0.5,
           "error":{"type":"ValueError","message":"bad","frames":["f"],"at_s":2.5,"is_aside":true},
           "others":[{"rank":3,"error":{"type":"E","message":"o","frames":[],"at_s":1.5,"is_aside":false},"gpu":""}],"gpu":"5"})"},
      {SpawnFailed{1, 2, "m"}, R"({"type":"spawn_failed","rank":1,"error":2,"message":"m"})"},
      {ForkServerFailed{2, 9, "m"}, R"({"type":"fork_server_failed","exit_code":2,"signal":9,"message":"m"})"},
      {KeeperLost{9, "m", true},
       R"({"type":"keeper_lost","signal":9,"message":"m","with_agent":true,"never_started":false})"},
      {KeeperLost{0, "m", false, true},
       R"({"type":"keeper_lost","signal":0,"message":"m","with_agent":false,"never_started":true})"},
      {Report{1, {{2, "train", 3, 4}, 5, {{"train_loss", 0.5}}}},
       R"({"type":"report","rank":1,"report":{"type":"report","key":{"epoch":2,"phase":"train","batch":3,"sequence":4},
           "step":5,"metrics":{"train_loss":0.5}}})"},
      {CheckpointSaved{{"p", 1, 2, 3, 0.5, 1.5, 4}},
       R"({"type":"checkpoint_saved","checkpoint":{"type":"checkpoint","path":"p","step":1,"epoch":2,"bytes":3,
           "stall_s":0.5,"write_s":1.5,"skipped":4}})"},
      {ResultMade{1, 2}, R"({"type":"result_made","rank":1,"value":2})"},
      {ExchangePut{2, "k", "v"}, R"({"type":"exchange_put","rank":2,"key":"k","value":"v"})"},
      {Cleared{3}, R"({"type":"cleared","killed":3})"},
      {OutputDropped{1, 2, 3, "full"}, R"({"type":"output_dropped","rank":1,"lines":2,"bytes":3,"reason":"full"})"},
  };
  check_cases(
      cases,
      [](const FactBody& body) {
        return Json::parse(encode(FromAgent(Fact{1, 2, "r", 3, body})))["body"].dump();
      },
      [](const std::string& text) -> Result<FactBody> {
        Json fact{{"type", "fact"}, {"incarnation", 1}, {"sequence", 2}, {"run", "r"}, {"generation", 3}};
        fact["body"] = Json::parse(text);
        auto decoded = decode_from_agent(fact.dump());
        if (!decoded.ok()) return decoded.error();
        return std::get<Fact>(decoded.value()).body;
      });
}

TEST_CASE("messages: errors in words") {
  struct Bad {
    const char* line;
    const char* error;
  };
  for (const Bad& bad : std::vector<Bad>{
           {"", "message is not JSON"},
           {"{", "message is not JSON"},
           {"[1]", "message must be an object, got an array"},
           {"{}", "\"type\" is missing"},
           {R"({"type":5})", "\"type\" must be a string, got an integer"},
           {R"({"type":"hello"})", "hello: \"token\" is missing"},
           {R"({"type":"hello","token":null})", "hello: \"token\" must be a string, got null"},
           {R"({"type":"hello","token":"t","pid":"7"})", "hello: \"pid\" must be an integer, got a string"},
           {R"({"type":"hello","token":"t","pid":7.5})", "hello: \"pid\" must be an integer, got a number"},
           {R"({"type":"hello","token":"t","pid":99999999999})", "hello: \"pid\" is out of range: 99999999999"},
           {R"({"type":"heartbeat","loss":"low"})", "heartbeat: \"loss\" must be a number, got a string"},
           {R"({"type":"report","metrics":{}})", "report: \"key\" is missing"},
           {R"({"type":"report","key":{"epoch":1}})", "report: key: \"phase\" is missing"},
           {R"({"type":"report","key":{"epoch":1,"phase":"train"},"metrics":3})",
            "report: \"metrics\" must be an object, got an integer"},
           {R"({"type":"exchange"})", "exchange: \"key\" is missing"},
       }) {
    INFO(bad.line);
    const auto decoded = link::decode_from_worker(bad.line);
    REQUIRE_FALSE(decoded.ok());
    CHECK(decoded.error().message == bad.error);
  }
  CHECK(link::decode_to_worker(R"({"type":"assignment","run":"r","generation":-1})").error().message ==
        "assignment: \"generation\" is out of range: -1");
  CHECK(keeper::decode_to_keeper(R"({"type":"novelty"})").error().message == "message: unknown type \"novelty\"");
  CHECK(keeper::decode_to_keeper(R"({"type":"spawn","generation":1,"rank":0,"cpus":[0,"x"]})").error().message ==
        "message: spawn: \"cpus[1]\" must be an integer, got a string");
  CHECK(keeper::decode_to_keeper(R"({"type":"spawn","generation":1,"rank":0,"environment":{"set":{"A":1}}})")
            .error()
            .message == "message: spawn: environment: \"set.A\" must be a string, got an integer");
  CHECK(cluster::decode_to_agent(R"({"type":"desired_run","run":"r","generation":1,"want":"fly"})").error().message ==
        "message: desired_run: \"want\" has the unknown value \"fly\"");
}

TEST_CASE("messages: NaN arrives as NaN, and an infinite number of a report as text") {
  const double infinity = std::numeric_limits<double>::infinity();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  link::Report report;
  report.key = {1, "train", 0, 0};
  report.metrics = {{"train_loss", nan}, {"last_train_loss", infinity}, {"least", -infinity}, {"samples_per_s", 5}};
  const auto decoded = link::decode_from_worker(encode(link::FromWorker(report)));
  REQUIRE(decoded.ok());
  const Json& metrics = std::get<link::Report>(decoded.value()).metrics;
  CHECK(std::isnan(metrics["train_loss"].get<double>()));
  CHECK(metrics["last_train_loss"] == "Infinity");
  CHECK(metrics["least"] == "-Infinity");
  // Over any number of links.
  CHECK(encode(decoded.value()) == encode(link::FromWorker(report)));
  CHECK(metrics["samples_per_s"] == 5);
  const auto beat = link::decode_from_worker(encode(link::FromWorker(link::Heartbeat{1, 1, "train", nan, 0})));
  REQUIRE(beat.ok());
  CHECK(std::isnan(std::get<link::Heartbeat>(beat.value()).loss));
}

TEST_CASE("messages: a report without metrics can be passed on") {
  const auto decoded = link::decode_from_worker(R"({"type":"report","key":{"epoch":1,"phase":"train"}})");
  REQUIRE(decoded.ok());
  CHECK(std::get<link::Report>(decoded.value()).metrics == Json::object());
  const std::string line = encode(decoded.value());
  CHECK(link::decode_from_worker(std::string_view(line).substr(0, line.size() - 1)).ok());
}

TEST_CASE("messages: bytes that are no UTF-8 do not stop a message") {
  const std::string line = encode(link::FromWorker(link::Failed{"bad \xff byte", ""}));
  const auto decoded = link::decode_from_worker(line);
  REQUIRE(decoded.ok());
  CHECK(std::get<link::Failed>(decoded.value()).message == "bad \xef\xbf\xbd byte");
}

TEST_CASE("messages: nesting is bounded before anything is built") {
  for (const char bracket : {'[', '{'}) {
    const std::string opening = bracket == '[' ? "[" : "{\"a\":";
    std::string bomb = R"({"type":"result","value":)";
    for (int i = 0; i < 10000; ++i) bomb += opening;
    CHECK(link::decode_from_worker(bomb).error().message == "message is nested deeper than 65 levels");
  }
  std::string bomb(100000, '[');
  CHECK(keeper::decode_to_keeper(bomb).error().message == "message is nested deeper than 80 levels");
  // Brackets in strings are text.
  CHECK(link::decode_from_worker(R"({"type":"result","value":"\")" + std::string(1000, '[') + R"("})").ok());
}

TEST_CASE("transfer") {
  using namespace transfer;
  const std::vector<Case<FromNode>> up{
      {Files{"a", 7}, R"({"type":"files","node":"a","incarnation":7})"},
      {Put{"r", "logs/x", 3, 4, 5, true},
       R"({"type":"put","run":"r","file":"logs/x","offset":3,"bytes":4,"crc32c":5,"last":true})"},
      {Query{"r", "logs/x"}, R"({"type":"query","run":"r","file":"logs/x"})"},
      {CheckpointDone{"r", "c"}, R"({"type":"checkpoint_done","run":"r","path":"c"})"},
      {Get{"r", "c", "f", 1, 2}, R"({"type":"get","run":"r","path":"c","file":"f","offset":1,"bytes":2})"},
      {Lacks{"r", "c", "no"}, R"({"type":"lacks","run":"r","path":"c","reason":"no"})"},
      {AllSent{"r"}, R"({"type":"all_sent","run":"r"})"},
  };
  check_cases(
      up, [](const FromNode& message) { return encode(message); },
      [](const std::string& text) { return decode_from_node(text); });
  const std::vector<Case<ToNode>> down{
      {Have{"r", "logs/x", 4, true, true, "full"},
       R"({"type":"have","run":"r","file":"logs/x","offset":4,"rewind":true,"last":true,"reason":"full"})"},
      {Stored{"r", "c"}, R"({"type":"stored","run":"r","path":"c"})"},
      {Refused{"r", "c", "no", true}, R"({"type":"refused","run":"r","path":"c","reason":"no","unknown_run":true})"},
      {Listing{"r", "c", {{"f", 2}}}, R"({"type":"listing","run":"r","path":"c","files":[{"name":"f","bytes":2}]})"},
      {Data{"r", "c", "f", 1, 2, 3},
       R"({"type":"data","run":"r","path":"c","file":"f","offset":1,"bytes":2,"crc32c":3})"},
      {Pending{"r", "c", 5}, R"({"type":"pending","run":"r","path":"c","bytes":5})"},
      {Ship{"r", "c"}, R"({"type":"ship","run":"r","path":"c"})"},
      {Keep{"r", {"c"}}, R"({"type":"keep","run":"r","paths":["c"]})"},
      {Taken{"r"}, R"({"type":"taken","run":"r"})"},
  };
  check_cases(
      down, [](const ToNode& message) { return encode(message); },
      [](const std::string& text) { return decode_to_node(text); });
}

TEST_CASE("transfer: a chunk's checksum covers its place") {
  const std::uint32_t crc = transfer::checksum("run", "logs/a", 5, "bytes");
  CHECK(crc == transfer::checksum("run", "logs/a", 5, "bytes"));
  CHECK(crc != transfer::checksum("run", "logs/a", 6, "bytes"));
  CHECK(crc != transfer::checksum("run", "logs/b", 5, "bytes"));
  CHECK(crc != transfer::checksum("ru", "nlogs/a", 5, "bytes"));
  CHECK(crc != transfer::checksum("run", "logs/a", 5, "byteS"));
}

TEST_CASE("transfer: names") {
  CHECK(transfer::check_file("logs/gen-0001/rank-0000.log"));
  CHECK(transfer::check_file("errors/gen-0001-rank-0000.json"));
  CHECK(transfer::check_file("checkpoints/step-000000000100-gen-0001/model.safetensors"));
  CHECK(transfer::checkpoint_of("checkpoints/step-000000000100-gen-0001/x") ==
        "checkpoints/step-000000000100-gen-0001");
  CHECK(transfer::checkpoint_of("logs/gen-0001/x").empty());
  CHECK(transfer::check_checkpoint("checkpoints/step-000000000100-gen-0001-2"));
  for (const char* path :
       {"checkpoints/x", "checkpoints/.step-000000000100-gen-0001.part", "step-000000000100-gen-0001",
        "checkpoints/step-000000000100-gen-0001/", "/checkpoints/step-000000000100-gen-0001"})
    CHECK_FALSE(transfer::check_checkpoint(path));
}

TEST_CASE("link: a line over the limit is refused, a failure is shortened to fit") {
  const std::string long_text(link::kLineBytesMax, 'x');
  CHECK_FALSE(link::decode_from_worker(R"({"type":"result","value":")" + long_text + "\"}").ok());
  const std::string line = encode(link::FromWorker(link::Failed{"cause" + long_text, std::string(100000, '\x01')}));
  CHECK(line.size() <= link::kLineBytesMax);
  const auto decoded = link::decode_from_worker(std::string_view(line).substr(0, line.size() - 1));
  REQUIRE(decoded.ok());
  CHECK(std::get<link::Failed>(decoded.value()).message.substr(0, 6) == "causex");
}

}  // namespace sgd
