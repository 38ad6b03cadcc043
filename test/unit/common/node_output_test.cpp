#include "common/messages/node_output.hpp"

#include <catch2/catch.hpp>

#include "common/json/nlohmann.hpp"
#include "common/messages/frame.hpp"

using namespace sgd;
using namespace sgd::node_output;

namespace {

nlohmann::json only_frame(const std::string& bytes) {
  FrameReader reader;
  reader.append(bytes);
  auto frame = reader.next();
  REQUIRE((frame.ok() && frame.value().has_value()));
  return nlohmann::json::parse(frame.value()->bytes);
}

}  // namespace

TEST_CASE("node_output: messages between an agent and the launcher that shows what its ranks say") {
  CHECK(only_frame(encode(FromAgent(Warning{"slow"}))) == nlohmann::json::parse(R"({"type":"warning","text":"slow"})"));
  CHECK(std::get<Warning>(decode_from_agent(R"({"type":"warning","text":"slow"})").value()).text == "slow");
  CHECK(only_frame(encode(FromAgent(AllSaid{}))) == nlohmann::json::parse(R"({"type":"all_said"})"));
  CHECK(std::holds_alternative<AllSaid>(decode_from_agent(R"({"type":"all_said"})").value()));
  CHECK(only_frame(encode(ToAgent(Taken{3}))) == nlohmann::json::parse(R"({"type":"taken","bytes":3})"));
  CHECK(std::get<Taken>(decode_to_agent(R"({"type":"taken","bytes":3})").value()).bytes == 3);
}
