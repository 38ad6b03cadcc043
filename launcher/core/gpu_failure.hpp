#pragma once
// Words by which a rank says that a GPU has failed under it. Which one that is says its agent, which has dealt them
// out: no rank's word takes the GPU of another one away.

#include <string>
#include <string_view>
#include <vector>

#include "common/messages/rank_error.hpp"
#include "launcher/core/core_allocation.hpp"

namespace sgd::core {

/// Of a defect of the device, as CUDA and its driver word them: not of a full memory, nor of a kernel that has refused
/// its arguments or reads what is not its own.
[[nodiscard]] bool tells_gpu_failure(std::string_view text);

/// What is known of the end of a rank.
struct RankWords {
  bool is_own_end = true;  ///< By an exit code, or by the signal of abort().
  std::string_view message;
  const RankError* error = nullptr;                ///< Null: it has said nothing.
  const std::vector<std::string>* tail = nullptr;  ///< Of its output; looked at where there is no error.
};

/// The one of its own `gpus` that has failed under a rank; empty: none has, or it has several and could mean any of
/// them. `uses_first`: of several it uses the first one, as those of training do.
[[nodiscard]] std::string failed_gpu(const GpuNames& gpus, bool uses_first, const RankWords& words);

}  // namespace sgd::core
