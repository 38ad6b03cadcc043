// Names, manifests, checksums and the choice of the newest whole checkpoint.

#include <catch2/catch.hpp>
#include <cstring>
#include <fstream>

#include "common/checkpoint/crc32c.hpp"
#include "common/checkpoint/scan.hpp"
#include "temporary_folder.hpp"

namespace sgd::checkpoint {
namespace {

std::uint32_t crc_of(const std::string& text, std::uint32_t before = 0) {
  return crc32c(before, std::as_bytes(std::span(text.data(), text.size())));
}

/// Writes a whole checkpoint and returns its directory.
std::string write_checkpoint(const test::TemporaryFolder& folder, std::int64_t step, Generation generation) {
  const std::string name = directory_name(step, generation);
  const std::string weights = "weights of " + name;
  folder.write(name + "/model.safetensors", weights);
  Manifest manifest{step, 1, generation, 2, {{"model.safetensors", weights.size(), crc_of(weights)}}};
  folder.write(name + "/manifest.json", encode(manifest));
  return folder.path(name);
}

}  // namespace

TEST_CASE("checkpoint: CRC-32C") {
  CHECK(crc_of("123456789") == 0xe3069283);
  CHECK(crc_of("") == 0);
  const std::string text(1000, 'x');
  for (std::size_t cut = 0; cut < 40; ++cut) {
    INFO(cut);
    CHECK(crc_of(text.substr(cut), crc_of(text.substr(0, cut))) == crc_of(text));
    const std::string piece = text.substr(0, cut) + "end";
    const auto bytes = std::as_bytes(std::span(piece.data(), piece.size()));
    CHECK(crc32c_portable(0x12345678, bytes) == crc32c(0x12345678, bytes));
  }
  std::vector<std::byte> noise(60'000);
  for (std::size_t i = 0; i < noise.size(); ++i) noise[i] = static_cast<std::byte>(i * i / 7 & 0xff);
  for (const std::size_t size : {767, 768, 5'000, 24'575, 24'576, 60'000}) {  // On both sides of where streams begin.
    INFO(size);
    const auto bytes = std::span<const std::byte>(noise).first(size);
    CHECK(crc32c_portable(0x12345678, bytes) == crc32c(0x12345678, bytes));
  }
}

TEST_CASE("checkpoint: CRC-32, as Python's zlib has it") {
  const auto crc = [](const std::string& text, std::uint32_t before = 0) {
    return crc32(before, std::as_bytes(std::span(text.data(), text.size())));
  };
  CHECK(crc("123456789") == 0xcbf43926);
  CHECK(crc("") == 0);
  CHECK(crc("6789", crc("12345")) == crc("123456789"));
}

TEST_CASE("checkpoint: directory names") {
  CHECK(directory_name(1200, 3) == "step-000000001200-gen-0003");
  for (const auto& [step, generation] : std::vector<std::pair<std::int64_t, Generation>>{
           {0, 1}, {1200, 3}, {999999999999, 9999}, {1000000000000, 10000}}) {
    const auto parsed = parse_directory_name(directory_name(step, generation));
    REQUIRE(parsed.has_value());
    CHECK(parsed->step == step);
    CHECK(parsed->generation == generation);
  }
  for (const char* name :
       {"", "step-", "step-000000001200", "step-000000001200-gen-", "step-1200-gen-3", "step-000000001200-gen-0003.tmp",
        ".step-000000001200-gen-0003", "step--00000001200-gen-0003", "step-00000000120x-gen-0003",
        "step-99999999999999999999-gen-0001"}) {
    INFO(name);
    CHECK_FALSE(parse_directory_name(name).has_value());
  }
}

TEST_CASE("checkpoint: manifest") {
  const Manifest manifest{1200, 3, 2, 4, {{"model.safetensors", 10, 0xabc}, {"state.json", 0, 0}}};
  const auto parsed = parse_manifest(encode(manifest));
  REQUIRE(parsed.ok());
  CHECK(encode(parsed.value()) == encode(manifest));
  CHECK(parsed.value().world_size == 4);
  CHECK(parsed.value().files[0].crc == 0xabc);
  const std::string file = R"({"name":"a","bytes":1,"crc32c":"00000000"})";
  const auto with_files = [](const std::string& files) {
    return R"({"format":1,"step":1,"epoch":1,"generation":1,"files":[)" + files + "]}";
  };
  CHECK(parse_manifest(with_files(file)).ok());
  for (const std::string& bad :
       std::vector<std::string>{"", "{", "[]", R"({"format":2})", R"({"format":1})", with_files(file + "," + file),
                                with_files(R"({"name":"../a","bytes":1,"crc32c":"00000000"})"),
                                with_files(R"({"name":"","bytes":1,"crc32c":"00000000"})"),
                                with_files(R"({"name":"a","bytes":"1","crc32c":"00000000"})"),
                                with_files(R"({"name":"a","bytes":1,"crc32c":"0"})"),
                                with_files(R"({"name":"a","bytes":1,"crc32c":"0000000g"})"),
                                R"({"format":1,"step":-1,"epoch":1,"generation":1,"files":[]})"}) {
    INFO(bad);
    CHECK_FALSE(parse_manifest(bad).ok());
  }
}

TEST_CASE("checkpoint: the highest generation wins before the highest step") {
  const test::TemporaryFolder folder;
  write_checkpoint(folder, 100, 1);
  write_checkpoint(folder, 900, 1);
  write_checkpoint(folder, 300, 2);
  write_checkpoint(folder, 200, 2);
  folder.write("step-000000000999-gen-0009.tmp/manifest.json", "{}");
  folder.write("notes.txt", "");
  const auto found = list_checkpoints(folder.path(""), Proof::kChecksums);
  REQUIRE(found.ok());
  std::vector<std::string> names;
  for (const Found& one : found.value()) {
    CHECK(one.damage.empty());
    names.push_back(directory_name(one.name.step, one.name.generation));
  }
  CHECK(names == std::vector<std::string>{directory_name(300, 2), directory_name(200, 2), directory_name(900, 1),
                                          directory_name(100, 1)});
  CHECK(list_checkpoints(folder.path("none"), Proof::kSizes).value().empty());
}

TEST_CASE("checkpoint: damage has a reason") {
  const test::TemporaryFolder folder;
  const std::string dir = write_checkpoint(folder, 100, 1);
  const std::string name = directory_name(100, 1);
  CHECK(verify(dir, Proof::kChecksums).ok());
  const auto reason = [&] { return list_checkpoints(folder.path(""), Proof::kChecksums).value().at(0).damage; };

  std::fstream weights(dir + "/model.safetensors", std::ios::in | std::ios::out);
  weights.seekp(3);
  weights.put('X');
  weights.close();
  CHECK_THAT(reason(), Catch::Contains("model.safetensors is damaged: its CRC-32C"));
  CHECK(verify(dir, Proof::kSizes).ok());  // Sizes alone do not see a flipped byte.

  std::filesystem::resize_file(dir + "/model.safetensors", 5);
  CHECK_THAT(reason(), Catch::Contains("has 5 bytes, its manifest says"));
  std::filesystem::remove(dir + "/model.safetensors");
  CHECK_THAT(reason(), Catch::Contains("model.safetensors: No such file"));
  folder.write(name + "/manifest.json", "{\"format\":1");
  CHECK_THAT(reason(), Catch::Contains("bad manifest"));
  folder.write(name + "/manifest.json", encode(Manifest{101, 1, 1, 1, {}}));
  CHECK_THAT(reason(), Catch::Contains("has the manifest of another checkpoint"));
  std::filesystem::remove(dir + "/manifest.json");
  CHECK_THAT(reason(), Catch::Contains("manifest.json is missing: the checkpoint is incomplete"));
}

}  // namespace sgd::checkpoint
