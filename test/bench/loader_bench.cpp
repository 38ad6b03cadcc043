// Samples a second of our side of scripts/bench loader: the sampler, and batches of 128, shuffled. Prints a JSON line.
//   loader_bench idx FOLDER [epochs]              one core, images and labels of the four IDX files of Fashion-MNIST
//   loader_bench cifar FILE THREADS [epochs]      crop, flip, normalize, cutout of a file in CIFAR-10's format, made
//   ahead
//                                                 by as many threads; 0: by the thread that takes them
//   loader_bench folder FOLDER THREADS [epochs]   JPEG and PNG files, a random part of each resized to 224 x 224

#include <malloc.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <string>
#include <vector>

#include "worker/core/idx_dataset.hpp"
#include "worker/core/sampler.hpp"
#include "worker/data/cifar_dataset.hpp"
#include "worker/data/image_source.hpp"
#include "worker/data/prefetch.hpp"
#include "worker/data/transforms.hpp"

namespace {

using namespace sgd::worker;

constexpr std::int64_t kBatch = 128;
constexpr int kAhead = 4;
constexpr std::uint64_t kSeed = 1;

struct MadeBatch {
  std::vector<float> images;
  std::vector<std::int64_t> labels;
};

template <class Value>
Value opened(sgd::Result<Value> result) {
  if (!result) {
    std::fprintf(stderr, "%s\n", result.error().message.c_str());
    std::exit(1);
  }
  return std::move(result).value();
}

/// Rates of the epochs; the first, which reads the files into memory, is left out. `make` fills a batch.
template <class Make>
void measure(std::int64_t samples, int threads, int epochs, const ImageShape& shape, const Make& make) {
  std::string rates;
  float sum = 0;  // What nobody reads need not be made.
  MadeBatch own;
  for (int epoch = 0; epoch <= epochs; ++epoch) {
    const auto begin = std::chrono::steady_clock::now();
    const Sampler sampler(kSeed, epoch, samples, 1, true);
    const std::int64_t batches = sampler.batches_left(0, kBatch);
    const auto fill = [&](std::int64_t number, MadeBatch& batch) {
      std::vector<std::int64_t> indices;
      sampler.batch(number * kBatch, 0, kBatch, indices);
      batch.images.resize(indices.size() * shape.count());
      batch.labels.resize(indices.size());
      make(epoch, indices, batch);
    };
    if (threads == 0) {
      for (std::int64_t number = 0; number < batches; ++number) {
        fill(number, own);
        sum += own.images.front();
      }
    } else {
      Prefetch<MadeBatch> ahead(threads, kAhead, batches, [&](std::int64_t number, const auto&) {
        MadeBatch batch;
        fill(number, batch);
        return batch;
      });
      while (const auto batch = ahead.take()) sum += batch->images.front();
    }
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    if (epoch > 0) rates += (epoch > 1 ? ", " : "") + std::to_string(static_cast<double>(samples) / seconds);
  }
  std::printf("{\"samples_per_s\": [%s], \"sum\": %g}\n", rates.c_str(), static_cast<double>(sum));
}

void measure_idx(const std::string& folder, int epochs) {
  const IdxDataset data = opened(IdxDataset::open(folder, Split::kTrain, 10));
  const ImageShape shape{1, data.sample_shape()[0], data.sample_shape()[1]};
  measure(data.count(), 0, epochs, shape, [&](int, const std::vector<std::int64_t>& indices, MadeBatch& batch) {
    data.gather_images(indices, batch.images.data());
    data.gather_labels(indices, batch.labels.data());
  });
}

void measure_cifar(const std::string& file, int threads, int epochs) {
  const CifarDataset data = opened(CifarDataset::open({file}, sgd::data::cifar_layout("cifar10"), 10));
  const ImageShape shape{sgd::data::kCifarChannels, sgd::data::kCifarSide, sgd::data::kCifarSide};
  const Transforms transforms(
      {RandomCrop{4}, HorizontalFlip{}, Normalize{{0.4914f, 0.4822f, 0.4465f}, {0.2023f, 0.1994f, 0.201f}}, Cutout{8}});
  measure(data.count(), threads, epochs, shape,
          [&](int epoch, const std::vector<std::int64_t>& indices, MadeBatch& batch) {
            Transforms::Scratch scratch;
            float* out = batch.images.data();
            for (const std::int64_t index : indices) {
              transforms.apply(data.image(index), shape, sample_seed(kSeed, epoch, index), scratch, out);
              out += shape.count();
            }
            data.gather_labels(indices, batch.labels.data());
          });
}

void measure_folder(const std::string& folder, int threads, int epochs) {
  const ImageSettings settings{{3, 224, 224}, ResizeMode::kRandomResizedCrop};
  const ImageFolderSource data =
      opened(ImageFolderSource::open(folder, settings, std::numeric_limits<std::int64_t>::max()));
  const Transforms transforms({HorizontalFlip{}, Normalize{{0.485f, 0.456f, 0.406f}, {0.229f, 0.224f, 0.225f}}});
  measure(data.count(), threads, epochs, settings.shape,
          [&](int epoch, const std::vector<std::int64_t>& indices, MadeBatch& batch) {
            ImageScratch image;
            Transforms::Scratch scratch;
            std::vector<std::uint8_t> planes(settings.shape.count());
            float* out = batch.images.data();
            for (std::size_t i = 0; i < indices.size(); ++i) {
              const std::uint64_t chance = sample_seed(kSeed, epoch, indices[i]);
              if (!data.read(indices[i], chance, image, planes.data())) std::abort();
              transforms.apply(planes.data(), settings.shape, chance, scratch, out);
              out += settings.shape.count();
              batch.labels[i] = data.label(indices[i]);
            }
          });
}

int usage() {
  std::fputs("usage: loader_bench idx FOLDER [EPOCHS] | cifar FILE THREADS [EPOCHS] | folder FOLDER THREADS [EPOCHS]\n",
             stderr);
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  // As the worker does: memory of one batch serves the next, instead of coming from the kernel page by page.
  constexpr int never_below = 1 << 30;
  ::mallopt(M_MMAP_THRESHOLD, never_below);
  ::mallopt(M_TRIM_THRESHOLD, never_below);
  const std::string what = argc > 2 ? argv[1] : "";
  const auto number = [&](int place, int otherwise) { return argc > place ? std::atoi(argv[place]) : otherwise; };
  constexpr int usual_epochs = 5;
  if (what == "idx")
    measure_idx(argv[2], number(3, usual_epochs));
  else if (what == "cifar" && argc > 3)
    measure_cifar(argv[2], number(3, 0), number(4, usual_epochs));
  else if (what == "folder" && argc > 3)
    measure_folder(argv[2], number(3, 0), number(4, usual_epochs));
  else
    return usage();
  return 0;
}
