#pragma once
// Names for what a plug-in brings along, so that a job file can use it by its "type":
//
//   SGD_REGISTER_OPERATOR("gan", Gan, R"({"latent": {"type": "integer", "minimum": 1, "default": 100}})")
//   SGD_REGISTER_FUNCTION("my_loop", train, "{}")
//   SGD_REGISTER_MODEL("wide", make_wide, R"({"width": {"type": "integer", "default": 64}})")
//   SGD_REGISTER_DATASET("words", Words, R"({"file": {"type": "string", "x-path": true}})")
//   SGD_REGISTER_LOSS("focal", make_focal, R"({"gamma": {"type": "number", "default": 2}})")
//
//   {"plugins": ["./libmine.so"], "training": {"operator": {"type": "gan", "latent": 64}, ...}}
//
// The last argument describes the settings beside "type", as JSON Schema does: keys to {type or enum, and default,
// minimum, maximum, exclusiveMinimum, exclusiveMaximum, minLength, maxLength, items, minItems, maxItems, x-path}. A job
// file is checked against it before anything starts, and what it leaves out has the default.

#include <cstdint>
#include <functional>
#include <memory>
#include <type_traits>

#include <nlohmann/json.hpp>

#include "sgd/abi.hpp"
#include "sgd/data.hpp"
#include "sgd/session.hpp"
#include "sgd/training_operator.hpp"

namespace sgd {

using OperatorFactory = std::function<std::unique_ptr<TrainingOperator>()>;
/// What it returns is the rank's entry in "results" of the run's summary.json; null: none.
using TrainingFunction = std::function<nlohmann::json(Session& session)>;
using ModelFactory = std::function<std::shared_ptr<Model>(const nlohmann::json& settings, const SampleShape& sample)>;
/// `seed`: the job's, for what the data set draws.
using DatasetFactory = std::function<std::shared_ptr<Dataset>(const nlohmann::json& settings, std::uint64_t seed)>;
using IterableFactory =
    std::function<std::shared_ptr<IterableDataset>(const nlohmann::json& settings, std::uint64_t seed)>;
using LossFactory = std::function<Loss(const nlohmann::json& settings)>;

/// Registers when it is made; made by the macros below while a library is loaded. What is wrong with it (a name twice,
/// properties that are none) ends the loading of the library with an error that names both.
class Registration {
 public:
  Registration(const char* name, const char* properties, OperatorFactory factory);
  Registration(const char* name, const char* properties, ModelFactory factory);
  Registration(const char* name, const char* properties, TrainingFunction function);
  Registration(const char* name, const char* properties, DatasetFactory factory);
  Registration(const char* name, const char* properties, IterableFactory factory);
  Registration(const char* name, const char* properties, LossFactory factory);
};

/// Of a type that is made from its settings, or from them and the job's seed.
template <class Type>
[[nodiscard]] auto dataset_factory() {
  using Kind = std::conditional_t<std::is_base_of_v<IterableDataset, Type>, IterableDataset, Dataset>;
  using Factory = std::function<std::shared_ptr<Kind>(const nlohmann::json& settings, std::uint64_t seed)>;
  return Factory([](const nlohmann::json& settings, std::uint64_t seed) -> std::shared_ptr<Kind> {
    if constexpr (std::is_constructible_v<Type, const nlohmann::json&, std::uint64_t>) {
      return std::make_shared<Type>(settings, seed);
    } else {
      return std::make_shared<Type>(settings);
    }
  });
}

/// Of a function that returns something, or nothing.
template <class Function>
[[nodiscard]] TrainingFunction training_function(Function function) {
  return [function](Session& session) -> nlohmann::json {
    if constexpr (std::is_void_v<std::invoke_result_t<Function, Session&>>) {
      function(session);
      return nullptr;
    } else {
      return function(session);
    }
  };
}

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

/// `Type`: a subclass of Dataset or IterableDataset that can be made from its settings, or from them and the job's
/// seed.
#define SGD_REGISTER_DATASET(name, Type, properties) SGD_REGISTRATION(name, properties, ::sgd::dataset_factory<Type>())

/// `factory`: from settings to a loss(output, target) of one number, the mean over the batch. A job names it as an
/// object, {"type": NAME}.
#define SGD_REGISTER_LOSS(name, factory, properties) SGD_REGISTRATION(name, properties, ::sgd::LossFactory(factory))

/// `function`: a training loop, void(sgd::Session&), or one that returns JSON; see session.hpp.
#define SGD_REGISTER_FUNCTION(name, function, properties) \
  SGD_REGISTRATION(name, properties, ::sgd::training_function(function))
