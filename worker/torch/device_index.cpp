#include "worker/torch/device_index.hpp"

#include <algorithm>
#include <sstream>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "worker/collective/collective.hpp"
#include "worker/torch/errors.hpp"

namespace sgd::worker {
namespace {

std::vector<std::string> words_of(const char* visible) {
  std::vector<std::string> words;
  std::istringstream list{std::string(visible == nullptr ? "" : visible)};
  for (std::string word; std::getline(list, word, ',');) {
    const std::size_t begin = word.find_first_not_of(' ');
    words.push_back(begin == std::string::npos ? "" : word.substr(begin, word.find_last_not_of(' ') + 1 - begin));
  }
  return words;
}

bool are_parts(const std::vector<std::string>& words) {
  return !words.empty() && words.front().starts_with("MIG-");
}

/// That are named; of MIG parts a process sees one, whatever is named.
int named_in(const std::vector<std::string>& words) {
  if (words.empty() || words.front().empty() || words.front().front() == '-') return 0;
  return are_parts(words) ? 1 : static_cast<int>(words.size());
}

/// With one device each, those of the node lie in the order of its ranks, or a rank sees its own alone; with several it
/// sees its own, and takes the first.
std::size_t own_place(std::size_t count, int local_rank, int gpus_each) {
  return gpus_each > 1 ? 0 : static_cast<std::size_t>(local_rank) % count;
}

/// That the driver is missing or old is so on each attempt.
bool is_of_driver(const std::string& reason) {
  return reason.find("too old") != std::string::npos || reason.find("no NVIDIA driver") != std::string::npos;
}

/// Throws where some of the devices in `words` are lost, if `text` is what CUDA says of it.
void tell_lost(const std::vector<std::string>& words, std::size_t own, int gpus_each, const std::string& text,
               const char* nvml) {
  const std::vector<std::size_t> lost = lost_devices(words, nvml);
  if (lost.empty()) return;
  if (std::find(lost.begin(), lost.end(), own) != lost.end())
    throw EnvironmentError(fmt::format("{}; NVML says of device {}, this worker's: GPU is lost", text, words[own]));
  const std::string other = fmt::format("{}; device {} has gone, as NVML says", text, words[lost.front()]);
  // All are its own then, and nobody else tells of it.
  if (gpus_each > 1) throw EnvironmentError(other);
  throw CollectiveError(other + ": it is another worker's");
}

}  // namespace

std::string device_word(const char* visible, int local_rank, int gpus_each) {
  const std::vector<std::string> words = words_of(visible);
  const int named = named_in(words);
  return named == 0 ? "" : words[own_place(static_cast<std::size_t>(named), local_rank, gpus_each)];
}

int device_index(const char* visible, int seen, int local_rank, int gpus_each, const std::string& reason,
                 const char* nvml) {
  const std::vector<std::string> words = words_of(visible);
  const int named = named_in(words);
  const std::string variable = visible == nullptr ? "" : fmt::format(" (CUDA_VISIBLE_DEVICES=\"{}\")", visible);
  const std::string why = reason.empty() ? "" : fmt::format(" ({})", reason);
  if (seen == 0 && (named == 0 || is_of_driver(reason)))
    throw ConfigurationError(
        fmt::format("the job asks for a GPU, and this process sees none{}{}: check nvidia-smi and the driver, or set "
                    "\"training.device\" to \"cpu\"",
                    variable, why));
  if (seen < named) {
    const std::string text =
        fmt::format("CUDA sees {} of the {} GPUs that this process is to see{}{}", seen, named, variable, why);
    tell_lost(words, own_place(static_cast<std::size_t>(named), local_rank, gpus_each), gpus_each, text, nvml);
    throw EnvironmentError(text + ": nvidia-smi and the kernel's log tell " +
                           (reason.empty() ? "which one has gone" : "more"));
  }
  return static_cast<int>(own_place(static_cast<std::size_t>(seen), local_rank, gpus_each));
}

}  // namespace sgd::worker
