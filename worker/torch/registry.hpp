#pragma once
// Names to factories: how a job file's "type" becomes an object. A table is filled once and read
// afterwards; an unknown name is a configuration error that lists the known ones.

#include <map>
#include <string>
#include <utility>

#include "worker/torch/errors.hpp"

namespace sgd::worker {

template <class Factory>
class Registry {
 public:
  /// `kind` is for messages: "model".
  Registry(std::string kind, std::map<std::string, Factory> factories)
      : kind_(std::move(kind)), factories_(std::move(factories)) {}

  void add(const std::string& name, Factory factory) { factories_[name] = std::move(factory); }

  [[nodiscard]] const Factory& find(const std::string& name) const {
    const auto found = factories_.find(name);
    if (found != factories_.end()) return found->second;
    std::string known;
    for (const auto& [other, factory] : factories_) known += (known.empty() ? "" : ", ") + other;
    throw ConfigurationError("unknown " + kind_ + " \"" + name + "\"; known: " + known);
  }

 private:
  std::string kind_;
  std::map<std::string, Factory> factories_;
};

}  // namespace sgd::worker
