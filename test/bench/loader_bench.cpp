// Samples a second that one core gathers, shuffled, in batches of 128: the sampler, images and labels; with and without
// transforms.
//   loader_bench FOLDER [epochs]   FOLDER: the four IDX files of Fashion-MNIST

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "worker/core/idx_dataset.hpp"
#include "worker/core/sampler.hpp"
#include "worker/data/transforms.hpp"

namespace {

using namespace sgd::worker;

constexpr std::int64_t kBatch = 128;

/// Calls `gather` for each batch of some epochs; the rate of the best one.
template <class Gather>
double samples_per_s(std::int64_t samples, int epochs, Gather gather) {
  double best = 0;
  std::vector<std::int64_t> indices;
  for (int epoch = 1; epoch <= epochs; ++epoch) {
    const Sampler sampler(1, epoch, samples, 1, true);
    const auto begin = std::chrono::steady_clock::now();
    for (std::int64_t position = 0; sampler.batch_length(position, kBatch) > 0;
         position = sampler.advance(position, kBatch)) {
      sampler.batch(position, 0, kBatch, indices);
      gather(epoch, indices);
    }
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    best = std::max(best, static_cast<double>(samples) / seconds);
  }
  return best;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fputs("usage: loader_bench FOLDER [epochs]\n", stderr);
    return 2;
  }
  const auto opened = IdxDataset::open(argv[1], Split::kTrain);
  if (!opened) {
    std::fprintf(stderr, "%s\n", opened.error().message.c_str());
    return 1;
  }
  const IdxDataset& data = opened.value();
  const int epochs = argc > 2 ? std::atoi(argv[2]) : 20;
  const ImageShape shape{1, data.sample_shape()[0], data.sample_shape()[1]};
  std::vector<float> images(static_cast<std::size_t>(kBatch) * shape.count());
  std::vector<std::int64_t> labels(static_cast<std::size_t>(kBatch));
  const auto plain = [&](int, const std::vector<std::int64_t>& indices) {
    data.gather_images(indices, images.data());
    if (!data.gather_labels(indices, labels.data(), 10)) std::abort();
  };
  std::printf("images and labels: %.2f M samples/s\n", samples_per_s(data.count(), epochs, plain) / 1e6);
  const Transforms transforms({RandomCrop{2}, HorizontalFlip{}, Normalize{{0.286f}, {0.353f}}, Cutout{8}});
  Transforms::Scratch scratch;
  const auto transformed = [&](int epoch, const std::vector<std::int64_t>& indices) {
    float* out = images.data();
    for (const std::int64_t index : indices) {
      transforms.apply(data.image(index), shape, sample_seed(1, epoch, index), scratch, out);
      out += shape.count();
    }
    if (!data.gather_labels(indices, labels.data(), 10)) std::abort();
  };
  std::printf("crop, flip, normalize, cutout: %.2f M samples/s\n",
              samples_per_s(data.count(), epochs, transformed) / 1e6);
  return 0;
}
