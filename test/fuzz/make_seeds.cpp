// Writes the kept inputs that encoders can make: a message of every kind of every protocol, a manifest,
// safetensors, IDX and image files. Seeds that need a person's eye (job files, HTTP requests) are in the corpus
// only.
//   make_seeds DIRECTORY   writes DIRECTORY/<target>/<name>

#include <sys/types.h>
#include <zlib.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

#include <fmt/format.h>
#include <boost/pfr/core.hpp>

#include "common/checkpoint/manifest.hpp"
#include "common/messages/cluster.hpp"
#include "common/messages/fork_server.hpp"
#include "common/messages/frame.hpp"
#include "common/messages/hello.hpp"
#include "common/messages/keeper.hpp"
#include "common/messages/link.hpp"
#include "test/unit/worker_data/image_bytes.hpp"
#include "worker/core/safetensors.hpp"

namespace {

namespace fs = std::filesystem;

fs::path root;

void keep(const std::string& target, const std::string& name, const std::string& bytes) {
  fs::create_directories(root / target);
  std::ofstream(root / target / name, std::ios::binary) << bytes;
}

template <class T>
void fill(T& value) {
  if constexpr (std::is_same_v<T, nlohmann::json>) {
    value = {{"key", {1, 2.5, "text", nullptr, true}}};
  } else if constexpr (std::is_same_v<T, std::string>) {
    value = "text";
  } else if constexpr (std::is_same_v<T, bool>) {
    value = true;
  } else if constexpr (std::is_arithmetic_v<T>) {
    value = T(3);
  } else if constexpr (std::is_same_v<T, std::map<std::string, std::string>>) {
    value["name"] = "text";
  } else if constexpr (requires { value.emplace_back(); }) {
    fill(value.emplace_back());
  } else if constexpr (std::is_class_v<T> && std::is_aggregate_v<T>) {
    boost::pfr::for_each_field(value, [](auto& field) { fill(field); });
  }
}

/// A filled message of each alternative, given to `use`.
template <class... Ts, class Use>
void each(std::type_identity<std::variant<Ts...>>, Use use) {
  const auto one = [&]<class T>(std::type_identity<T>) {
    T message;
    fill(message);
    use(message);
  };
  (one(std::type_identity<Ts>{}), ...);
}

template <class Variant, class Encode>
void keep_all(const std::string& target, const std::string& direction, Encode encode) {
  int number = 0;
  each(std::type_identity<Variant>{}, [&](const auto& message) {
    keep(target, fmt::format("{}-{:02}", direction, number++), encode(Variant(message)));
  });
}

std::string without_newline(std::string line) {
  line.pop_back();
  return line;
}

void keep_messages() {
  using namespace sgd;
  keep_all<cluster::ToAgent>("cluster", "to-agent", [](const cluster::ToAgent& m) { return cluster::encode(m); });
  keep_all<cluster::FromAgent>("cluster", "from-agent", [](const cluster::FromAgent& m) { return cluster::encode(m); });
  keep_all<cluster::FactBody>("cluster", "fact", [](const cluster::FactBody& body) {
    return cluster::encode(cluster::FromAgent(cluster::Fact{7, 1, "run", 2, body}));
  });
  keep_all<keeper::ToKeeper>("keeper", "to-keeper",
                             [](const keeper::ToKeeper& m) { return keeper::encode(m).substr(kFrameHeaderBytes); });
  keep_all<keeper::FromKeeper>("keeper", "from-keeper",
                               [](const keeper::FromKeeper& m) { return keeper::encode(m).substr(kFrameHeaderBytes); });
  keep_all<fork_server::ToForkServer>("fork_server", "to-fork-server",
                                      [](const fork_server::ToForkServer& m) { return fork_server::encode(m); });
  keep_all<fork_server::FromForkServer>("fork_server", "from-fork-server",
                                        [](const fork_server::FromForkServer& m) { return fork_server::encode(m); });
  keep_all<link::FromWorker>("link", "from-worker",
                             [](const link::FromWorker& m) { return without_newline(link::encode(m)); });
  keep_all<link::ToWorker>("link", "to-worker",
                           [](const link::ToWorker& m) { return without_newline(link::encode(m)); });
  keep("hello", "own", hello::encode({}));
  keep("hello", "range", hello::encode({1, 9}));
  const std::string json = encode_frame(FrameKind::kJson, hello::encode({}));
  const std::string chunk = encode_frame(FrameKind::kChunk, "some bytes");
  keep("frame", "hello", "\x01" + json);
  keep("frame", "three", "\x07" + json + chunk + encode_frame(FrameKind::kChunk, ""));
  keep("frame", "parts", "\x81" + encode_frame(FrameKind::kPart, "[1,") + encode_frame(FrameKind::kJson, "2]") + chunk);
  keep("frame", "cut", "\x02" + json.substr(0, json.size() - 3));
}

void keep_manifest() {
  sgd::checkpoint::Manifest manifest{1200, 3, 2, 4, {{"model.safetensors", 1000, 0x1234abcd}, {"state.json", 99, 7}}};
  keep("manifest", "two-files", sgd::checkpoint::encode(manifest));
  keep("manifest", "directory-name", sgd::checkpoint::directory_name(1200, 3));
  keep("manifest", "directory-name-2", sgd::checkpoint::directory_name(1200, 3, 2));
}

void keep_safetensors() {
  using namespace sgd::worker;
  const std::vector<std::byte> bytes(24);
  const std::vector<TensorBytes> tensors = {{"a.weight", TensorType::kF32, {2, 2}, {bytes.data(), 16}},
                                            {"empty", TensorType::kF16, {0, 4}, {}},
                                            {"steps", TensorType::kI64, {}, {bytes.data(), 8}}};
  fs::create_directories(root / "safetensors");
  for (const std::size_t count : {0, 1, 3}) {
    const fs::path path = root / "safetensors" / fmt::format("tensors-{}", count);
    fs::remove(path);
    (void)write_safetensors(path.string(), std::span(tensors).first(count), {{"format", "pt"}}).value();
  }
}

void keep_idx() {
  const std::string labels = std::string("\0\0\x08\x01\0\0\0\x03", 8) + "abc";
  const std::string images = std::string("\0\0\x08\x03\0\0\0\x02\0\0\0\x02\0\0\0\x01", 16) + "abcd";
  keep("idx", "labels", labels);
  keep("idx", "images", images);
  const fs::path packed = root / "idx" / "images.gz";
  gzFile file = gzopen(packed.c_str(), "wb");
  gzwrite(file, images.data(), static_cast<unsigned>(images.size()));
  gzclose(file);
}

void keep_images() {
  using namespace sgd::test;
  keep("jpeg", "colour", jpeg_file(smooth_image(9, 11, 3)));
  keep("jpeg", "grey", jpeg_file(smooth_image(8, 8, 1)));
  keep("jpeg", "inks", jpeg_file(smooth_image(8, 8, 4)));
  keep("jpeg", "progressive", jpeg_file(smooth_image(17, 9, 3), {60, true, false}));
  keep("png", "colour", png_file(smooth_image(5, 7, 3)));
  keep("png", "interlaced", png_file(smooth_image(9, 9, 1), true));
  keep("png", "grey-1", png_file(9, {{0xaa, 0x80}, {0x55, 0}}, {PNG_COLOR_TYPE_GRAY, 1, false, {}}));
  keep("png", "alpha-16", png_file(1, {{1, 2, 3, 4}, {5, 6, 7, 8}}, {PNG_COLOR_TYPE_GRAY_ALPHA, 16, false, {}}));
  keep("png", "palette-2",
       png_file(4, {{0x1b}, {0xe4}}, {PNG_COLOR_TYPE_PALETTE, 2, false, {{1, 2, 3}, {4, 5, 6}, {7, 8, 9}, {0, 0, 0}}}));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fputs("usage: make_seeds DIRECTORY\n", stderr);
    return 2;
  }
  root = argv[1];
  keep_messages();
  keep_manifest();
  keep_safetensors();
  keep_idx();
  keep_images();
  return 0;
}
