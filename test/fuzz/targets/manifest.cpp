// A checkpoint's manifest, and the names of checkpoint directories.

#include "common/checkpoint/manifest.hpp"

#include "test/fuzz/target.hpp"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text = sgd::fuzz::text_of(data, size);
  const sgd::fuzz::MemoryBound bound(size, 512);
  sgd::fuzz::check_stable(text, sgd::checkpoint::parse_manifest, sgd::checkpoint::encode);
  const auto manifest = sgd::checkpoint::parse_manifest(text);
  if (manifest.ok()) {
    for (const auto& file : manifest.value().files) FUZZ_CHECK(file.name.find('/') == std::string::npos);
  }
  if (const auto name = sgd::checkpoint::parse_directory_name(text)) {
    FUZZ_CHECK(sgd::checkpoint::directory_name(name->step, name->generation, name->number) == text);
  }
  return 0;
}
