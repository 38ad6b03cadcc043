#include "worker/torch/device_index.hpp"

#include <algorithm>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "worker/torch/errors.hpp"

namespace sgd::worker {
namespace {

/// That are named; of MIG parts a process sees one, whatever is named.
int named_in(std::string_view visible) {
  if (visible.empty() || visible.front() == '-') return 0;
  if (visible.starts_with("MIG-")) return 1;
  return 1 + static_cast<int>(std::count(visible.begin(), visible.end(), ','));
}

}  // namespace

int device_index(const char* visible, int seen, int local_rank, int gpus_each) {
  const int named = visible == nullptr ? 0 : named_in(visible);
  const std::string variable = visible == nullptr ? "" : fmt::format(" (CUDA_VISIBLE_DEVICES=\"{}\")", visible);
  if (seen == 0 && named == 0)
    throw ConfigurationError(
        fmt::format("the job asks for a GPU, and this process sees none{}: check nvidia-smi and the driver, or set "
                    "\"training.device\" to \"cpu\"",
                    variable));
  if (seen < named)
    throw EnvironmentError(
        fmt::format("CUDA sees {} of the {} GPUs that this process is to see{}: nvidia-smi and the "
                    "kernel's log tell which one has gone",
                    seen, named, variable));
  // With one device each, those of the node lie in the order of its ranks, or a rank sees its own alone; with several
  // it sees its own, and takes the first.
  return gpus_each > 1 ? 0 : local_rank % seen;
}

}  // namespace sgd::worker
