#pragma once
// What a model, a loss and a batch are.

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <torch/torch.h>

namespace sgd {

/// A network from one tensor to one tensor, as the built-in ones are. Parameters are found by their registered names.
/// An operator may train any torch::nn::Module; this class is for models that a job file names.
class Model : public torch::nn::Module {
 public:
  virtual at::Tensor forward(const at::Tensor& features) = 0;
};

using NamedTensors = std::map<std::string, at::Tensor>;
using Loss = std::function<at::Tensor(const at::Tensor& output, const at::Tensor& target)>;

struct Batch {
  at::Tensor features;
  at::Tensor target;
  std::vector<at::Tensor> further = {};  ///< Inputs beside features, of a data set that has several.
};

/// What a model must know of the data.
struct SampleShape {
  std::vector<std::int64_t> features;  ///< Without the batch: {1, 28, 28}.
  std::int64_t outputs = 1;            ///< Classes, or values to predict; 0: neither the job nor the data say.
};

struct BatchInfo {
  int epoch = 0;                 ///< From 1.
  std::int64_t batch_index = 0;  ///< In this rank's epoch, from 0.
  std::int64_t global_step = 0;  ///< Batches with an update since the run's start.
  bool is_last = false;          ///< Of this rank's epoch.
};

}  // namespace sgd
