#pragma once
// From "training.dataset" of a job, complete, to a reader of one of its splits.

#include <cstdint>
#include <string>
#include <vector>

#include "common/json/nlohmann.hpp"
#include "worker/core/idx_dataset.hpp"
#include "worker/data/cifar_dataset.hpp"
#include "worker/data/sample_reader.hpp"
#include "worker/data/token_dataset.hpp"

namespace sgd::worker {

/// Of type "csv", "npy" or "synthetic". `outputs`: numbers that the model gives for a sample; labels are below it.
/// `trained_on`: the set that the model is trained on, in whose order columns of CSV files are taken; null: this one.
[[nodiscard]] ReaderResult open_reader(const nlohmann::json& settings, Split split, std::int64_t outputs,
                                       const nlohmann::json* trained_on = nullptr);
[[nodiscard]] Result<CifarDataset> open_cifar(const nlohmann::json& settings, Split split, std::int64_t outputs);
[[nodiscard]] Result<TokenDataset> open_tokens(const nlohmann::json& settings, Split split, std::int64_t outputs);

}  // namespace sgd::worker
