#pragma once
// What plug-ins and the program itself have registered, as far as it can be said without LibTorch.

#include <string>
#include <vector>

#include "common/json/nlohmann.hpp"

namespace sgd::worker {

/// {"operator": {NAME: PROPERTIES}, "model": {...}}, as job::Registered.
[[nodiscard]] const nlohmann::json& registered_properties();

/// What was registered wrongly, in words.
[[nodiscard]] const std::vector<std::string>& registration_faults();

/// Whether there is any.
[[nodiscard]] bool has_registered();

/// Whether a data set of either kind is registered under that name.
[[nodiscard]] bool has_registered_dataset(const std::string& name);

}  // namespace sgd::worker
