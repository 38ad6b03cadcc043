#pragma once
// Every trial runs to its end.

#include "launcher/tune/scheduler.hpp"

namespace sgd::tune {

class Fifo : public Scheduler {
 private:
  void added(TrialId, const Values&) override {}
  Decision reported(const Report& report) override;
  void ended(TrialId, Outcome) override {}
  Decisions settled() override { return {}; }
  [[nodiscard]] std::optional<Decision> chosen(bool) const override { return std::nullopt; }
  void resumed(TrialId) override {}
  void values_set(TrialId, const Values&) override {}
  [[nodiscard]] nlohmann::json own_state() const override { return nlohmann::json::object(); }
  bool restore(const nlohmann::json&) override { return true; }
};

}  // namespace sgd::tune
