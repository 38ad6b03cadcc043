// RaySGD's test_profiling: which keys a profile has, and what they are the mean of.
#include "worker/core/phase_profile.hpp"

#include <catch2/catch.hpp>

namespace sgd::worker {

using namespace std::chrono_literals;

TEST_CASE("test_profiling: exactly RaySGD's keys, the mean of the last ten samples") {
  PhaseProfile profile(true);
  for (int batch = 1; batch <= 12; ++batch) profile.add(ProfiledPart::kForward, batch * 1s);
  profile.add(ProfiledPart::kGradient, 2s);
  profile.add(ProfiledPart::kGradient, 4s);
  profile.add(ProfiledPart::kApply, 250ms);
  profile.add(ProfiledPart::kTrainEpoch, 60s);
  // Of forward the batches 3 to 12.
  CHECK(profile.training().dump() ==
        R"({"mean_train_epoch_s":60.0,"mean_fwd_s":7.5,"mean_grad_s":3.0,"mean_apply_s":0.25})");
  profile.clear();
  profile.add(ProfiledPart::kValidation, 3s);
  profile.add(ProfiledPart::kEvalForward, 500ms);
  CHECK(profile.validation().dump() == R"({"mean_validation_s":3.0,"mean_eval_fwd_s":0.5})");
  CHECK(profile.training().dump() ==
        R"({"mean_train_epoch_s":null,"mean_fwd_s":null,"mean_grad_s":null,"mean_apply_s":null})");
}

TEST_CASE("test_profiling: off, nothing is kept and there is no profile") {
  PhaseProfile profile;
  CHECK_FALSE(profile.is_on());
  profile.add(ProfiledPart::kForward, 1s);
  CHECK(profile.training().is_null());
  CHECK(profile.validation().is_null());
}

}  // namespace sgd::worker
