#pragma once
// Relations inside "training": data sets, loss, model and optimizer.

#include "common/job/sound.hpp"

namespace sgd::job {

/// A plug-in's operator or function makes its own model and loss.
[[nodiscard]] bool has_own_operator(const nlohmann::json& training);

/// What training looks at, alone or of several; null: it is not known.
[[nodiscard]] const nlohmann::json* trained_dataset(const Sound& sound);

/// Of "datasets", which are parts of paths; and that "dataset" is not there, too.
void check_dataset_names(const nlohmann::json& training, Reporter& report);
/// That there is what operators train and validate on.
void check_has_data(const nlohmann::json& training, Reporter& report);

void check_training(const Sound& sound, Reporter& report);

}  // namespace sgd::job
