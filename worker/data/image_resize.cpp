#include "worker/data/image_resize.hpp"

#include <algorithm>
#include <cmath>

#include "common/base/assert.hpp"
#include "worker/core/mix_bits.hpp"
#include "worker/core/simd.hpp"

namespace sgd::worker {
namespace {

/// Weights are whole numbers of 2^-22: sums of bytes times weights fit 32 bits.
constexpr int kWeightBits = 22;

/// The weights of one side: `taps` for each pixel that is made, of the pixels from firsts on.
struct SideWeights {
  std::int64_t taps = 0;
  const std::int32_t* weights = nullptr;
  const std::int64_t* firsts = nullptr;
};

/// Of the pixels begin .. begin + count - 1 of a side that is scaled from `size` to `scaled`.
SideWeights side_weights(std::int64_t size, std::int64_t scaled, std::int64_t begin, std::int64_t count,
                         std::vector<std::int32_t>& weights, std::vector<std::int64_t>& firsts) {
  const double scale = static_cast<double>(size) / static_cast<double>(scaled);
  const double support = std::max(scale, 1.0);
  const double step = 1.0 / support;
  const std::int64_t taps = std::min(static_cast<std::int64_t>(std::ceil(support)) * 2 + 1, size);
  weights.assign(static_cast<std::size_t>(taps * count), 0);
  firsts.resize(static_cast<std::size_t>(count));
  std::vector<double> exact(static_cast<std::size_t>(taps));
  for (std::int64_t i = 0; i < count; ++i) {
    const double centre = (static_cast<double>(begin + i) + 0.5) * scale;
    const std::int64_t first = std::max<std::int64_t>(0, static_cast<std::int64_t>(centre - support + 0.5));
    const std::int64_t last = std::min(size, static_cast<std::int64_t>(centre + support + 0.5));
    double sum = 0;
    for (std::int64_t j = first; j < last; ++j) {
      const double distance = std::abs((static_cast<double>(j) - centre + 0.5) * step);
      const double weight = distance < 1.0 ? 1.0 - distance : 0.0;
      exact[static_cast<std::size_t>(j - first)] = weight;
      sum += weight;
    }
    for (std::int64_t j = first; j < last; ++j) {
      const double weight = exact[static_cast<std::size_t>(j - first)] / sum;
      weights[static_cast<std::size_t>(i * taps + j - first)] =
          static_cast<std::int32_t>(0.5 + weight * (1 << kWeightBits));
    }
    firsts[static_cast<std::size_t>(i)] = first;
  }
  return {taps, weights.data(), firsts.data()};
}

std::uint8_t byte_of(std::int32_t sum) {
  return static_cast<std::uint8_t>(std::clamp(sum >> kWeightBits, 0, 255));
}

/// One row of `channels` interleaved to one row of each plane, `plane` apart.
template <int kChannels>
void resize_row(const std::uint8_t* row, std::int64_t size, const SideWeights& side, std::int64_t count,
                std::uint8_t* out, std::int64_t plane) {
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t first = side.firsts[i];
    const std::int32_t* weights = side.weights + i * side.taps;
    const std::int64_t taps = std::min(side.taps, size - first);
    const std::uint8_t* from = row + first * kChannels;
    std::int32_t sums[kChannels];
    std::fill(sums, sums + kChannels, 1 << (kWeightBits - 1));
    for (std::int64_t j = 0; j < taps; ++j, from += kChannels)
      for (int channel = 0; channel < kChannels; ++channel) sums[channel] += from[channel] * weights[j];
    for (int channel = 0; channel < kChannels; ++channel) out[channel * plane + i] = byte_of(sums[channel]);
  }
}

/// sums += row * weight.
SGD_CLONES void add_row(const std::uint8_t* __restrict row, std::int32_t weight, std::int32_t* __restrict sums,
                        std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) sums[i] += row[i] * weight;
}

SGD_CLONES void write_row(const std::int32_t* __restrict sums, std::uint8_t* __restrict out, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int32_t value = sums[i] >> kWeightBits;
    out[i] = static_cast<std::uint8_t>(value < 0 ? 0 : value > 255 ? 255 : value);
  }
}

/// Python's round(count / 2): a half goes to the even number.
std::int64_t half(std::int64_t count) {
  const std::int64_t down = count / 2;
  return count % 2 == 1 && down % 2 == 1 ? down + 1 : down;
}

ResizeWindow crop_window(std::int64_t rows, std::int64_t columns, const ImageShape& wanted) {
  ResizeWindow window{{0, 0, rows, columns}, wanted.rows, wanted.columns, 0, 0};
  if (rows * wanted.columns <= columns * wanted.rows)
    window.scaled_columns = columns * wanted.rows / rows;
  else
    window.scaled_rows = rows * wanted.columns / columns;
  window.top = half(window.scaled_rows - wanted.rows);
  window.left = half(window.scaled_columns - wanted.columns);
  return window;
}

constexpr std::uint64_t kCropChance = 0x63726f70;  // Apart from the transforms' use of a sample's seed.
constexpr double kAspectLeast = 3.0 / 4.0;
constexpr double kAspectMost = 4.0 / 3.0;
constexpr double kAreaLeast = 0.08;

/// base^exponent of 0 to below 1, by square roots: the same bits on every machine, which libraries do not promise.
double power(double base, double exponent) {
  constexpr int bits = 24;
  double result = 1;
  for (int i = 0; i < bits; ++i) {
    base = std::sqrt(base);
    exponent *= 2;
    if (exponent < 1) continue;
    exponent -= 1;
    result *= base;
  }
  return result;
}

ResizeWindow::Part random_part(std::int64_t rows, std::int64_t columns, std::uint64_t chance) {
  constexpr std::uint64_t tries = 10;
  constexpr std::uint64_t draws = 4;
  const auto height = static_cast<double>(rows);
  const auto width = static_cast<double>(columns);
  const std::uint64_t seed = mixed(chance, kCropChance);
  for (std::uint64_t i = 0; i < tries; ++i) {
    const double area = height * width * (kAreaLeast + (1 - kAreaLeast) * unit_interval(mixed(seed, i * draws)));
    const double aspect = kAspectLeast * power(kAspectMost / kAspectLeast, unit_interval(mixed(seed, i * draws + 1)));
    const auto part_columns = static_cast<std::int64_t>(std::nearbyint(std::sqrt(area * aspect)));
    const auto part_rows = static_cast<std::int64_t>(std::nearbyint(std::sqrt(area / aspect)));
    if (part_columns < 1 || part_columns > columns || part_rows < 1 || part_rows > rows) continue;
    return {below(mixed(seed, i * draws + 2), rows - part_rows + 1),
            below(mixed(seed, i * draws + 3), columns - part_columns + 1), part_rows, part_columns};
  }
  // As much of the middle as has a usual aspect.
  ResizeWindow::Part part{0, 0, rows, columns};
  if (width < kAspectLeast * height)
    part.rows = std::min(rows, static_cast<std::int64_t>(std::nearbyint(width / kAspectLeast)));
  else if (width > kAspectMost * height)
    part.columns = std::min(columns, static_cast<std::int64_t>(std::nearbyint(height * kAspectMost)));
  part.top = (rows - part.rows) / 2;
  part.left = (columns - part.columns) / 2;
  return part;
}

}  // namespace

ResizeMode resize_mode(std::string_view name) {
  if (name == "stretch") return ResizeMode::kStretch;
  return name == "random_resized_crop" ? ResizeMode::kRandomResizedCrop : ResizeMode::kCrop;
}

ResizeWindow resize_window(ResizeMode mode, std::int64_t rows, std::int64_t columns, const ImageShape& wanted,
                           std::optional<std::uint64_t> chance) {
  SGD_ASSERT(rows > 0 && columns > 0 && wanted.rows > 0 && wanted.columns > 0);
  if (mode == ResizeMode::kStretch) return {{0, 0, rows, columns}, wanted.rows, wanted.columns, 0, 0};
  if (mode == ResizeMode::kCrop || !chance) return crop_window(rows, columns, wanted);
  return {random_part(rows, columns, *chance), wanted.rows, wanted.columns, 0, 0};
}

void resize_bilinear(const DecodedImage& image, const ResizeWindow& window, const ImageShape& wanted,
                     ResizeScratch& scratch, std::uint8_t* planes) {
  SGD_ASSERT(image.channels == 1 || image.channels == 3);
  SGD_ASSERT(image.channels == 1 || wanted.channels == 3);
  const SideWeights across = side_weights(window.from.columns, window.scaled_columns, window.left, wanted.columns,
                                          scratch.weights[0], scratch.firsts[0]);
  const SideWeights down = side_weights(window.from.rows, window.scaled_rows, window.top, wanted.rows,
                                        scratch.weights[1], scratch.firsts[1]);
  const std::int64_t first = down.firsts[0];
  const std::int64_t rows = std::min(window.from.rows, down.firsts[wanted.rows - 1] + down.taps) - first;
  const std::int64_t plane = rows * wanted.columns;
  const auto row_numbers = static_cast<std::size_t>(wanted.columns);
  scratch.bytes.resize(static_cast<std::size_t>(image.channels * plane));
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t source = (window.from.top + first + row) * image.columns + window.from.left;
    const std::uint8_t* from = image.pixels.data() + source * image.channels;
    std::uint8_t* out = scratch.bytes.data() + row * wanted.columns;
    if (image.channels == 3)
      resize_row<3>(from, window.from.columns, across, wanted.columns, out, plane);
    else
      resize_row<1>(from, window.from.columns, across, wanted.columns, out, plane);
  }
  std::vector<std::int32_t> sums(row_numbers);
  for (std::int64_t channel = 0; channel < image.channels; ++channel) {
    for (std::int64_t i = 0; i < wanted.rows; ++i) {
      std::fill(sums.begin(), sums.end(), 1 << (kWeightBits - 1));
      const std::int64_t taps = std::min(down.taps, window.from.rows - down.firsts[i]);
      for (std::int64_t j = 0; j < taps; ++j) {
        const std::int32_t weight = down.weights[i * down.taps + j];
        const std::int64_t row = down.firsts[i] - first + j;
        if (weight != 0)
          add_row(scratch.bytes.data() + channel * plane + row * wanted.columns, weight, sums.data(), wanted.columns);
      }
      write_row(sums.data(), planes + channel * wanted.plane() + i * wanted.columns, wanted.columns);
    }
  }
  for (std::int64_t channel = image.channels; channel < wanted.channels; ++channel)
    std::copy(planes, planes + wanted.plane(), planes + channel * wanted.plane());
}

void resize_nearest(const DecodedImage& image, const ResizeWindow& window, const ImageShape& wanted,
                    std::uint8_t* out) {
  SGD_ASSERT(image.channels == 1);
  const auto source = [](std::int64_t place, std::int64_t size, std::int64_t scaled) {
    return (2 * place + 1) * size / (2 * scaled);
  };
  std::vector<std::int64_t> columns(static_cast<std::size_t>(wanted.columns));
  for (std::int64_t i = 0; i < wanted.columns; ++i)
    columns[static_cast<std::size_t>(i)] =
        window.from.left + source(window.left + i, window.from.columns, window.scaled_columns);
  for (std::int64_t i = 0; i < wanted.rows; ++i) {
    const std::int64_t row = window.from.top + source(window.top + i, window.from.rows, window.scaled_rows);
    const std::uint8_t* from = image.pixels.data() + row * image.columns;
    for (const std::int64_t column : columns) *out++ = from[column];
  }
}

}  // namespace sgd::worker
