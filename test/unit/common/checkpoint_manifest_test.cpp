// Names and manifests of checkpoints.
#include <catch2/catch.hpp>

#include "common/checkpoint/manifest.hpp"

namespace sgd::checkpoint {

TEST_CASE("a checkpoint's directory name reads back, and nothing else does") {
  CHECK(directory_name(1200, 3) == "step-000000001200-gen-0003");
  const auto parsed = parse_directory_name("step-000000001200-gen-0003");
  REQUIRE(parsed);
  CHECK(parsed->step == 1200);
  CHECK(parsed->generation == 3);
  CHECK(directory_name(1200, 3, 2) == "step-000000001200-gen-0003-2");
  CHECK(parse_directory_name("step-000000001200-gen-0003-2")->number == 2);
  CHECK(parse_directory_name("step-000000001200-gen-0003") < parse_directory_name("step-000000001200-gen-0003-2"));
  CHECK(parse_directory_name("step-000000001200-gen-0003-2") < parse_directory_name("step-000000000100-gen-0004"));
  CHECK(parse_directory_name(directory_name(9'999'999'999'999, 123456))->generation == 123456);
  for (const char* name :
       {"", "step-1200-gen-3", ".step-000000001200-gen-0003.part", "step-000000001200-gen-0003.part",
        "step--00000001200-gen-0003", "step-000000001200-gen-", "step-000000001200", "step-00000000120x-gen-0003",
        "step-000000001200-gen-0003-", "step-000000001200-gen-0003-1", "step-000000001200-gen-0003-02",
        "step-000000001200-gen-0003-0", "step-99999999999999999999-gen-0001", "step-000000001200-gen-00003"})
    CHECK_FALSE(parse_directory_name(name));
}

TEST_CASE("a manifest reads back") {
  Manifest manifest;
  manifest.step = 7;
  manifest.epoch = 2;
  manifest.generation = 4;
  manifest.files = {{"model.safetensors", 123, 0xe3069283}, {"state.json", 0, 7}};
  const auto parsed = parse_manifest(encode(manifest));
  REQUIRE(parsed.ok());
  CHECK(parsed.value().step == 7);
  CHECK(parsed.value().epoch == 2);
  CHECK(parsed.value().generation == 4);
  REQUIRE(parsed.value().files.size() == 2);
  CHECK(parsed.value().files[0].name == "model.safetensors");
  CHECK(parsed.value().files[0].bytes == 123);
  CHECK(parsed.value().files[0].crc == 0xe3069283);
  CHECK(parsed.value().files[1].crc == 7);
}

TEST_CASE("a manifest may have CRC-32 instead, and not both") {
  Manifest manifest;
  manifest.files = {{"a", 1, 2, Checksum::kCrc32}};
  const std::string text = encode(manifest);
  CHECK(text.find("\"crc32\": \"00000002\"") != std::string::npos);
  const auto parsed = parse_manifest(text);
  REQUIRE(parsed.ok());
  CHECK(parsed.value().files[0].checksum == Checksum::kCrc32);
  CHECK(parsed.value().files[0].crc == 2);
  const std::string start = R"({"format":1,"step":1,"epoch":1,"generation":1,"files":[{"name":"a","bytes":1)";
  CHECK_FALSE(parse_manifest(start + R"(,"crc32":"00000002","crc32c":"00000002"}]})").ok());
  CHECK_FALSE(parse_manifest(start + R"(,"crc32":"2"}]})").ok());
  CHECK_FALSE(parse_manifest(start + "}]}").ok());
}

TEST_CASE("a manifest that is torn, foreign or dangerous is refused") {
  Manifest manifest;
  manifest.files = {{"a", 1, 2}};
  const std::string good = encode(manifest);
  const auto with = [&good](const std::string& from, const std::string& to) {
    std::string text = good;
    text.replace(text.find(from), from.size(), to);
    return text;
  };
  for (const std::string& text :
       {good.substr(0, good.size() / 2), std::string("[]"), std::string(), with("\"a\"", "\"../a\""),
        with("\"a\"", "\"\""), with("\"a\"", "\".a\""), with("\"format\": 1", "\"format\": 2"),
        with("00000002", "0000000g"), with("00000002", "2"), with("\"step\": 0", "\"step\": -1"),
        with("\"step\": 0", "\"step\": 0.5"), with("\"step\": 0", "\"step\": true"),
        with("\"bytes\": 1", "\"bytes\": -1"), with("\"generation\": 0", "\"generation\": -9223372036854775809"),
        with("\"epoch\": 0", "\"epoch\": 1e300"), with("\"epoch\": 0", "\"epoch\": 4294967296")})
    CHECK_FALSE(parse_manifest(text).ok());
  manifest.files = {{"a", 1, 2}, {"a", 1, 2}};
  CHECK_FALSE(parse_manifest(encode(manifest)).ok());
}

}  // namespace sgd::checkpoint
