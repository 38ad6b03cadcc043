// A .npy file: what is accepted covers the file, and every number of it can be read.

#include "worker/data/npy_dataset.hpp"

#include "test/fuzz/memory_file.hpp"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static sgd::fuzz::MemoryFile file;
  const std::string& path = file.hold(data, size);
  const sgd::fuzz::MemoryBound bound(size, 64);
  const auto info = sgd::data::inspect_npy(path);
  const auto opened = sgd::worker::NpyDataset::open(path, path, 0);
  FUZZ_CHECK(info.ok() == opened.ok());
  if (!opened.ok()) return 0;
  const sgd::worker::SampleReader& samples = *opened.value();
  FUZZ_CHECK(info.value().header_bytes +
                 static_cast<std::size_t>(samples.count() * samples.target_numbers()) * info.value().item_bytes ==
             size);
  std::vector<float> features(static_cast<std::size_t>(samples.target_numbers()));
  std::vector<float> targets(features.size());
  for (std::int64_t i = 0; i < samples.count(); ++i) {
    FUZZ_CHECK(samples.gather({&i, 1}, features.data(), {nullptr, targets.data()}).ok());
    for (std::size_t j = 0; j < features.size(); ++j)
      FUZZ_CHECK(features[j] == targets[j] || (features[j] != features[j] && targets[j] != targets[j]));
  }
  return 0;
}
