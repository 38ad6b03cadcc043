#pragma once
// Where the time of training and validation goes, with RaySGD's keys: the mean over the last ten samples of each timer,
// begun anew with each phase. Reads no clock; while it is off it costs nothing.
//
//   training:   mean_train_epoch_s, mean_fwd_s, mean_grad_s, mean_apply_s
//   validation: mean_validation_s, mean_eval_fwd_s

#include <array>
#include <cstddef>
#include <vector>

#include "common/base/time.hpp"
#include "common/json/nlohmann.hpp"

namespace sgd::worker {

enum class ProfiledPart {
  kTrainEpoch,   ///< A whole pass.
  kForward,      ///< Of a training batch, with its loss.
  kGradient,     ///< Backward and the mean over ranks.
  kApply,        ///< The update.
  kValidation,   ///< A whole pass.
  kEvalForward,  ///< Of a validation batch.
};
inline constexpr std::size_t kProfiledParts = 6;

class PhaseProfile {
 public:
  explicit PhaseProfile(bool is_on = false) : is_on_(is_on) {}

  [[nodiscard]] bool is_on() const { return is_on_; }
  void add(ProfiledPart part, Duration taken);

  /// The member "profile" of a training or validation report; null while it is off. A part without a sample is NaN.
  [[nodiscard]] nlohmann::ordered_json training() const;
  [[nodiscard]] nlohmann::ordered_json validation() const;
  /// Before each phase.
  void clear();

 private:
  struct Samples {
    std::vector<double> seconds;  ///< The last ones, in a ring.
    std::size_t next = 0;
  };
  [[nodiscard]] double mean_of(ProfiledPart part) const;

  bool is_on_;
  std::array<Samples, kProfiledParts> samples_;
};

}  // namespace sgd::worker
