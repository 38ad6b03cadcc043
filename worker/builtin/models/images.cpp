#include <stdexcept>

#include "worker/builtin/models/factories.hpp"

namespace sgd::builtin {

std::int64_t image_channels(const std::string& model, const SampleShape& sample, std::int64_t side_min) {
  const std::string side = std::to_string(side_min);
  if (sample.features.size() != 3 || sample.features[1] < side_min || sample.features[2] < side_min)
    throw std::invalid_argument("model \"" + model + "\" needs images (channels x rows x columns) of at least " + side +
                                " x " + side + " pixels");
  return sample.features[0];
}

}  // namespace sgd::builtin
