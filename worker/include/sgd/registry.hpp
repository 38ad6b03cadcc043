#pragma once
// Names for what a plug-in brings along, so that a job file can use it by its "type":
//
//   SGD_REGISTER_OPERATOR("gan", Gan, R"({"latent": {"type": "integer", "minimum": 1, "default": 100}})")
//   SGD_REGISTER_FUNCTION("my_loop", train, "{}")
//   SGD_REGISTER_MODEL("wide", make_wide, R"({"width": {"type": "integer", "default": 64}})")
//
//   {"plugins": ["./libmine.so"], "training": {"operator": {"type": "gan", "latent": 64}, ...}}
//
// The last argument describes the settings beside "type", as JSON Schema does: keys to {type or enum, and default,
// minimum, maximum, exclusiveMinimum, exclusiveMaximum, minLength, maxLength, items, minItems, maxItems, x-path}. A job
// file is checked against it before anything starts, and what it leaves out has the default.

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include <nlohmann/json.hpp>

#include "sgd/abi.hpp"
#include "sgd/session.hpp"
#include "sgd/training_operator.hpp"

namespace sgd {

/// What a model must know of the data.
struct SampleShape {
  std::vector<std::int64_t> features;  ///< Without the batch: {1, 28, 28}.
  std::int64_t outputs = 1;            ///< Classes, or values to predict; 0: neither the job nor the data say.
};

using OperatorFactory = std::function<std::unique_ptr<TrainingOperator>()>;
using TrainingFunction = std::function<void(Session& session)>;
using ModelFactory = std::function<std::shared_ptr<Model>(const nlohmann::json& settings, const SampleShape& sample)>;

/// Registers when it is made; made by the macros below while a library is loaded. What is wrong with it (a name twice,
/// properties that are none) ends the loading of the library with an error that names both.
class Registration {
 public:
  Registration(const char* name, const char* properties, OperatorFactory factory);
  Registration(const char* name, const char* properties, ModelFactory factory);
  Registration(const char* name, const char* properties, TrainingFunction function);
};

}  // namespace sgd

#define SGD_JOINED_NOW(a, b) a##b
#define SGD_JOINED(a, b) SGD_JOINED_NOW(a, b)
#define SGD_REGISTRATION static const ::sgd::Registration SGD_JOINED(sgd_registration_, __COUNTER__)

/// `Type`: a subclass of TrainingOperator that can be made without arguments.
#define SGD_REGISTER_OPERATOR(name, Type, properties)                                                          \
  SGD_REGISTRATION(name, properties, ::sgd::OperatorFactory([]() -> std::unique_ptr<::sgd::TrainingOperator> { \
                     return std::make_unique<Type>();                                                          \
                   }))

/// `factory`: from (settings, sample) to a std::shared_ptr of a subclass of Model.
#define SGD_REGISTER_MODEL(name, factory, properties) SGD_REGISTRATION(name, properties, ::sgd::ModelFactory(factory))

/// `function`: a training loop, void(sgd::Session&); see session.hpp.
#define SGD_REGISTER_FUNCTION(name, function, properties) \
  SGD_REGISTRATION(name, properties, ::sgd::TrainingFunction(function))
