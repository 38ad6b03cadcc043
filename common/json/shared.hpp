#pragma once
// A JSON value that its copies share. A start of ten thousand ranks tells each node the whole job: that is one value in
// ten thousand messages.

#include <memory>
#include <utility>

#include "common/json/nlohmann.hpp"

namespace sgd {

/// Never changes while it is shared; null at first.
class SharedJson {
 public:
  SharedJson() = default;
  SharedJson(nlohmann::json value) : value_(std::make_shared<nlohmann::json>(std::move(value))) {}

  [[nodiscard]] const nlohmann::json& operator*() const {
    static const nlohmann::json kNull;
    return value_ ? *value_ : kNull;
  }
  [[nodiscard]] const nlohmann::json* operator->() const { return &**this; }
  operator const nlohmann::json&() const { return **this; }

  /// For a change, which other copies do not see. The reference is for this moment: a copy made later shares its value.
  [[nodiscard]] nlohmann::json& edit() {
    if (value_.use_count() != 1) value_ = std::make_shared<nlohmann::json>(**this);
    return *value_;
  }

  /// By value.
  friend bool operator==(const SharedJson& one, const SharedJson& other) {
    return one.value_ == other.value_ || *one == *other;
  }

 private:
  std::shared_ptr<nlohmann::json> value_;  // Empty: null.
};

}  // namespace sgd
